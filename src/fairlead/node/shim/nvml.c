/* NVML shows the quota too, for programs that size themselves by it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "shim.h"

bool quota_uuid(const char *text, uint8_t uuid[16]);
void *nvml_to_hook(void *handle, const char *name, void *pointer);

typedef int (*memory_t)(nvmlDevice_t, nvmlMemory_t *);
typedef int (*memory_v2_t)(nvmlDevice_t, nvmlMemory_v2_t *);
typedef int (*uuid_t)(nvmlDevice_t, char *, unsigned);

static _Atomic(memory_t) real_memory;
static _Atomic(memory_v2_t) real_memory_v2;
static _Atomic(uuid_t) real_uuid;

static void bind(void *library) {
    atomic_store(&real_uuid, (uuid_t)real_dlsym()(library, "nvmlDeviceGetUUID"));
    atomic_store(&real_memory_v2, (memory_v2_t)real_dlsym()(library, "nvmlDeviceGetMemoryInfo_v2"));
    atomic_store(&real_memory, (memory_t)real_dlsym()(library, "nvmlDeviceGetMemoryInfo"));
}

static bool ready(void) {
    if (!atomic_load(&real_memory)) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (library) {
            bind(library);
        }
    }
    return atomic_load(&real_memory) != NULL;
}

void *nvml_to_hook(void *handle, const char *name, void *pointer) {
    (void)handle;
    if (!ready()) {
        /* Our own symbol, found in the global scope without the library behind it. */
        return pointer == (void *)nvmlDeviceGetMemoryInfo || pointer == (void *)nvmlDeviceGetMemoryInfo_v2
                   ? real_dlsym()(RTLD_NEXT, name)
                   : pointer;
    }
    if (pointer == (void *)atomic_load(&real_memory)) {
        return (void *)nvmlDeviceGetMemoryInfo;
    }
    return pointer == (void *)atomic_load(&real_memory_v2) ? (void *)nvmlDeviceGetMemoryInfo_v2 : pointer;
}

/* Quota and use of this GPU; false: no quota is known for it. */
static bool limits(nvmlDevice_t device, uint64_t *quota, uint64_t *used) {
    char text[96] = "";
    uint8_t uuid[16] = {0};
    uuid_t get_uuid = atomic_load(&real_uuid);
    if (!get_uuid || get_uuid(device, text, sizeof text) != 0 || !quota_uuid(text, uuid)) {
        return false;
    }
    struct gpu *gpu = gpu_by_uuid(uuid);
    /* Before CUDA is in use there are no ordinals; then only a quota without them applies. */
    uint64_t agents = gpu ? 0 : control_quota(uuid);
    *quota = gpu ? quota_now(gpu) : agents ? agents : quota_configured(-1, uuid);
    if (!*quota) {
        return false;
    }
    *used = gpu ? quota_used(gpu) : usage_sum(usage_gpu_index(uuid));
    return true;
}

#define SHOW(memory, quota, used_bytes)                                              \
    do {                                                                             \
        uint64_t left = (used_bytes) < (quota) ? (quota) - (used_bytes) : 0;         \
        (memory)->total = (memory)->total < (quota) ? (memory)->total : (quota);     \
        (memory)->free = (memory)->free < left ? (memory)->free : left;              \
        (memory)->used = (memory)->total - (memory)->free;                           \
    } while (0)

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (!ready()) {
        return 1; /* NVML_ERROR_UNINITIALIZED */
    }
    uint64_t quota = 0, used = 0;
    int result = atomic_load(&real_memory)(device, memory);
    if (result == 0 && limits(device, &quota, &used)) {
        SHOW(memory, quota, used);
    }
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    memory_v2_t call = ready() ? atomic_load(&real_memory_v2) : NULL;
    if (!call) {
        return 1;
    }
    uint64_t quota = 0, used = 0;
    int result = call(device, memory);
    if (result == 0 && limits(device, &quota, &used)) {
        memory->reserved = 0; /* part of `used`, as far as the job can tell */
        SHOW(memory, quota, used);
    }
    return result;
}
