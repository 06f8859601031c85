/* An interposer that asks for what lies beneath itself: the answer depends on who asks. */
#define _GNU_SOURCE
#include <dlfcn.h>

long atol(const char *text) {
    long (*beneath)(const char *) = (long (*)(const char *))dlsym(RTLD_NEXT, "atol");
    return beneath == atol ? -1 : beneath(text) + 1;
}
