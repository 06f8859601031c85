/* The few declarations of the CUDA driver API and of NVML that the shim needs.
 *
 * The shim is built without the CUDA toolkit and never links the driver, so it states the types itself. Every handle is
 * an opaque pointer; enums have the size of int in this ABI. Only what is hooked or called is declared.
 */
#ifndef FAIRLEAD_DRIVER_H
#define FAIRLEAD_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUmemHandle;
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUevent;
typedef void *CUfunction;
typedef void *CUgraphExec;
typedef void *CUarray;
typedef void *CUmipmappedArray;
typedef void *CUmemoryPool;
typedef void *CUmodule;
typedef void *CUlibrary;
typedef void *CUgraph;
typedef void *CUgraphNode;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum { CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_CAPTURE_STATUS_NONE = 0 };
enum { CU_CAPTURE_MODE_RELAXED = 2 };
enum { CU_LOCATION_DEVICE = 1 };
enum { CU_GET_PROC_LEGACY_STREAM = 1, CU_GET_PROC_PER_THREAD_STREAM = 2 };

enum { CU_POOL_RESERVED_BYTES = 5 };
enum { CU_LIMIT_PRINTF_FIFO = 1, CU_LIMIT_MALLOC_HEAP = 2 };
enum { CU_NODE_MEM_ALLOC = 10 };

#define CU_STREAM_PER_THREAD ((CUstream)0x2)

typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    unsigned int width, height;
    int format;
    unsigned int channels;
} CUarrayDesc_v1;

typedef struct {
    size_t width, height;
    int format;
    unsigned int channels;
} CUarrayDesc;

typedef struct {
    unsigned int width, height, depth;
    int format;
    unsigned int channels, flags;
} CUarray3DDesc_v1;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned int channels, flags;
} CUarray3DDesc;

enum { CU_ARRAY3D_LAYERED = 0x01, CU_ARRAY3D_CUBEMAP = 0x04, CU_ARRAY3D_SPARSE = 0x40, CU_ARRAY3D_DEFERRED = 0x80 };

/* The head of CUmemAllocationProp; what follows is not read. */
typedef struct {
    int type, requested_handle_types;
    struct {
        int type, id;
    } location;
} CUmemProp;

/* An allocation node: the pool's properties, of which only the place is read, then the rest. */
typedef struct {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    unsigned char properties[72];
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr ptr;
} CUmemAllocNodeParams;

/* Any node, of which only allocations are read. */
typedef struct {
    int type, reserved[3];
    CUmemAllocNodeParams alloc;
} CUgraphNodeParams;

typedef struct {
    char bytes[64];
} CUipcMemHandle;

/* The ends of the two descriptions of a copy. */
typedef struct {
    uint64_t places[14];
    size_t width_bytes, height;
} CUcopy2D;

typedef struct {
    uint64_t places[22];
    size_t width_bytes, height, depth;
} CUcopy3D;

_Static_assert(offsetof(CUmemAllocNodeParams, bytes) == 104, "CUDA_MEM_ALLOC_NODE_PARAMS");

typedef struct {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    void *attributes;
    unsigned int attribute_count;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    void **params;
} CUlaunchParams;

#define LAUNCH_ARGS                                                                                             \
    CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
        CUstream stream, void **params

/* Hooked: the program's calls arrive here. */
CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);
CUresult cuInit(unsigned flags);

CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned bytes);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned *pitch, unsigned width, unsigned height, unsigned element);
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFree(CUdeviceptr_v1 ptr);
CUresult cuMemFree_v2(CUdeviceptr ptr);
CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream);
CUresult cuMemCreate(CUmemHandle *out, size_t bytes, const CUmemProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemHandle handle);
CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes);
CUresult cuMemRetainAllocationHandle(CUmemHandle *out, void *address);
CUresult cuArrayCreate(CUarray *out, const CUarrayDesc_v1 *desc);
CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *desc);
CUresult cuArray3DCreate(CUarray *out, const CUarray3DDesc_v1 *desc);
CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *desc);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUarray3DDesc *desc, unsigned levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);
CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemExportToShareableHandle(void *shareable, CUmemHandle handle, int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemHandle *out, void *shareable, int type);
CUresult cuMemPoolExportPointer(void *data, CUdeviceptr ptr);
CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, void *data);
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr);
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr ptr);
CUresult cuModuleLoad(CUmodule *out, const char *path);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, int *options, void **values);
CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuLibraryLoadData(CUlibrary *out, const void *image, int *jit, void **jit_values, unsigned jit_count, int *how,
                           void **how_values, unsigned how_count);
CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values, unsigned jit_count,
                               int *how, void **how_values, unsigned how_count);
CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUmemAllocNodeParams *params);
CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *params);
CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
                           CUgraphNodeParams *params);
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room);
CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, void *params);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph, void *params);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphExecDestroy(CUgraphExec exec);

CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

CUresult cuLaunchKernel(LAUNCH_ARGS, void **extra);
CUresult cuLaunchKernel_ptsz(LAUNCH_ARGS, void **extra);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra);
CUresult cuLaunchCooperativeKernel(LAUNCH_ARGS);
CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_ARGS);
CUresult cuLaunchCooperativeKernelMultiDevice(CUlaunchParams *list, unsigned count, unsigned flags);
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream);
CUresult cuLaunch(CUfunction f);
CUresult cuLaunchGrid(CUfunction f, int width, int height);
CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream);

CUresult cuCtxSynchronize(void);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);

/* Called, not hooked. */
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxGetDevice(CUdevice *out);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *out);
CUresult cuEventCreate(CUevent *out, unsigned flags);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **after,
                                   size_t *count);
CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes);
CUresult cuDeviceGraphMemTrim(CUdevice device);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);

/* NVML: shown the quota too. */
typedef void *nvmlDevice_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);

/* HOOK(exported name, name and version to ask cuGetProcAddress for, its flags): versions are those in which each
 * variant appeared, as cuda.h's own version macros give them. */
#define HOOKED(HOOK)                                                                               \
    HOOK(cuGetProcAddress, "cuGetProcAddress", 11030, 0)                                           \
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0)                                        \
    HOOK(cuInit, "cuInit", 2000, 0)                                                                \
    HOOK(cuMemAlloc, "cuMemAlloc", 2000, 0)                                                        \
    HOOK(cuMemAlloc_v2, "cuMemAlloc", 3020, 0)                                                     \
    HOOK(cuMemAllocPitch, "cuMemAllocPitch", 2000, 0)                                              \
    HOOK(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0)                                           \
    HOOK(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0)                                          \
    HOOK(cuMemAllocAsync, "cuMemAllocAsync", 11020, CU_GET_PROC_LEGACY_STREAM)                     \
    HOOK(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, CU_GET_PROC_PER_THREAD_STREAM)            \
    HOOK(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, CU_GET_PROC_LEGACY_STREAM)     \
    HOOK(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, CU_GET_PROC_PER_THREAD_STREAM) \
    HOOK(cuMemFree, "cuMemFree", 2000, 0)                                                          \
    HOOK(cuMemFree_v2, "cuMemFree", 3020, 0)                                                       \
    HOOK(cuMemFreeAsync, "cuMemFreeAsync", 11020, CU_GET_PROC_LEGACY_STREAM)                       \
    HOOK(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, CU_GET_PROC_PER_THREAD_STREAM)              \
    HOOK(cuMemCreate, "cuMemCreate", 10020, 0)                                                     \
    HOOK(cuMemRelease, "cuMemRelease", 10020, 0)                                                   \
    HOOK(cuMemMap, "cuMemMap", 10020, 0)                                                           \
    HOOK(cuMemUnmap, "cuMemUnmap", 10020, 0)                                                       \
    HOOK(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0)                     \
    HOOK(cuArrayCreate, "cuArrayCreate", 2000, 0)                                                  \
    HOOK(cuArrayCreate_v2, "cuArrayCreate", 3020, 0)                                               \
    HOOK(cuArray3DCreate, "cuArray3DCreate", 2000, 0)                                              \
    HOOK(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0)                                           \
    HOOK(cuArrayDestroy, "cuArrayDestroy", 2000, 0)                                                \
    HOOK(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0)                                \
    HOOK(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0)                              \
    HOOK(cuMemGetInfo, "cuMemGetInfo", 2000, 0)                                                    \
    HOOK(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0)                                                 \
    HOOK(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0)                                            \
    HOOK(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0)                                         \
    HOOK(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0)                                           \
    HOOK(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0)                   \
    HOOK(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0)               \
    HOOK(cuMemPoolExportPointer, "cuMemPoolExportPointer", 11020, 0)                               \
    HOOK(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020, 0)                               \
    HOOK(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0)                                          \
    HOOK(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, 0)                                        \
    HOOK(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, 0)                                    \
    HOOK(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, 0)                                      \
    HOOK(cuModuleLoad, "cuModuleLoad", 2000, 0)                                                    \
    HOOK(cuModuleLoadData, "cuModuleLoadData", 2000, 0)                                            \
    HOOK(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, 0)                                        \
    HOOK(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, 0)                                  \
    HOOK(cuModuleUnload, "cuModuleUnload", 2000, 0)                                                \
    HOOK(cuLibraryLoadData, "cuLibraryLoadData", 12000, 0)                                         \
    HOOK(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, 0)                                 \
    HOOK(cuLibraryGetModule, "cuLibraryGetModule", 12000, 0)                                       \
    HOOK(cuLibraryUnload, "cuLibraryUnload", 12000, 0)                                             \
    HOOK(cuCtxSetLimit, "cuCtxSetLimit", 3010, 0)                                                  \
    HOOK(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0)                               \
    HOOK(cuGraphAddNode, "cuGraphAddNode", 12020, 0)                                               \
    HOOK(cuGraphAddNode_v2, "cuGraphAddNode", 12030, 0)                                            \
    HOOK(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0)                                       \
    HOOK(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0)                                    \
    HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0)                     \
    HOOK(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, CU_GET_PROC_LEGACY_STREAM) \
    HOOK(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, CU_GET_PROC_PER_THREAD_STREAM) \
    HOOK(cuGraphDestroy, "cuGraphDestroy", 10000, 0)                                               \
    HOOK(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0)                                       \
    HOOK(cuCtxDestroy, "cuCtxDestroy", 2000, 0)                                                    \
    HOOK(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0)                                                 \
    HOOK(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0)                              \
    HOOK(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0)                          \
    HOOK(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0)                          \
    HOOK(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0)                      \
    HOOK(cuLaunchKernel, "cuLaunchKernel", 4000, CU_GET_PROC_LEGACY_STREAM)                        \
    HOOK(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, CU_GET_PROC_PER_THREAD_STREAM)               \
    HOOK(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, CU_GET_PROC_LEGACY_STREAM)                   \
    HOOK(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, CU_GET_PROC_PER_THREAD_STREAM)          \
    HOOK(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, CU_GET_PROC_LEGACY_STREAM)  \
    HOOK(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, CU_GET_PROC_PER_THREAD_STREAM) \
    HOOK(cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, 0)    \
    HOOK(cuGraphLaunch, "cuGraphLaunch", 10000, CU_GET_PROC_LEGACY_STREAM)                         \
    HOOK(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, CU_GET_PROC_PER_THREAD_STREAM)                \
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", 2000, 0)                                            \
    HOOK(cuStreamSynchronize, "cuStreamSynchronize", 2000, CU_GET_PROC_LEGACY_STREAM)              \
    HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, CU_GET_PROC_PER_THREAD_STREAM)     \
    HOOK(cuStreamQuery, "cuStreamQuery", 2000, CU_GET_PROC_LEGACY_STREAM)                          \
    HOOK(cuStreamQuery_ptsz, "cuStreamQuery", 7000, CU_GET_PROC_PER_THREAD_STREAM)                 \
    HOOK(cuEventRecord, "cuEventRecord", 2000, CU_GET_PROC_LEGACY_STREAM)                          \
    HOOK(cuEventRecord_ptsz, "cuEventRecord", 7000, CU_GET_PROC_PER_THREAD_STREAM)                 \
    HOOK(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010, CU_GET_PROC_LEGACY_STREAM)       \
    HOOK(cuEventRecordWithFlags_ptsz, "cuEventRecordWithFlags", 11010, CU_GET_PROC_PER_THREAD_STREAM) \
    HOOK(cuEventSynchronize, "cuEventSynchronize", 2000, 0)                                        \
    HOOK(cuEventQuery, "cuEventQuery", 2000, 0)                                                    \
    HOOK(cuLaunch, "cuLaunch", 2000, 0)                                                            \
    HOOK(cuLaunchGrid, "cuLaunchGrid", 2000, 0)                                                    \
    HOOK(cuLaunchGridAsync, "cuLaunchGridAsync", 2000, 0)

/* Copies, fills and prefetches: name, name and version to ask cuGetProcAddress for, parameters, their names, bytes. Each
 * has a variant for the per-thread default stream, _ptds where the call waits and _ptsz where it does not. Addresses are
 * stated as numbers: they are passed the same way, and only handed on. */
#define COPIES(SYNC, ASYNC) \
    SYNC(cuMemcpy, "cuMemcpy", 4000, (uint64_t to, uint64_t from, size_t bytes), (to, from, bytes), bytes) \
    SYNC(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, \
         (uint64_t to, uint64_t from, size_t bytes), \
         (to, from, bytes), bytes) \
    SYNC(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, \
         (uint64_t to, uint64_t from, size_t bytes), \
         (to, from, bytes), bytes) \
    SYNC(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, \
         (uint64_t to, uint64_t from, size_t bytes), \
         (to, from, bytes), bytes) \
    ASYNC(cuMemcpyAsync, "cuMemcpyAsync", 4000, \
         (uint64_t to, uint64_t from, size_t bytes, CUstream stream), \
         (to, from, bytes, stream), bytes) \
    ASYNC(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, \
         (uint64_t to, uint64_t from, size_t bytes, CUstream stream), \
         (to, from, bytes, stream), bytes) \
    ASYNC(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, \
         (uint64_t to, uint64_t from, size_t bytes, CUstream stream), \
         (to, from, bytes, stream), bytes) \
    ASYNC(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, \
         (uint64_t to, uint64_t from, size_t bytes, CUstream stream), \
         (to, from, bytes, stream), bytes) \
    SYNC(cuMemcpyDtoA_v2, "cuMemcpyDtoA", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes), \
         (a, b, c, bytes), bytes) \
    SYNC(cuMemcpyAtoD_v2, "cuMemcpyAtoD", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes), \
         (a, b, c, bytes), bytes) \
    SYNC(cuMemcpyHtoA_v2, "cuMemcpyHtoA", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes), \
         (a, b, c, bytes), bytes) \
    SYNC(cuMemcpyAtoH_v2, "cuMemcpyAtoH", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes), \
         (a, b, c, bytes), bytes) \
    ASYNC(cuMemcpyHtoAAsync_v2, "cuMemcpyHtoAAsync", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes, CUstream stream), \
         (a, b, c, bytes, stream), bytes) \
    ASYNC(cuMemcpyAtoHAsync_v2, "cuMemcpyAtoHAsync", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, size_t bytes, CUstream stream), \
         (a, b, c, bytes, stream), bytes) \
    SYNC(cuMemcpyAtoA_v2, "cuMemcpyAtoA", 3020, \
         (uint64_t a, uint64_t b, uint64_t c, uint64_t d, size_t bytes), \
         (a, b, c, d, bytes), bytes) \
    SYNC(cuMemcpyPeer, "cuMemcpyPeer", 4000, \
         (uint64_t a, uint64_t b, uint64_t c, uint64_t d, size_t bytes), \
         (a, b, c, d, bytes), bytes) \
    ASYNC(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, \
         (uint64_t a, uint64_t b, uint64_t c, uint64_t d, size_t bytes, CUstream stream), \
         (a, b, c, d, bytes, stream), bytes) \
    SYNC(cuMemcpy2D_v2, "cuMemcpy2D", 3020, \
         (const CUcopy2D *desc), \
         (desc), desc ? desc->width_bytes * desc->height : 0) \
    SYNC(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, \
         (const CUcopy2D *desc), \
         (desc), desc ? desc->width_bytes * desc->height : 0) \
    ASYNC(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, \
         (const CUcopy2D *desc, CUstream stream), \
         (desc, stream), desc ? desc->width_bytes * desc->height : 0) \
    SYNC(cuMemcpy3D_v2, "cuMemcpy3D", 3020, \
         (const CUcopy3D *desc), \
         (desc), desc ? desc->width_bytes * desc->height * desc->depth : 0) \
    SYNC(cuMemcpy3DPeer, "cuMemcpy3DPeer", 4000, \
         (const CUcopy3D *desc), \
         (desc), desc ? desc->width_bytes * desc->height * desc->depth : 0) \
    ASYNC(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, \
         (const CUcopy3D *desc, CUstream stream), \
         (desc, stream), desc ? desc->width_bytes * desc->height * desc->depth : 0) \
    ASYNC(cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 4000, \
         (const CUcopy3D *desc, CUstream stream), \
         (desc, stream), desc ? desc->width_bytes * desc->height * desc->depth : 0) \
    SYNC(cuMemsetD8_v2, "cuMemsetD8", 3020, \
         (CUdeviceptr to, unsigned char value, size_t count), \
         (to, value, count), count) \
    ASYNC(cuMemsetD8Async, "cuMemsetD8Async", 3020, \
         (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), \
         (to, value, count, stream), count) \
    SYNC(cuMemsetD2D8_v2, "cuMemsetD2D8", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height), \
         (to, pitch, value, width, height), width * height) \
    ASYNC(cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), \
         (to, pitch, value, width, height, stream), width * height) \
    SYNC(cuMemsetD16_v2, "cuMemsetD16", 3020, \
         (CUdeviceptr to, unsigned short value, size_t count), \
         (to, value, count), count * 2) \
    ASYNC(cuMemsetD16Async, "cuMemsetD16Async", 3020, \
         (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), \
         (to, value, count, stream), count * 2) \
    SYNC(cuMemsetD2D16_v2, "cuMemsetD2D16", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height), \
         (to, pitch, value, width, height), width * height * 2) \
    ASYNC(cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), \
         (to, pitch, value, width, height, stream), width * height * 2) \
    SYNC(cuMemsetD32_v2, "cuMemsetD32", 3020, \
         (CUdeviceptr to, unsigned value, size_t count), \
         (to, value, count), count * 4) \
    ASYNC(cuMemsetD32Async, "cuMemsetD32Async", 3020, \
         (CUdeviceptr to, unsigned value, size_t count, CUstream stream), \
         (to, value, count, stream), count * 4) \
    SYNC(cuMemsetD2D32_v2, "cuMemsetD2D32", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height), \
         (to, pitch, value, width, height), width * height * 4) \
    ASYNC(cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, \
         (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), \
         (to, pitch, value, width, height, stream), width * height * 4) \
    ASYNC(cuMemPrefetchAsync, "cuMemPrefetchAsync", 8000, \
         (CUdeviceptr ptr, size_t bytes, CUdevice to, CUstream stream), \
         (ptr, bytes, to, stream), bytes) \
    ASYNC(cuMemPrefetchAsync_v2, "cuMemPrefetchAsync", 12020, \
         (CUdeviceptr ptr, size_t bytes, uint64_t place, unsigned flags, CUstream stream), \
         (ptr, bytes, place, flags, stream), bytes) \
    ASYNC(cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, \
         (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *how, \
          size_t *how_at, size_t how_count, size_t *failed, CUstream stream), \
         (to, from, sizes, count, how, how_at, how_count, failed, stream), \
         copy_batch_bytes(sizes, count)) \
    ASYNC(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, \
         (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *how, \
          size_t *how_at, size_t how_count, CUstream stream), \
         (to, from, sizes, count, how, how_at, how_count, stream), \
         copy_batch_bytes(sizes, count)) \
    ASYNC(cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, \
         (size_t count, void *list, size_t *failed, unsigned long long flags, CUstream stream), \
         (count, list, failed, flags, stream), count) \
    ASYNC(cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, \
         (size_t count, void *list, unsigned long long flags, CUstream stream), \
         (count, list, flags, stream), count)

#define SYNC_DECLARED(name, base, version, params, ...) CUresult name params; CUresult name##_ptds params;
#define ASYNC_DECLARED(name, base, version, params, ...) CUresult name params; CUresult name##_ptsz params;
COPIES(SYNC_DECLARED, ASYNC_DECLARED)
#undef SYNC_DECLARED
#undef ASYNC_DECLARED

#define CALLED(CALL)                                                                                   \
    CALL(cuDeviceGetCount) CALL(cuDeviceGetUuid) CALL(cuDevicePrimaryCtxRetain)                        \
    CALL(cuDevicePrimaryCtxGetState) CALL(cuCtxGetCurrent) CALL(cuCtxGetDevice)                        \
    CALL(cuCtxPushCurrent_v2) CALL(cuCtxPopCurrent_v2) CALL(cuEventCreate)                             \
    CALL(cuEventElapsedTime) CALL(cuEventDestroy_v2)            \
    CALL(cuStreamIsCapturing) CALL(cuThreadExchangeStreamCaptureMode) CALL(cuStreamGetCaptureInfo_v2)  \
    CALL(cuDeviceGetMemPool) CALL(cuMemPoolGetAttribute) CALL(cuMemPoolTrimTo) CALL(cuDeviceGraphMemTrim) \
    CALL(cuMemGetAddressRange_v2)

#endif
