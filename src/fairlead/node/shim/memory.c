/* Hooks of every call that takes or gives back device memory, and of those that tell how much there is.
 *
 * Reserve first, then ask the driver, give back if it refuses: however threads and processes race, what the driver has
 * granted never passes the quota.
 */
#define _GNU_SOURCE
#include "shim.h"

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
            ledger_add(kind, (uint64_t)*(out), wanted, (struct holding){gpu, wanted, context, 1});                 \
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

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned bytes) {
    NEEDS(cuMemAlloc);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAlloc(out, bytes));
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    NEEDS(cuMemAlloc_v2);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAlloc_v2(out, bytes));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    NEEDS(cuMemAllocManaged);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAllocManaged(out, bytes, flags));
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    NEEDS(cuMemAllocAsync);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAllocAsync(out, bytes, stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream) {
    NEEDS(cuMemAllocAsync_ptsz);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAllocAsync_ptsz(out, bytes, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    NEEDS(cuMemAllocFromPoolAsync);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAllocFromPoolAsync(out, bytes, pool, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    NEEDS(cuMemAllocFromPoolAsync_ptsz);
    ACCOUNTED(KIND_POINTER, out, bytes, real.cuMemAllocFromPoolAsync_ptsz(out, bytes, pool, stream));
}

/* The pitch is the driver's choice, so the size is known only afterwards. The guess is the width rounded up to
 * 512; where it is more, the rest is reserved then, and the allocation taken back if it does not fit. */
static uint64_t pitch_guess(uint64_t width, uint64_t height) {
    return (width + 511) / 512 * 512 * height;
}

static bool pitch_settle(struct gpu *gpu, uint64_t reserved, uint64_t actual) {
    if (actual <= reserved) {
        quota_give_back(gpu, reserved - actual);
        return true;
    }
    return quota_reserve(gpu, actual - reserved);
}

#define PITCHED(out, pitch, width, height, call, undo)                                                        \
    do {                                                                                                      \
        struct gpu *gpu = gpu_current();                                                                      \
        if (!gpu || !(out) || !(pitch)) {                                                                     \
            return call;                                                                                      \
        }                                                                                                     \
        CUcontext context = context_seen();                                                                   \
        uint64_t reserved = pitch_guess(width, height);                                                       \
        if (!quota_reserve(gpu, reserved)) {                                                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                  \
        }                                                                                                     \
        CUresult result = call;                                                                               \
        uint64_t actual = result == CUDA_SUCCESS ? (uint64_t)*(pitch) * (height) : 0;                         \
        if (!pitch_settle(gpu, reserved, actual)) {                                                           \
            undo;                                                                                             \
            quota_give_back(gpu, reserved);                                                                   \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                  \
        }                                                                                                     \
        if (result == CUDA_SUCCESS) {                                                                         \
            ledger_add(KIND_POINTER, (uint64_t)*(out), actual, (struct holding){gpu, actual, context, 1});    \
        }                                                                                                     \
        return result;                                                                                        \
    } while (0)

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned *pitch, unsigned width, unsigned height,
                                unsigned element) {
    NEEDS(cuMemAllocPitch);
    PITCHED(out, pitch, width, height, real.cuMemAllocPitch(out, pitch, width, height, element), real.cuMemFree(*out));
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    NEEDS(cuMemAllocPitch_v2);
    PITCHED(out, pitch, width, height, real.cuMemAllocPitch_v2(out, pitch, width, height, element),
            real.cuMemFree_v2(*out));
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 ptr) {
    NEEDS(cuMemFree);
    RELEASED(KIND_POINTER, ptr, real.cuMemFree(ptr));
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr) {
    NEEDS(cuMemFree_v2);
    RELEASED(KIND_POINTER, ptr, real.cuMemFree_v2(ptr));
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream) {
    NEEDS(cuMemFreeAsync);
    RELEASED(KIND_POINTER, ptr, real.cuMemFreeAsync(ptr, stream));
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream) {
    NEEDS(cuMemFreeAsync_ptsz);
    RELEASED(KIND_POINTER, ptr, real.cuMemFreeAsync_ptsz(ptr, stream));
}

/* ---- virtual memory management ---- */

EXPORT CUresult cuMemCreate(CUmemHandle *out, size_t bytes, const CUmemProp *prop, unsigned long long flags) {
    NEEDS(cuMemCreate);
    struct gpu *gpu = prop && prop->location.type == CU_LOCATION_DEVICE ? gpu_by_ordinal(prop->location.id) : NULL;
    if (!gpu || !out) {
        return real.cuMemCreate(out, bytes, prop, flags); /* memory of the host */
    }
    context_seen();
    if (!quota_reserve(gpu, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real.cuMemCreate(out, bytes, prop, flags);
    if (result != CUDA_SUCCESS) {
        quota_give_back(gpu, bytes);
    } else {
        ledger_add(KIND_HANDLE, *out, bytes, (struct holding){gpu, bytes, NULL, 1});
    }
    return result;
}

EXPORT CUresult cuMemRelease(CUmemHandle handle) {
    NEEDS(cuMemRelease);
    RELEASED(KIND_HANDLE, handle, real.cuMemRelease(handle));
}

EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long flags) {
    NEEDS(cuMemMap);
    CUresult result = real.cuMemMap(ptr, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS) {
        ledger_share(KIND_HANDLE, handle, KIND_MAPPING, ptr, bytes);
    }
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes) {
    NEEDS(cuMemUnmap);
    CUresult result = real.cuMemUnmap(ptr, bytes);
    /* One call may end several mappings side by side. The addresses stay reserved: nobody else gets them meanwhile. */
    for (CUdeviceptr at = ptr; result == CUDA_SUCCESS && at < ptr + bytes;) {
        struct entry *entry = ledger_take(KIND_MAPPING, at);
        if (!entry) {
            break;
        }
        at += entry_span(entry);
        ledger_drop(entry);
    }
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle *out, void *address) {
    NEEDS(cuMemRetainAllocationHandle);
    CUresult result = real.cuMemRetainAllocationHandle(out, address);
    uint64_t start = 0;
    if (result == CUDA_SUCCESS && out && ledger_find_mapping((uint64_t)(uintptr_t)address, &start)) {
        ledger_share(KIND_MAPPING, start, KIND_HANDLE, *out, 0);
    }
    return result;
}

/* ---- arrays ---- */

static uint64_t element_bytes(int format, unsigned channels) {
    switch (format) {
    case 0x01: /* 8 bit */
    case 0x08:
        return channels;
    case 0x02: /* 16 bit, half */
    case 0x09:
    case 0x10:
        return 2ull * channels;
    default: /* 32 bit, and formats that pack less into as much: too much counted is the safe side */
        return 4ull * channels;
    }
}

static uint64_t at_least_one(uint64_t n) {
    return n ? n : 1;
}

static uint64_t array_bytes(const CUarray3DDesc *desc, unsigned levels) {
    if (desc->flags & (CU_ARRAY3D_SPARSE | CU_ARRAY3D_DEFERRED)) {
        return 0; /* memory comes later, by cuMemCreate */
    }
    uint64_t total = 0, width = at_least_one(desc->width), height = at_least_one(desc->height);
    uint64_t depth = at_least_one(desc->depth);
    for (unsigned level = 0; level < at_least_one(levels); level++) {
        total += width * height * depth * element_bytes(desc->format, desc->channels);
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        if (!(desc->flags & (CU_ARRAY3D_LAYERED | CU_ARRAY3D_CUBEMAP))) {
            depth = at_least_one(depth / 2);
        }
    }
    return total;
}

EXPORT CUresult cuArrayCreate(CUarray *out, const CUarrayDesc_v1 *desc) {
    NEEDS(cuArrayCreate);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, 0, desc->format, desc->channels, 0};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArrayCreate(out, desc));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *desc) {
    NEEDS(cuArrayCreate_v2);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, 0, desc->format, desc->channels, 0};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArrayCreate_v2(out, desc));
}

EXPORT CUresult cuArray3DCreate(CUarray *out, const CUarray3DDesc_v1 *desc) {
    NEEDS(cuArray3DCreate);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, desc->depth, desc->format, desc->channels, desc->flags};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArray3DCreate(out, desc));
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *desc) {
    NEEDS(cuArray3DCreate_v2);
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(desc, 1) : 0, real.cuArray3DCreate_v2(out, desc));
}

EXPORT CUresult cuArrayDestroy(CUarray array) {
    NEEDS(cuArrayDestroy);
    RELEASED(KIND_ARRAY, (uintptr_t)array, real.cuArrayDestroy(array));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUarray3DDesc *desc, unsigned levels) {
    NEEDS(cuMipmappedArrayCreate);
    ACCOUNTED(KIND_MIPMAP, out, desc ? array_bytes(desc, levels) : 0, real.cuMipmappedArrayCreate(out, desc, levels));
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    NEEDS(cuMipmappedArrayDestroy);
    RELEASED(KIND_MIPMAP, (uintptr_t)array, real.cuMipmappedArrayDestroy(array));
}

/* ---- how much there is ---- */

static void show_quota(const struct gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes) {
    if (!gpu->quota_bytes) {
        return;
    }
    uint64_t used = quota_used(gpu), left = used < gpu->quota_bytes ? gpu->quota_bytes - used : 0;
    *total_bytes = *total_bytes < gpu->quota_bytes ? *total_bytes : gpu->quota_bytes;
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
        if (gpu && gpu->quota_bytes && gpu->quota_bytes < *bytes) {                                  \
            *bytes = (type)gpu->quota_bytes;                                                         \
        }                                                                                            \
        return result;                                                                               \
    }
TOTAL(unsigned, cuDeviceTotalMem)
TOTAL(size_t, cuDeviceTotalMem_v2)

/* ---- the end of a context is the end of its memory ---- */

static void context_gone(CUcontext context) {
    if (context) {
        flight_forget_context(context);
        ledger_forget_context(context);
        context_forget(context);
    }
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
            context_gone(context);                       \
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
            context_gone(context);                                                                       \
        }                                                                                                \
        return result;                                                                                   \
    }
RELEASES(cuDevicePrimaryCtxRelease)
RELEASES(cuDevicePrimaryCtxRelease_v2)
