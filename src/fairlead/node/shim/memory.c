/* Hooks of every call that takes or gives back device memory, and of those that tell how much there is.
 *
 * Reserve first, then ask the driver, give back if it refuses: however threads and processes race, what the driver has
 * granted never passes the quota.
 */
#define _GNU_SOURCE
#include "accounted.h"

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

/* ---- in stream order, from a pool ---- */

struct ordered { /* one such allocation */
    struct gpu *gpu;
    struct pool *pool; /* NULL: it is counted by itself */
    void *graph;       /* of a capture: the memory is the graph's */
    bool is_captured;
    uint64_t bytes;
};

static bool ordered_begin(struct ordered *one, CUmemoryPool handle, CUstream stream) {
    one->is_captured = flight_capturing(stream);
    one->graph = one->is_captured ? graph_captured(stream) : NULL;
    one->pool = one->is_captured ? NULL : pool_of(one->gpu, handle ? handle : pool_current(one->gpu));
    return one->pool ? pool_reserve(one->pool, one->bytes) : quota_reserve(one->gpu, one->bytes);
}

static void ordered_undo(const struct ordered *one) {
    if (one->pool) {
        pool_give_back(one->pool, one->bytes);
        pools_shrink(one->gpu); /* it may have grown for this */
    } else {
        quota_give_back(one->gpu, one->bytes);
    }
}

/* The driver has granted it; false if the pool has grown past the quota by it. */
static bool ordered_end(const struct ordered *one, CUdeviceptr ptr) {
    if (one->is_captured) { /* without a known graph it stays counted: too much is the safe side */
        if (one->graph) {
            ledger_grow(KIND_GRAPH, (uint64_t)(uintptr_t)one->graph, one->gpu, one->bytes);
        }
        return true;
    }
    if (one->pool && !pool_fits(one->pool)) {
        return false;
    }
    ledger_add(KIND_POINTER, ptr, one->bytes,
               (struct holding){.gpu = one->gpu, .bytes = one->bytes, .context = context_seen(), .pool = one->pool});
    return true;
}

#define ORDERED(pool, stream, call, undo)                                          \
    do {                                                                           \
        struct ordered one = {.gpu = gpu_current(), .bytes = bytes};               \
        if (!one.gpu || !out) {                                                    \
            return call;                                                           \
        }                                                                          \
        context_seen();                                                            \
        if (!ordered_begin(&one, (pool), (stream))) {                              \
            return CUDA_ERROR_OUT_OF_MEMORY;                                       \
        }                                                                          \
        CUresult result = call;                                                    \
        if (result != CUDA_SUCCESS) {                                              \
            ordered_undo(&one);                                                    \
        } else if (!ordered_end(&one, *out)) {                                     \
            undo;                                                                  \
            ordered_undo(&one);                                                    \
            return CUDA_ERROR_OUT_OF_MEMORY;                                       \
        }                                                                          \
        return result;                                                             \
    } while (0)

#define ALLOC_ASYNC(name, free_name, on)                                                                       \
    EXPORT CUresult name(CUdeviceptr *out, size_t bytes, CUstream stream) {                                    \
        NEEDS(name);                                                                                           \
        ORDERED(NULL, on(stream), real.name(out, bytes, stream), real.free_name(*out, stream));                \
    }
ALLOC_ASYNC(cuMemAllocAsync, cuMemFreeAsync, LEGACY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz, PER_THREAD)

#define ALLOC_FROM_POOL(name, free_name, on)                                                                   \
    EXPORT CUresult name(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {                 \
        NEEDS(name);                                                                                           \
        ORDERED(pool, on(stream), real.name(out, bytes, pool, stream), real.free_name(*out, stream));          \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, cuMemFreeAsync, LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz, PER_THREAD)

/* ---- pitched ---- */

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
            hold_memory(KIND_POINTER, (uint64_t)*(out), gpu, actual, context);                                \
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
        hold_memory(KIND_HANDLE, *out, gpu, bytes, NULL);
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
        import_mapped(handle, offset + bytes);
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
