/* Code brings memory with it: static arrays of a module, and the heap that device code allocates from.
 *
 * The driver does not say how large a module's arrays are, so what is free before and after is compared, less what the
 * job itself took meanwhile. A neighbour that allocates in that moment is counted in: too much is the safe side.
 */
#define _GNU_SOURCE
#include "accounted.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one at a time, or each would count the other's */

struct before {
    struct gpu *gpu;
    uint64_t free_bytes, used_bytes;
};

static uint64_t free_now(void) {
    size_t free_bytes = 0, total = 0;
    int mode = flight_relax();
    CUresult result = real.cuMemGetInfo_v2 ? real.cuMemGetInfo_v2(&free_bytes, &total) : CUDA_ERROR_NOT_SUPPORTED;
    flight_restore(mode);
    return result == CUDA_SUCCESS ? free_bytes : 0;
}

static struct before look(void) {
    CUcontext context = context_seen();
    struct gpu *gpu = context ? gpu_current() : NULL; /* without a context nothing is loaded yet */
    return (struct before){gpu, gpu ? free_now() : 0, gpu ? quota_used(gpu) : 0};
}

static uint64_t taken_since(const struct before *before) {
    int64_t gone = (int64_t)(before->free_bytes - free_now());
    int64_t own = (int64_t)(quota_used(before->gpu) - before->used_bytes);
    return gone > own ? (uint64_t)(gone - own) : 0;
}

/* `undo` takes it back if it does not fit. */
#define MEASURED(kind, out, call, undo)                                                      \
    do {                                                                                     \
        pthread_mutex_lock(&lock);                                                           \
        struct before before = look();                                                       \
        CUresult result = call;                                                              \
        uint64_t bytes = result == CUDA_SUCCESS && before.gpu ? taken_since(&before) : 0;    \
        if (bytes && !quota_reserve(before.gpu, bytes)) {                                    \
            undo;                                                                            \
            result = CUDA_ERROR_OUT_OF_MEMORY;                                               \
        } else if (bytes) {                                                                  \
            ledger_grow(kind, (uint64_t)(uintptr_t)(out), before.gpu, bytes);                \
        }                                                                                    \
        pthread_mutex_unlock(&lock);                                                         \
        return result;                                                                       \
    } while (0)

EXPORT CUresult cuModuleLoad(CUmodule *out, const char *path) {
    NEEDS(cuModuleLoad);
    MEASURED(KIND_MODULE, *out, real.cuModuleLoad(out, path), real.cuModuleUnload(*out));
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    NEEDS(cuModuleLoadData);
    MEASURED(KIND_MODULE, *out, real.cuModuleLoadData(out, image), real.cuModuleUnload(*out));
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, int *options, void **values) {
    NEEDS(cuModuleLoadDataEx);
    MEASURED(KIND_MODULE, *out, real.cuModuleLoadDataEx(out, image, count, options, values), real.cuModuleUnload(*out));
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image) {
    NEEDS(cuModuleLoadFatBinary);
    MEASURED(KIND_MODULE, *out, real.cuModuleLoadFatBinary(out, image), real.cuModuleUnload(*out));
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    NEEDS(cuModuleUnload);
    RELEASED(KIND_MODULE, (uintptr_t)module, real.cuModuleUnload(module));
}

#define LIBRARY_ARGS int *jit, void **jit_values, unsigned jit_count, int *how, void **how_values, unsigned how_count
#define LIBRARY_NAMES jit, jit_values, jit_count, how, how_values, how_count

EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *image, LIBRARY_ARGS) {
    NEEDS(cuLibraryLoadData);
    MEASURED(KIND_LIBRARY, *out, real.cuLibraryLoadData(out, image, LIBRARY_NAMES), real.cuLibraryUnload(*out));
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, LIBRARY_ARGS) {
    NEEDS(cuLibraryLoadFromFile);
    MEASURED(KIND_LIBRARY, *out, real.cuLibraryLoadFromFile(out, path, LIBRARY_NAMES), real.cuLibraryUnload(*out));
}

/* A library is put on a GPU with the first of its modules that somebody asks for there. */
EXPORT CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library) {
    NEEDS(cuLibraryGetModule);
    MEASURED(KIND_LIBRARY, library, real.cuLibraryGetModule(out, library), (void)0);
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    NEEDS(cuLibraryUnload);
    RELEASED(KIND_LIBRARY, (uintptr_t)library, real.cuLibraryUnload(library));
}

/* ---- the heap and the print buffer of device code: taken whole with the next launch ---- */

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    NEEDS(cuCtxSetLimit);
    CUcontext context = context_seen();
    struct gpu *gpu = context ? gpu_current() : NULL;
    if (!gpu || (limit != CU_LIMIT_MALLOC_HEAP && limit != CU_LIMIT_PRINTF_FIFO)) {
        return real.cuCtxSetLimit(limit, value);
    }
    uint64_t key = (uint64_t)(uintptr_t)context + (unsigned)limit; /* contexts are further apart than that */
    struct entry *earlier = ledger_take(KIND_LIMIT, key);
    CUresult result = quota_reserve(gpu, value) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && (result = real.cuCtxSetLimit(limit, value)) != CUDA_SUCCESS) {
        quota_give_back(gpu, value);
    }
    if (result != CUDA_SUCCESS) {
        ledger_put_back(earlier);
        return result;
    }
    ledger_drop(earlier);
    ledger_add(KIND_LIMIT, key, value, (struct holding){.gpu = gpu, .bytes = value, .context = context});
    return result;
}

void modules_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}
