/* GPUs and contexts that the process has used. Filled on slow paths only; a launch reads it without a lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "shim.h"

#define MAX_CONTEXTS 64

static struct gpu gpus[MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int visible; /* GPUs that the process sees; 0: not asked yet */

static struct context contexts[MAX_CONTEXTS];
static int context_count;

struct gpu *gpu_by_ordinal(CUdevice device) {
    if (device < 0 || device >= (CUdevice)MAX_GPUS) {
        return NULL;
    }
    struct gpu *gpu = &gpus[device];
    if (LIKELY(atomic_load_explicit(&gpu->known, memory_order_acquire))) {
        return gpu;
    }
    CUuuid uuid = {{0}};
    if (!real.cuDeviceGetUuid || real.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
        uuid.bytes[15] = (unsigned char)(device + 1); /* a driver without UUIDs: the ordinal has to do */
    }
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&gpu->known, memory_order_acquire)) {
        gpu->ordinal = device;
        memcpy(gpu->uuid, uuid.bytes, sizeof gpu->uuid);
        gpu->quota_bytes = quota_configured(device, gpu->uuid);
        gpu->usage_index = usage_gpu_index(gpu->uuid);
        atomic_store_explicit(&gpu->known, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return gpu;
}

struct gpu *gpu_by_uuid(const uint8_t uuid[16]) {
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        if (atomic_load_explicit(&gpus[i].known, memory_order_acquire) && memcmp(gpus[i].uuid, uuid, 16) == 0) {
            return &gpus[i];
        }
    }
    return NULL;
}

struct gpu *gpu_current(void) {
    int count = atomic_load_explicit(&visible, memory_order_relaxed);
    if (LIKELY(count == 1)) {
        return gpu_by_ordinal(0);
    }
    if (!count && real.cuDeviceGetCount && real.cuDeviceGetCount(&count) == CUDA_SUCCESS) {
        atomic_store_explicit(&visible, count, memory_order_relaxed);
    }
    CUdevice device = 0;
    if (!real.cuCtxGetDevice || real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return NULL;
    }
    return gpu_by_ordinal(device);
}

/* Destroying a primary context by its handle is not allowed, so each is told apart once. */
static bool is_primary(CUcontext handle, CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    CUcontext primary = NULL;
    CUresult (*release)(CUdevice) =
        real.cuDevicePrimaryCtxRelease_v2 ? real.cuDevicePrimaryCtxRelease_v2 : real.cuDevicePrimaryCtxRelease;
    if (!real.cuDevicePrimaryCtxGetState || !real.cuDevicePrimaryCtxRetain || !release ||
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        real.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
        return false;
    }
    release(device);
    return primary == handle;
}

static bool known_context(CUcontext handle) {
    for (int i = 0; i < context_count; i++) {
        if (contexts[i].handle == handle) {
            return true;
        }
    }
    return false;
}

CUcontext context_seen(void) {
    CUcontext handle = NULL;
    CUdevice device = 0;
    if (!real.cuCtxGetCurrent || real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    bool known = known_context(handle);
    pthread_mutex_unlock(&lock);
    if (known || real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return handle;
    }
    if (!is_observed()) {
        signals_arm(); /* for a program whose cuInit went past us */
    }
    bool primary = is_primary(handle, device);
    pthread_mutex_lock(&lock);
    if (!known_context(handle) && context_count < MAX_CONTEXTS) {
        contexts[context_count++] = (struct context){handle, device, primary};
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

int contexts_copy(struct context *into, int room) {
    pthread_mutex_lock(&lock);
    int count = context_count < room ? context_count : room;
    memcpy(into, contexts, (size_t)count * sizeof *into);
    pthread_mutex_unlock(&lock);
    return count;
}

void context_forget(CUcontext handle) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < context_count; i++) {
        if (contexts[i].handle == handle) {
            contexts[i] = contexts[--context_count];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

CUcontext context_primary(CUdevice device) {
    CUcontext found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < context_count; i++) {
        if (contexts[i].primary && contexts[i].device == device) {
            found = contexts[i].handle;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void devices_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    context_count = 0;
    atomic_store(&visible, 0);
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        atomic_store(&gpus[i].known, false);
    }
}
