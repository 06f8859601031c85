/* Hooks of the calls that tell how much memory there is: they tell the quota. */
#define _GNU_SOURCE
#include "shim.h"

static void show_quota(const struct gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes) {
    uint64_t quota = quota_now(gpu);
    if (!quota) {
        return;
    }
    uint64_t used = quota_used(gpu), left = used < quota ? quota - used : 0;
    *total_bytes = *total_bytes < quota ? *total_bytes : quota;
    *free_bytes = *free_bytes < left ? *free_bytes : left;
}

#define SHOWN(type, name)                                                        \
    EXPORT CUresult name(type *free_bytes, type *total_bytes) {                  \
        NEEDS(name);                                                             \
        CUresult result = real.name(free_bytes, total_bytes);                    \
        struct gpu *gpu = result == CUDA_SUCCESS ? gpu_current() : NULL;         \
        if (gpu && free_bytes && total_bytes) {                                  \
            uint64_t free_now = *free_bytes, total = *total_bytes;               \
            show_quota(gpu, &free_now, &total);                                  \
            *free_bytes = (type)free_now;                                        \
            *total_bytes = (type)total;                                          \
        }                                                                        \
        return result;                                                           \
    }
SHOWN(unsigned, cuMemGetInfo)
SHOWN(size_t, cuMemGetInfo_v2)

#define TOTAL(type, name)                                                                            \
    EXPORT CUresult name(type *bytes, CUdevice device) {                                             \
        NEEDS(name);                                                                                 \
        CUresult result = real.name(bytes, device);                                                  \
        struct gpu *gpu = result == CUDA_SUCCESS && bytes ? gpu_by_ordinal(device) : NULL;           \
        uint64_t quota = gpu ? quota_now(gpu) : 0;                                                   \
        if (quota && quota < *bytes) {                                                               \
            *bytes = (type)quota;                                                                    \
        }                                                                                            \
        return result;                                                                               \
    }
TOTAL(unsigned, cuDeviceTotalMem)
TOTAL(size_t, cuDeviceTotalMem_v2)
