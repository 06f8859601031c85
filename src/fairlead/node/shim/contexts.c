/* Hooks of the calls that end a context: that is the end of its memory. */
#define _GNU_SOURCE
#include "shim.h"

static void context_gone(CUcontext context) {
    if (context) {
        flight_forget_context(context);
        ledger_forget_context(context);
        context_forget(context);
    }
}

static void primary_gone(CUdevice device, CUcontext context) {
    struct gpu *gpu = gpu_by_ordinal(device);
    if (gpu) {
        pools_forget(gpu);
    }
    context_gone(context);
}

#define DESTROYS(name)                                                               \
    EXPORT CUresult name(CUcontext context) {                                        \
        NEEDS(name);                                                                 \
        flight_forget_context(context); /* before: its events die with it */         \
        CUresult result = real.name(context);                                        \
        if (result == CUDA_SUCCESS) {                                                \
            context_gone(context);                                                   \
        }                                                                            \
        return result;                                                               \
    }
DESTROYS(cuCtxDestroy)
DESTROYS(cuCtxDestroy_v2)

#define RESETS(name)                                     \
    EXPORT CUresult name(CUdevice device) {              \
        NEEDS(name);                                     \
        CUcontext context = context_primary(device);     \
        flight_forget_context(context);                  \
        CUresult result = real.name(device);             \
        if (result == CUDA_SUCCESS) {                    \
            primary_gone(device, context);               \
        }                                                \
        return result;                                   \
    }
RESETS(cuDevicePrimaryCtxReset)
RESETS(cuDevicePrimaryCtxReset_v2)

/* Releasing gives up one of several references; whether it was the last one, the driver knows. */
#define RELEASES(name)                                                                                   \
    EXPORT CUresult name(CUdevice device) {                                                              \
        NEEDS(name);                                                                                     \
        CUcontext context = context_primary(device);                                                     \
        flight_forget_context(context);                                                                  \
        CUresult result = real.name(device);                                                             \
        unsigned flags = 0;                                                                              \
        int active = 1;                                                                                  \
        if (result == CUDA_SUCCESS && real.cuDevicePrimaryCtxGetState &&                                 \
            real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active) {       \
            primary_gone(device, context);                                                               \
        }                                                                                                \
        return result;                                                                                   \
    }
RELEASES(cuDevicePrimaryCtxRelease)
RELEASES(cuDevicePrimaryCtxRelease_v2)
