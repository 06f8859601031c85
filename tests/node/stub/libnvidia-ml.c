/* The two calls of NVML that the shim looks at, for one GPU with the stub driver's UUID. */
#include <stdio.h>

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    (void)device;
    snprintf(text, length, "GPU-abababab-abab-abab-abab-ababababab00");
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){16ull << 30, 15ull << 30, 1ull << 30};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    (void)device;
    *memory = (struct memory_v2){memory->version, 16ull << 30, 1ull << 20, 15ull << 30, 1ull << 30};
    return 0;
}
