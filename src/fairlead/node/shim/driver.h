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

/* Called, not hooked. */
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxGetDevice(CUdevice *out);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *out);
CUresult cuCtxSynchronize(void);
CUresult cuEventCreate(CUevent *out, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
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
    HOOK(cuLaunch, "cuLaunch", 2000, 0)                                                            \
    HOOK(cuLaunchGrid, "cuLaunchGrid", 2000, 0)                                                    \
    HOOK(cuLaunchGridAsync, "cuLaunchGridAsync", 2000, 0)

#define CALLED(CALL)                                                                                   \
    CALL(cuDeviceGetCount) CALL(cuDeviceGetUuid) CALL(cuDevicePrimaryCtxRetain)                        \
    CALL(cuDevicePrimaryCtxGetState) CALL(cuCtxGetCurrent) CALL(cuCtxGetDevice)                        \
    CALL(cuCtxPushCurrent_v2) CALL(cuCtxPopCurrent_v2) CALL(cuCtxSynchronize) CALL(cuEventCreate)      \
    CALL(cuEventRecord) CALL(cuEventQuery) CALL(cuEventElapsedTime) CALL(cuEventDestroy_v2)            \
    CALL(cuStreamIsCapturing) CALL(cuThreadExchangeStreamCaptureMode)

#endif
