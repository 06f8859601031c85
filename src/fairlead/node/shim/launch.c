/* Hooks of every call that has the GPU run kernels. */
#define _GNU_SOURCE
#include "shim.h"

#define BLOCKS(x, y, z) ((uint64_t)(x) * (y) * (z))

#define LAUNCH(name, on)                                                                                          \
    EXPORT CUresult name(LAUNCH_ARGS, void **extra) {                                                             \
        NEEDS(name);                                                                                              \
        GATED(f, BLOCKS(gx, gy, gz), on(stream), real.name(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)); \
    }
LAUNCH(cuLaunchKernel, LEGACY)
LAUNCH(cuLaunchKernel_ptsz, PER_THREAD)

#define COOPERATIVE(name, on)                                                                                \
    EXPORT CUresult name(LAUNCH_ARGS) {                                                                      \
        NEEDS(name);                                                                                         \
        GATED(f, BLOCKS(gx, gy, gz), on(stream), real.name(f, gx, gy, gz, bx, by, bz, shared, stream, params)); \
    }
COOPERATIVE(cuLaunchCooperativeKernel, LEGACY)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, PER_THREAD)

#define LAUNCH_EX(name, on)                                                                             \
    EXPORT CUresult name(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {     \
        NEEDS(name);                                                                                    \
        if (!config) {                                                                                  \
            return real.name(config, f, params, extra);                                                 \
        }                                                                                               \
        GATED(f, BLOCKS(config->grid_x, config->grid_y, config->grid_z), on(config->stream),            \
              real.name(config, f, params, extra));                                                     \
    }
LAUNCH_EX(cuLaunchKernelEx, LEGACY)
LAUNCH_EX(cuLaunchKernelEx_ptsz, PER_THREAD)

#define GRAPH(name, on)                                                        \
    EXPORT CUresult name(CUgraphExec graph, CUstream stream) {                 \
        NEEDS(name);                                                           \
        GATED(graph, 1, on(stream), real.name(graph, stream));                 \
    }
GRAPH(cuGraphLaunch, LEGACY)
GRAPH(cuGraphLaunch_ptsz, PER_THREAD)

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUlaunchParams *list, unsigned count, unsigned flags) {
    NEEDS(cuLaunchCooperativeKernelMultiDevice);
    /* One part per GPU. Each is charged to the GPU of the calling thread: close enough for a deprecated call. */
    if (is_observed()) {
        observe_launch(list && count ? list[0].stream : NULL, NULL);
        return real.cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    }
    struct ticket tickets[MAX_GPUS];
    bool open[MAX_GPUS] = {false};
    for (unsigned i = 0; list && i < count && i < MAX_GPUS; i++) {
        uint64_t blocks = BLOCKS(list[i].grid_x, list[i].grid_y, list[i].grid_z);
        open[i] = gate_enter(&tickets[i], list[i].function, blocks, list[i].stream);
    }
    CUresult result = real.cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        if (open[i]) {
            gate_leave(&tickets[i], result);
        }
    }
    return result;
}

EXPORT CUresult cuLaunch(CUfunction f) {
    NEEDS(cuLaunch);
    GATED(f, 1, NULL, real.cuLaunch(f));
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    NEEDS(cuLaunchGrid);
    GATED(f, BLOCKS(width, height, 1), NULL, real.cuLaunchGrid(f, width, height));
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    NEEDS(cuLaunchGridAsync);
    GATED(f, BLOCKS(width, height, 1), stream, real.cuLaunchGridAsync(f, width, height, stream));
}
