/* The ways to find a function of the driver: dlsym, dlvsym, cuGetProcAddress. (The fourth, linking it, needs nothing:
 * a preloaded library comes first.)
 *
 * dlsym must stay exact for everybody else. RTLD_NEXT, and RTLD_DEFAULT from a privately loaded library, depend on *who
 * asks*, which libc reads off the return address. So a name that is none of ours is passed on by a tail call: the
 * return address stays the caller's. That needs optimisation, which the build always has; a test checks RTLD_NEXT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "shim.h"

void *nvml_to_hook(void *handle, const char *name, void *pointer);

static bool is_ours(void *handle, const char *name) {
    if (!name || handle == RTLD_NEXT) {
        return false; /* another interposer is looking for what is beneath itself */
    }
    return (name[0] == 'c' && name[1] == 'u' && real_knows_name(name)) ||
           strncmp(name, "nvmlDeviceGetMemoryInfo", 23) == 0 ||
           strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0;
}

static __attribute__((noinline)) void *translate(void *handle, const char *name, void *found) {
    if (!found) {
        return NULL;
    }
    if (found == (void *)real_dlsym()) {
        return (void *)dlsym;
    }
    if (found == (void *)real_dlvsym()) {
        return (void *)dlvsym;
    }
    if (name[0] == 'n') {
        return nvml_to_hook(handle, name, found);
    }
    if (real_is_hook(found)) {
        /* Found in the global scope, where we stand first. Without a driver the honest answer is "no such symbol". */
        return real_ready() ? found : real_dlsym()(RTLD_NEXT, name);
    }
    return real_ready() ? real_to_hook(found) : found;
}

#ifndef FAIRLEAD_SANITIZED /* a sanitizer's runtime looks its own functions up before it can run instrumented code */
EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
    dlsym_t call = real_dlsym();
    if (LIKELY(!is_ours(handle, name))) {
        return call(handle, name);
    }
    return translate(handle, name, call(handle, name));
}

EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version) {
    dlvsym_t call = real_dlvsym();
    if (LIKELY(!is_ours(handle, name))) {
        return call(handle, name, version);
    }
    return translate(handle, name, call(handle, name, version));
}

#endif

static void map_found(const char *symbol, void **out, int version, uint64_t flags) {
    void *hook = real_to_hook(*out);
    if (hook == *out && !real_is_hook(*out) && symbol && real_knows_name(symbol)) {
        log_line("%s, version %d, flags %llu: a variant that is not hooked", symbol, version,
                 (unsigned long long)flags);
        COUNT(unhooked, 1);
    }
    *out = hook;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
    NEEDS(cuGetProcAddress);
    CUresult result = real.cuGetProcAddress(symbol, out, version, flags);
    if (result == CUDA_SUCCESS && out && *out) {
        map_found(symbol, out, version, flags);
    }
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    NEEDS(cuGetProcAddress_v2);
    CUresult result = real.cuGetProcAddress_v2(symbol, out, version, flags, status);
    if (result == CUDA_SUCCESS && out && *out) {
        map_found(symbol, out, version, flags);
    }
    return result;
}

EXPORT CUresult cuInit(unsigned flags) {
    NEEDS(cuInit);
    CUresult result = real.cuInit(flags);
    if (result == CUDA_SUCCESS && !is_observed()) { /* how a service ends is its own affair */
        signals_arm();
    }
    return result;
}
