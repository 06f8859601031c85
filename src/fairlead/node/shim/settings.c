/* The environment as it was when the program was loaded.
 *
 * The agent's settings come by environment variables, and a program can change those before it uses CUDA, or for the
 * programs that it starts. So they are copied before the program's first line runs, and exec.c gives them to children.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* What a child must not lose: the shim's own, by which the agent finds its processes, and MPS's way in and limit. */
static const char *const names[] = {
    "FAIRLEAD_SHIM_PAGE",    "FAIRLEAD_SHIM_USAGE",   "FAIRLEAD_SHIM_QUOTA",      "FAIRLEAD_SHIM_LOG",
    "FAIRLEAD_SHIM_DRAIN_S", "FAIRLEAD_SHIM_GRACE_S", "FAIRLEAD_LAUNCH",          "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "FAIRLEAD_SHIM_BUSY",
};
#define NAMES (sizeof names / sizeof names[0])

static const char *values[NAMES]; /* "NAME=value" */
static const char *kept[NAMES + 1];
const char *const *settings_kept = kept;
const char *settings_preload, *settings_library;

static char *joined(const char *name, const char *value) {
    size_t length = strlen(name);
    char *made = malloc(length + strlen(value) + 2);
    if (made) {
        memcpy(made, name, length);
        made[length] = '=';
        strcpy(made + length + 1, value);
    }
    return made;
}

/* The word of LD_PRELOAD that is this library. */
static char *own_word(const char *preload) {
    Dl_info info;
    if (!dladdr((const void *)&settings_kept, &info) || !info.dli_fname) {
        return NULL;
    }
    const char *slash = strrchr(info.dli_fname, '/'), *base = slash ? slash + 1 : info.dli_fname;
    for (const char *at = preload; *at;) {
        size_t length = strcspn(at, ": ");
        size_t tail = strlen(base);
        if (length >= tail && strncmp(at + length - tail, base, tail) == 0) {
            return strndup(at, length);
        }
        at += length + (at[length] != 0);
    }
    return NULL;
}

static void remember(void) {
    int count = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        const char *value = getenv(names[i]);
        values[i] = value ? joined(names[i], value) : NULL;
        if (values[i]) {
            kept[count++] = values[i];
        }
    }
    const char *preload = getenv("LD_PRELOAD");
    settings_library = preload ? own_word(preload) : NULL;
    settings_preload = settings_library ? strdup(preload) : NULL;
}

/* Before the program, and before the constructors of its libraries unless one of them uses CUDA. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __attribute__((constructor(101))) void at_load(void) {
    pthread_once(&once, remember);
}

const char *setting(const char *name) {
    pthread_once(&once, remember);
    for (unsigned i = 0; i < NAMES; i++) {
        if (strcmp(names[i], name) == 0) {
            return values[i] ? values[i] + strlen(name) + 1 : NULL;
        }
    }
    return NULL;
}

double setting_s(const char *name, double otherwise) {
    const char *text = setting(name);
    if (!text || !*text) {
        return otherwise;
    }
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 86400)) {
        log_line("%s is %s, not seconds from 0 to 86400; %g holds", name, text, otherwise);
        return otherwise;
    }
    return value;
}
