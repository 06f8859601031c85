/* Memory that several processes hold: one allocates and exports it, others import it.
 *
 * It is counted once, with the process that allocated it, as long as that lives. When it dies and others still hold
 * what it exported, the memory is not gone: usage.c goes on counting it, up to what the others have imported.
 */
#define _GNU_SOURCE
#include "accounted.h"

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemHandle handle, int type, unsigned long long flags) {
    NEEDS(cuMemExportToShareableHandle);
    CUresult result = real.cuMemExportToShareableHandle(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS) {
        ledger_export(KIND_HANDLE, handle);
    }
    return result;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr) {
    NEEDS(cuIpcGetMemHandle);
    CUresult result = real.cuIpcGetMemHandle(out, ptr);
    if (result == CUDA_SUCCESS) {
        ledger_export(KIND_POINTER, ptr);
    }
    return result;
}

EXPORT CUresult cuMemPoolExportPointer(void *data, CUdeviceptr ptr) {
    NEEDS(cuMemPoolExportPointer);
    CUresult result = real.cuMemPoolExportPointer(data, ptr);
    if (result == CUDA_SUCCESS) {
        ledger_export(KIND_POINTER, ptr);
    }
    return result;
}

static void note_import(enum kind kind, uint64_t key, uint64_t bytes, CUcontext context) {
    struct gpu *gpu = gpu_current();
    if (gpu) {
        usage_add(gpu->usage_index, ACCOUNT_IMPORTED, bytes);
        ledger_add(kind, key, bytes,
                   (struct holding){.gpu = gpu, .bytes = bytes, .context = context, .account = ACCOUNT_IMPORTED});
    }
}

static uint64_t size_of(CUdeviceptr ptr) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    return real.cuMemGetAddressRange_v2 && real.cuMemGetAddressRange_v2(&base, &bytes, ptr) == CUDA_SUCCESS ? bytes : 0;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemHandle *out, void *shareable, int type) {
    NEEDS(cuMemImportFromShareableHandle);
    CUresult result = real.cuMemImportFromShareableHandle(out, shareable, type);
    if (result == CUDA_SUCCESS && out) {
        note_import(KIND_HANDLE, *out, 0, NULL);
    }
    return result;
}

void import_mapped(CUmemHandle handle, uint64_t bytes) {
    ledger_size_import(KIND_HANDLE, handle, bytes);
}

#define OPENS(name)                                                                          \
    EXPORT CUresult name(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {          \
        NEEDS(name);                                                                         \
        CUresult result = real.name(out, handle, flags);                                     \
        if (result == CUDA_SUCCESS && out) {                                                 \
            note_import(KIND_POINTER, *out, size_of(*out), context_seen());                  \
        }                                                                                    \
        return result;                                                                       \
    }
OPENS(cuIpcOpenMemHandle)
OPENS(cuIpcOpenMemHandle_v2)

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr ptr) {
    NEEDS(cuIpcCloseMemHandle);
    RELEASED(KIND_POINTER, ptr, real.cuIpcCloseMemHandle(ptr));
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, void *data) {
    NEEDS(cuMemPoolImportPointer);
    CUresult result = real.cuMemPoolImportPointer(out, pool, data);
    if (result == CUDA_SUCCESS && out) {
        note_import(KIND_POINTER, *out, size_of(*out), context_seen());
    }
    return result;
}
