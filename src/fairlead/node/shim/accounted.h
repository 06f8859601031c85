/* The two shapes of most hooks that take memory and give it back. */
#ifndef FAIRLEAD_ACCOUNTED_H
#define FAIRLEAD_ACCOUNTED_H

#include "shim.h"

static inline void hold_memory(enum kind kind, uint64_t key, struct gpu *gpu, uint64_t bytes, CUcontext context) {
    ledger_add(kind, key, bytes, (struct holding){.gpu = gpu, .bytes = bytes, .context = context});
}

/* Calls the driver for `bytes` of the current GPU; `call` sets `result`. */
#define ACCOUNTED(kind, out, bytes, call)                                                                          \
    do {                                                                                                           \
        struct gpu *gpu = gpu_current();                                                                           \
        if (!gpu || !(out)) {                                                                                      \
            return call;                                                                                           \
        }                                                                                                          \
        CUcontext context = context_seen();                                                                        \
        uint64_t wanted = (bytes);                                                                                 \
        if (!quota_reserve(gpu, wanted)) {                                                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                       \
        }                                                                                                          \
        CUresult result = call;                                                                                    \
        if (result != CUDA_SUCCESS) {                                                                              \
            quota_give_back(gpu, wanted);                                                                          \
        } else {                                                                                                   \
            hold_memory(kind, (uint64_t)*(out), gpu, wanted, context);                                             \
        }                                                                                                          \
        return result;                                                                                             \
    } while (0)

#define RELEASED(kind, key, call)                                  \
    do {                                                           \
        struct entry *entry = ledger_take(kind, (uint64_t)(key));  \
        CUresult result = call;                                    \
        if (result == CUDA_SUCCESS) {                              \
            ledger_drop(entry);                                    \
        } else {                                                   \
            ledger_put_back(entry);                                \
        }                                                          \
        return result;                                             \
    } while (0)

#endif
