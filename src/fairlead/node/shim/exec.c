/* Programs that this one starts have the shim too, whatever was done to the environment in between.
 *
 * The C library's own calls among themselves can't be taken over, so every function that starts a program is. They may
 * run in a child of vfork, with the parent's memory: nothing is allocated and no lock is taken. A program that makes
 * the system call itself, or is linked statically, gets away; the agent sees such a process by the memory it takes.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

#define PRELOAD "LD_PRELOAD="

static struct {
    __typeof__(&execve) execve;
    __typeof__(&execvpe) execvpe;
    __typeof__(&fexecve) fexecve;
    int (*execveat)(int, const char *, char *const[], char *const[], int);
    __typeof__(&posix_spawn) posix_spawn;
    __typeof__(&posix_spawnp) posix_spawnp;
    __typeof__(&system) system;
    __typeof__(&popen) popen;
} beneath;

/* At load: in a child of fork another thread may have held the loader's lock. */
static __attribute__((constructor(102))) void bind(void) {
    dlsym_t find = real_dlsym();
#define BIND(name) beneath.name = (__typeof__(beneath.name))find(RTLD_NEXT, #name)
    BIND(execve), BIND(execvpe), BIND(fexecve), BIND(execveat);
    BIND(posix_spawn), BIND(posix_spawnp), BIND(system), BIND(popen);
#undef BIND
}

static bool has_name(const char *line, const char *kept) {
    size_t length = strcspn(kept, "=") + 1;
    return strncmp(line, kept, length) == 0;
}

static bool is_kept(const char *line) {
    for (const char *const *one = settings_kept; *one; one++) {
        if (has_name(line, *one)) {
            return true;
        }
    }
    return settings_preload && strncmp(line, PRELOAD, strlen(PRELOAD)) == 0;
}

static bool names_library(const char *words) {
    size_t length = strlen(settings_library);
    for (const char *at = words; *at;) {
        size_t word = strcspn(at, ": ");
        if (word == length && strncmp(at, settings_library, length) == 0) {
            return true;
        }
        at += word + (at[word] != 0);
    }
    return false;
}

static const char *preload_in(char *const env[]) {
    for (char *const *line = env; line && *line; line++) {
        if (strncmp(*line, PRELOAD, strlen(PRELOAD)) == 0) {
            return *line + strlen(PRELOAD);
        }
    }
    return "";
}

/* Room for the environment as it must be, and for a new LD_PRELOAD. */
static size_t lines_needed(char *const env[]) {
    size_t count = 0, kept = 0;
    while (env && env[count]) {
        count++;
    }
    while (settings_kept[kept]) {
        kept++;
    }
    return count + kept + 2;
}

static size_t preload_needed(char *const env[]) {
    size_t ours = settings_preload ? strlen(settings_preload) : 0;
    return strlen(PRELOAD) + ours + 1 + strlen(preload_in(env)) + 1;
}

static char *const *complete(char *const env[], char **lines, char *preload) {
    const char *theirs = preload_in(env);
    char **next = lines;
    for (char *const *line = env; line && *line; line++) {
        if (!is_kept(*line)) {
            *next++ = *line;
        }
    }
    for (const char *const *one = settings_kept; *one; one++) {
        *next++ = (char *)*one;
    }
    if (settings_preload) {
        strcpy(preload, PRELOAD);
        if (!names_library(theirs)) {
            strcat(preload, settings_preload);
            strcat(preload, *theirs ? ":" : "");
        }
        strcat(preload, theirs);
        *next++ = preload;
    }
    *next = NULL;
    return lines;
}

/* On the caller's stack. */
#define COMPLETE(env) \
    complete((env), alloca(lines_needed(env) * sizeof(char *)), alloca(preload_needed(env)))

#define NEEDS_BENEATH(name)     \
    do {                        \
        if (!beneath.name) {    \
            errno = ENOSYS;     \
            return -1;          \
        }                       \
    } while (0)

EXPORT int execve(const char *path, char *const argv[], char *const env[]) {
    NEEDS_BENEATH(execve);
    return beneath.execve(path, argv, COMPLETE(env));
}

EXPORT int execv(const char *path, char *const argv[]) {
    return execve(path, argv, environ);
}

EXPORT int execvpe(const char *file, char *const argv[], char *const env[]) {
    NEEDS_BENEATH(execvpe);
    return beneath.execvpe(file, argv, COMPLETE(env));
}

EXPORT int execvp(const char *file, char *const argv[]) {
    return execvpe(file, argv, environ);
}

EXPORT int fexecve(int fd, char *const argv[], char *const env[]) {
    NEEDS_BENEATH(fexecve);
    return beneath.fexecve(fd, argv, COMPLETE(env));
}

EXPORT int execveat(int folder, const char *path, char *const argv[], char *const env[], int flags) {
    NEEDS_BENEATH(execveat);
    return beneath.execveat(folder, path, argv, COMPLETE(env), flags);
}

/* The words of a variadic call, and after them, for execle, the environment. */
#define WORDS(first, last)                                                  \
    va_list words;                                                          \
    size_t count = 1;                                                       \
    va_start(words, first);                                                 \
    while (va_arg(words, char *)) {                                         \
        count++;                                                            \
    }                                                                       \
    va_end(words);                                                          \
    char **argv = alloca((count + 1) * sizeof(char *));                     \
    va_start(words, first);                                                 \
    argv[0] = (char *)first;                                                \
    for (size_t i = 1; i <= count; i++) {                                   \
        argv[i] = va_arg(words, char *);                                    \
    }                                                                       \
    last;                                                                   \
    va_end(words)

EXPORT int execl(const char *path, const char *first, ...) {
    WORDS(first, (void)0);
    return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *first, ...) {
    WORDS(first, (void)0);
    return execvpe(file, argv, environ);
}

EXPORT int execle(const char *path, const char *first, ...) {
    WORDS(first, char *const *env = va_arg(words, char *const *));
    return execve(path, argv, env);
}

EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *restrict how, char *const argv[restrict], char *const env[restrict]) {
    if (!beneath.posix_spawn) {
        return ENOSYS;
    }
    return beneath.posix_spawn(pid, path, actions, how, argv, COMPLETE(env));
}

EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *restrict how, char *const argv[restrict], char *const env[restrict]) {
    if (!beneath.posix_spawnp) {
        return ENOSYS;
    }
    return beneath.posix_spawnp(pid, file, actions, how, argv, COMPLETE(env));
}

/* These two take the program's environment as it is, so what is missing there is put back. */
static void put_back(void) {
    for (const char *const *one = settings_kept; *one; one++) {
        char name[64];
        const char *value = strchr(*one, '=') + 1, *now;
        snprintf(name, sizeof name, "%.*s", (int)(value - *one - 1), *one);
        now = getenv(name);
        if (!now || strcmp(now, value) != 0) {
            setenv(name, value, 1);
        }
    }
    const char *theirs = preload_in(environ);
    if (settings_preload && !names_library(theirs)) {
        char *line = alloca(preload_needed(environ));
        strcpy(line, settings_preload);
        strcat(line, *theirs ? ":" : "");
        strcat(line, theirs);
        setenv("LD_PRELOAD", line, 1);
    }
}

EXPORT int system(const char *line) {
    NEEDS_BENEATH(system);
    put_back();
    return beneath.system(line);
}

EXPORT FILE *popen(const char *line, const char *mode) {
    if (!beneath.popen) {
        errno = ENOSYS;
        return NULL;
    }
    put_back();
    return beneath.popen(line, mode);
}
