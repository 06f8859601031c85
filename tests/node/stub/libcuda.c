/* A CUDA driver without a GPU, for tests of the shim.
 *
 * One engine per process that runs kernels one after the other. Nothing really runs: the engine is a clock that says
 * when each stream will be done, so events, queries and synchronisation behave as on a GPU, and GPU time is known
 * exactly. Kernels are named after their length: cuModuleGetFunction(..., "k250us..."). Counters lie in the file
 * STUB_STATS, where a test reads them even after the process was killed. Built without optimisation of names: every
 * variant is a function of its own, so that a test sees which one was called.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, UNINITIALIZED = 3, NO_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906 };

#define LEGACY ((void *)0x1)
#define PER_THREAD ((void *)0x2)
#define GPU_BYTES (16ull << 30)

struct stats {
    uint64_t gpu_ns, launches, busy_until_ns, allocated, allocations, frees, synchronised, destroyed, resets;
    uint64_t launch_legacy, launch_ptsz, ex_legacy, ex_ptsz, cooperative_legacy, cooperative_ptsz, graph_legacy, graph_ptsz;
    uint64_t multi, grid, events_made, events_alive, captured, spoiled, inits, last_launch_ns, destroyed_busy;
};

static struct stats *stats;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct stream { int64_t done_ns; int capturing; uint64_t captured_ns; };
struct event { int64_t at_ns; int recorded; };
struct function { int64_t ns; };
struct graph { int64_t ns; };
struct context { int device; int alive; };
struct block { CUdeviceptr ptr; size_t bytes; struct block *next; };

static struct stream legacy_stream;
static __thread struct stream per_thread_stream;
static __thread struct context *stack[16];
static __thread int depth;
static __thread int capture_mode; /* 0: global */
static int captures; /* in global mode */
static struct context primaries[4];
static int primary_references[4];
static int64_t engine_ns;
static struct block *blocks;
static int initialised;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int device_count(void) {
    const char *text = getenv("STUB_GPUS");
    return text ? atoi(text) : 1;
}

static __attribute__((constructor)) void open_stats(void) {
    static struct stats here;
    const char *path = getenv("STUB_STATS");
    stats = &here;
    if (path) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && ftruncate(fd, 4096) == 0) {
            void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            stats = memory == MAP_FAILED ? &here : memory;
        }
        close(fd);
    }
}

static struct stream *stream_of(void *handle, int ptsz) {
    if (handle == PER_THREAD || (ptsz && !handle)) {
        return &per_thread_stream;
    }
    return !handle || handle == LEGACY ? &legacy_stream : handle;
}

static struct context *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

/* ---- set-up ---- */

CUresult cuInit(unsigned flags) { (void)flags; initialised = 1; stats->inits++; return OK; }
CUresult cuDriverGetVersion(int *version) { *version = 12040; return OK; }
CUresult cuDeviceGetCount(int *count) { *count = device_count(); return initialised ? OK : UNINITIALIZED; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < device_count() ? OK : INVALID; }

CUresult cuDeviceGetUuid(unsigned char *uuid, int device) {
    /* STUB_UUID shifts the numbering, as CUDA_VISIBLE_DEVICES does. */
    const char *first = getenv("STUB_UUID");
    memset(uuid, 0xab, 16);
    uuid[15] = (unsigned char)((first ? atoi(first) : 0) + device);
    return OK;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = GPU_BYTES; return OK; }
CUresult cuDeviceTotalMem(unsigned *bytes, int device) { (void)device; *bytes = 0xffffffffu; return OK; }

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(struct context **out, int device) {
    pthread_mutex_lock(&lock);
    primaries[device] = (struct context){device, 1};
    primary_references[device]++;
    pthread_mutex_unlock(&lock);
    *out = &primaries[device];
    return OK;
}

CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = primary_references[device] > 0;
    return OK;
}

static void forget_memory(void) {
    pthread_mutex_lock(&lock);
    while (blocks) {
        struct block *next = blocks->next;
        stats->allocated -= blocks->bytes;
        free(blocks);
        blocks = next;
    }
    pthread_mutex_unlock(&lock);
}

static void note_end(void) {
    if (stats->busy_until_ns > (uint64_t)now()) {
        stats->destroyed_busy++;
    }
    stats->destroyed++;
    forget_memory();
}

CUresult cuDevicePrimaryCtxRelease_v2(int device) {
    if (--primary_references[device] == 0) {
        note_end();
    }
    return OK;
}
CUresult cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }

CUresult cuDevicePrimaryCtxReset_v2(int device) {
    primary_references[device] = 0;
    stats->resets++;
    note_end();
    return OK;
}
CUresult cuDevicePrimaryCtxReset(int device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuCtxCreate_v2(struct context **out, unsigned flags, int device) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    **out = (struct context){device, 1};
    stack[depth++] = *out;
    return OK;
}

CUresult cuCtxDestroy_v2(struct context *context) {
    context->alive = 0;
    if (depth && stack[depth - 1] == context) {
        depth--;
    }
    note_end();
    return OK;
}
CUresult cuCtxDestroy(struct context *context) { return cuCtxDestroy_v2(context); }

CUresult cuCtxSetCurrent(struct context *context) {
    depth = depth ? depth : 1;
    stack[depth - 1] = context;
    if (!context) {
        depth--;
    }
    return OK;
}
CUresult cuCtxGetCurrent(struct context **out) { *out = current(); return OK; }
CUresult cuCtxPushCurrent_v2(struct context *context) { stack[depth++] = context; return OK; }
CUresult cuCtxPopCurrent_v2(struct context **out) { *out = stack[--depth]; return OK; }
CUresult cuCtxGetDevice(int *device) {
    if (!current()) {
        return NO_CONTEXT;
    }
    *device = current()->device;
    return OK;
}

static void sleep_until(int64_t when) {
    while (now() < when) {
        int64_t rest = when - now();
        struct timespec t = {rest / 1000000000, rest % 1000000000};
        if (rest > 0) {
            nanosleep(&t, NULL);
        }
    }
}

CUresult cuCtxSynchronize(void) {
    if (captures) {
        stats->spoiled++;
        return CAPTURE_UNSUPPORTED;
    }
    sleep_until(engine_ns);
    stats->synchronised++;
    return OK;
}

/* ---- memory ---- */

static CUresult take(CUdeviceptr *out, size_t bytes) {
    static CUdeviceptr next = 0x700000000000ull;
    if (!current()) {
        return NO_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    if (stats->allocated + bytes > GPU_BYTES) {
        pthread_mutex_unlock(&lock);
        return OUT_OF_MEMORY;
    }
    struct block *block = malloc(sizeof *block);
    *block = (struct block){next, bytes, blocks};
    blocks = block;
    *out = next;
    next += (bytes + 0x1fffff) / 0x200000 * 0x200000 + 0x200000;
    stats->allocated += bytes;
    stats->allocations++;
    pthread_mutex_unlock(&lock);
    return OK;
}

static CUresult give(CUdeviceptr ptr) {
    pthread_mutex_lock(&lock);
    struct block **link = &blocks;
    while (*link && (*link)->ptr != ptr) {
        link = &(*link)->next;
    }
    struct block *block = *link;
    if (block) {
        *link = block->next;
        stats->allocated -= block->bytes;
        stats->frees++;
        free(block);
    }
    pthread_mutex_unlock(&lock);
    return block || !ptr ? OK : INVALID;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) { return take(out, bytes); }
CUresult cuMemAlloc(unsigned *out, unsigned bytes) {
    CUdeviceptr wide = 0;
    CUresult result = take(&wide, bytes);
    *out = (unsigned)wide;
    return result;
}
CUresult cuMemAlloc_v3(CUdeviceptr *out, size_t bytes, int where) { (void)where; return take(out, bytes); } /* to come */
CUresult cuMemFree_v2(CUdeviceptr ptr) { return give(ptr); }
CUresult cuMemFree(unsigned ptr) { return give(0x700000000000ull | ptr); }
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    /* Wide elements get a coarser pitch than the shim expects, to try its second reservation. */
    size_t to = element == 16 ? 4096 : 512;
    *pitch = (width + to - 1) / to * to;
    return take(out, *pitch * height);
}
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) { (void)flags; return take(out, bytes); }
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, void *stream) { (void)stream; return take(out, bytes); }
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, void *stream) { (void)stream; return take(out, bytes); }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, void *pool, void *stream) {
    (void)pool, (void)stream;
    return take(out, bytes);
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, void *pool, void *stream) {
    (void)pool, (void)stream;
    return take(out, bytes);
}
CUresult cuMemFreeAsync(CUdeviceptr ptr, void *stream) { (void)stream; return give(ptr); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, void *stream) { (void)stream; return give(ptr); }

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = GPU_BYTES;
    *free_bytes = GPU_BYTES - stats->allocated;
    return OK;
}

/* Virtual memory: the mapping is not modelled, only that the calls succeed; handles are pointers of blocks. */
CUresult cuMemCreate(CUdeviceptr *out, size_t bytes, const int *prop, unsigned long long flags) {
    (void)prop, (void)flags;
    return take(out, bytes);
}
CUresult cuMemRelease(CUdeviceptr handle) { (void)handle; return OK; }
CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUdeviceptr handle, unsigned long long flags) {
    (void)ptr, (void)bytes, (void)offset, (void)handle, (void)flags;
    return OK;
}
CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes) { (void)ptr, (void)bytes; return OK; }
CUresult cuMemRetainAllocationHandle(CUdeviceptr *out, void *address) { *out = (uintptr_t)address ^ 0xf; return OK; }

struct desc { size_t width, height, depth; int format; unsigned channels, flags; };
CUresult cuArrayCreate_v2(CUdeviceptr *out, const struct desc *desc) { (void)desc; return take(out, 0); }
CUresult cuArray3DCreate_v2(CUdeviceptr *out, const struct desc *desc) { (void)desc; return take(out, 0); }
CUresult cuArrayDestroy(CUdeviceptr array) { return give(array); }
CUresult cuMipmappedArrayCreate(CUdeviceptr *out, const struct desc *desc, unsigned levels) {
    (void)desc, (void)levels;
    return take(out, 0);
}
CUresult cuMipmappedArrayDestroy(CUdeviceptr array) { return give(array); }

/* ---- streams, events, capture ---- */

CUresult cuStreamCreate(struct stream **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof **out); return OK; }
CUresult cuStreamSynchronize(void *handle) { sleep_until(stream_of(handle, 0)->done_ns); return OK; }

CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    stream->capturing = 1;
    stream->captured_ns = 0;
    pthread_mutex_lock(&lock);
    captures += mode == 0;
    pthread_mutex_unlock(&lock);
    return OK;
}

CUresult cuStreamEndCapture(struct stream *stream, struct graph **out) {
    stream->capturing = 0;
    captures = 0;
    *out = malloc(sizeof **out);
    (*out)->ns = (int64_t)stream->captured_ns;
    return OK;
}
CUresult cuGraphInstantiateWithFlags(struct graph **out, struct graph *graph, unsigned long long flags) {
    (void)flags;
    *out = graph;
    return OK;
}

CUresult cuStreamIsCapturing(void *handle, int *status) {
    struct stream *stream = stream_of(handle, 0);
    if (stream == &legacy_stream && captures) {
        return CAPTURE_IMPLICIT;
    }
    *status = stream->capturing;
    return OK;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return OK;
}

/* What a real driver does: such a call spoils a capture in global mode, unless the thread is relaxed. */
static int spoils(void) {
    if (captures && capture_mode != 2) {
        stats->spoiled++;
        return 1;
    }
    return 0;
}

CUresult cuEventCreate(struct event **out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    stats->events_made++;
    stats->events_alive++;
    return spoils() ? CAPTURE_UNSUPPORTED : OK;
}

CUresult cuEventRecord(struct event *event, void *handle) {
    struct stream *stream = stream_of(handle, 0);
    if (stream->capturing) {
        stats->spoiled++;
    }
    int64_t at = now();
    event->at_ns = stream->done_ns > at ? stream->done_ns : at;
    event->recorded = 1;
    return OK;
}

CUresult cuEventQuery(struct event *event) {
    return spoils() ? CAPTURE_UNSUPPORTED : now() >= event->at_ns ? OK : NOT_READY;
}
CUresult cuEventElapsedTime(float *ms, struct event *start, struct event *end) {
    *ms = (float)((double)(end->at_ns - start->at_ns) / 1e6);
    return OK;
}
CUresult cuEventDestroy_v2(struct event *event) { stats->events_alive--; free(event); return OK; }

/* ---- launches ---- */

CUresult cuModuleGetFunction(struct function **out, void *module, const char *name) {
    (void)module;
    *out = calloc(1, sizeof **out);
    (*out)->ns = (int64_t)(atof(name + 1) * 1000);
    return OK;
}

static CUresult run(int64_t ns, struct stream *stream) {
    if (stream->capturing) {
        stream->captured_ns += (uint64_t)ns;
        stats->captured++;
        return OK;
    }
    if (!ns) { /* nothing to model: for measuring what a launch costs */
        stats->launches++;
        return OK;
    }
    pthread_mutex_lock(&lock);
    int64_t at = now(), start = engine_ns > at ? engine_ns : at;
    start = stream->done_ns > start ? stream->done_ns : start;
    engine_ns = stream->done_ns = start + ns;
    stats->busy_until_ns = (uint64_t)engine_ns;
    stats->gpu_ns += (uint64_t)ns;
    stats->launches++;
    stats->last_launch_ns = (uint64_t)at;
    pthread_mutex_unlock(&lock);
    return OK;
}

#define ARGS                                                                                                        \
    struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
        void *stream, void **params
#define UNUSED (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params

CUresult cuLaunchKernel(ARGS, void **extra) {
    UNUSED, (void)extra;
    stats->launch_legacy++;
    return run(f->ns, stream_of(stream, 0));
}
CUresult cuLaunchKernel_ptsz(ARGS, void **extra) {
    UNUSED, (void)extra;
    stats->launch_ptsz++;
    return run(f->ns, stream_of(stream, 1));
}

struct config { unsigned dims[7]; void *stream; void *attributes; unsigned count; };
CUresult cuLaunchKernelEx(const struct config *config, struct function *f, void **params, void **extra) {
    (void)params, (void)extra;
    stats->ex_legacy++;
    return run(f->ns, stream_of(config->stream, 0));
}
CUresult cuLaunchKernelEx_ptsz(const struct config *config, struct function *f, void **params, void **extra) {
    (void)params, (void)extra;
    stats->ex_ptsz++;
    return run(f->ns, stream_of(config->stream, 1));
}
CUresult cuLaunchCooperativeKernel(ARGS) {
    UNUSED;
    stats->cooperative_legacy++;
    return run(f->ns, stream_of(stream, 0));
}
CUresult cuLaunchCooperativeKernel_ptsz(ARGS) {
    UNUSED;
    stats->cooperative_ptsz++;
    return run(f->ns, stream_of(stream, 1));
}

struct part { struct function *f; unsigned dims[7]; void *stream; void **params; };
CUresult cuLaunchCooperativeKernelMultiDevice(struct part *list, unsigned count, unsigned flags) {
    (void)flags;
    stats->multi++;
    for (unsigned i = 0; i < count; i++) {
        run(list[i].f->ns, stream_of(list[i].stream, 0));
    }
    return OK;
}
CUresult cuGraphLaunch(struct graph *graph, void *stream) {
    stats->graph_legacy++;
    return run(graph->ns, stream_of(stream, 0));
}
CUresult cuGraphLaunch_ptsz(struct graph *graph, void *stream) {
    stats->graph_ptsz++;
    return run(graph->ns, stream_of(stream, 1));
}
CUresult cuLaunchGridAsync(struct function *f, int width, int height, void *stream) {
    (void)width, (void)height;
    stats->grid++;
    return run(f->ns, stream_of(stream, 0));
}

/* ---- lookup ---- */

CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);

static struct { const char *name; int version; int ptsz; void *function; } exports[] = {
#define E(name, version) {#name, version, 0, (void *)name},
#define V(name, version, function) {#name, version, 0, (void *)function},
#define P(name, version) {#name, version, 0, (void *)name}, {#name, version, 1, (void *)name##_ptsz},
    E(cuInit, 2000) E(cuDriverGetVersion, 2020) E(cuDeviceGetCount, 2000) E(cuDeviceGet, 2000)
    E(cuDevicePrimaryCtxRetain, 7000) V(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease)
    V(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)
    V(cuDeviceTotalMem, 2000, cuDeviceTotalMem) V(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)
    E(cuCtxSetCurrent, 4000) E(cuCtxSynchronize, 2000) V(cuMemAlloc, 2000, cuMemAlloc) V(cuMemAlloc, 3020, cuMemAlloc_v2)
    V(cuMemAlloc, 14000, cuMemAlloc_v3)
    V(cuMemFree, 2000, cuMemFree) V(cuMemFree, 3020, cuMemFree_v2) V(cuMemGetInfo, 3020, cuMemGetInfo_v2)
    P(cuMemAllocAsync, 11020) P(cuMemFreeAsync, 11020) P(cuMemAllocFromPoolAsync, 11020)
    P(cuLaunchKernelEx, 11060) P(cuLaunchCooperativeKernel, 9000) P(cuGraphLaunch, 10000)
    V(cuLaunchKernel, 4000, cuLaunchKernel) {"cuLaunchKernel", 7000, 1, (void *)cuLaunchKernel_ptsz},
    E(cuModuleGetFunction, 2000) E(cuMemCreate, 10020)
    V(cuGetProcAddress, 11030, cuGetProcAddress) V(cuGetProcAddress, 12000, cuGetProcAddress_v2)
};

static void *best(const char *symbol, int version, uint64_t flags) {
    void *found = NULL;
    int newest = 0;
    for (size_t i = 0; i < sizeof exports / sizeof exports[0]; i++) {
        int wants_ptsz = (flags & 2) != 0;
        /* Functions without a per-thread variant are given for either flag; the variant wins where there is one. */
        if (strcmp(exports[i].name, symbol) == 0 && exports[i].version <= version &&
            (!exports[i].ptsz || wants_ptsz) && exports[i].version * 2 + exports[i].ptsz > newest) {
            newest = exports[i].version * 2 + exports[i].ptsz;
            found = exports[i].function;
        }
    }
    return found;
}

CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
    *out = best(symbol, version, flags);
    return *out ? OK : NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    *out = best(symbol, version, flags);
    if (status) {
        *status = *out ? 0 : 1;
    }
    return OK;
}
