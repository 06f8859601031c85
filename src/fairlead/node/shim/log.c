/* Messages for people, appended to FAIRLEAD_SHIM_LOG. The job's own output is never touched. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "shim.h"

void log_line(const char *format, ...) {
    const char *path = setting("FAIRLEAD_SHIM_LOG");
    if (!path || !*path) {
        return;
    }
    char line[512];
    int used = snprintf(line, sizeof line, "fairlead-shim[%d] ", (int)getpid());
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (more < 0) {
        return;
    }
    size_t length = (size_t)used + (size_t)more;
    if (length > sizeof line - 2) {
        length = sizeof line - 2;
    }
    line[length++] = '\n';
    /* Opened for each line: messages are rare, and a descriptor kept open would be one that the program may close. */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) {
        ssize_t written = write(fd, line, length); /* one write, so that lines of several processes don't mix */
        (void)written;
        close(fd);
    }
}
