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
#define POOL_CHUNK (8ull << 20)
#define COPY_BYTES_PER_US 10000

struct stats {
    uint64_t gpu_ns, launches, busy_until_ns, allocated, allocations, frees, synchronised, destroyed, resets;
    uint64_t launch_legacy, launch_ptsz, ex_legacy, ex_ptsz, cooperative_legacy, cooperative_ptsz, graph_legacy, graph_ptsz;
    uint64_t multi, grid, events_made, events_alive, captured, spoiled, inits, last_launch_ns, destroyed_busy;
    uint64_t copies, copied_bytes, most_allocated, trims;
};

static struct stats *stats;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct graph { int64_t ns; uint64_t bytes; };
struct exec { int64_t ns; uint64_t bytes; int holds; }; /* its memory, from the first launch on */
struct stream { int64_t done_ns; int capturing; uint64_t captured_ns; struct graph *graph; };
struct event { int64_t at_ns; int recorded; };
struct function { int64_t ns; };
struct pool { uint64_t live, reserved, threshold; };
struct module { uint64_t bytes; int loaded; };
struct context { int device; int alive; };
struct block { CUdeviceptr ptr; size_t bytes; struct pool *pool; struct block *next; };

static struct stream legacy_stream;
static __thread struct stream per_thread_stream;
static __thread struct context *stack[16];
static __thread int depth;
static __thread int capture_mode; /* 0: global */
static int captures; /* in global mode */
static struct context primaries[16];
static int primary_references[16];
static int64_t engine_ns;
static struct block *blocks;
static struct pool default_pools[4];
static struct pool *current_pools[4];
static uint64_t idle_graph_bytes; /* of executables that are gone; the driver keeps them until it is told to trim */
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

static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

static __attribute__((constructor)) void open_stats(void) {
    static struct stats here;
    pthread_atfork(NULL, NULL, unlock_in_child);
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

/* The GPU's memory; other processes may be at the same counters. */
static int grab(uint64_t bytes) {
    uint64_t after = __atomic_add_fetch(&stats->allocated, bytes, __ATOMIC_SEQ_CST);
    if (after > GPU_BYTES) {
        __atomic_sub_fetch(&stats->allocated, bytes, __ATOMIC_SEQ_CST);
        return 0;
    }
    uint64_t most = __atomic_load_n(&stats->most_allocated, __ATOMIC_SEQ_CST);
    while (after > most && !__atomic_compare_exchange_n(&stats->most_allocated, &most, after, 0, __ATOMIC_SEQ_CST,
                                                        __ATOMIC_SEQ_CST)) {
    }
    return 1;
}

static void drop(uint64_t bytes) { __atomic_sub_fetch(&stats->allocated, bytes, __ATOMIC_SEQ_CST); }

uint64_t stub_allocated(void) { return __atomic_load_n(&stats->allocated, __ATOMIC_SEQ_CST); }

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
        if (!blocks->pool) {
            drop(blocks->bytes);
        }
        free(blocks);
        blocks = next;
    }
    for (int i = 0; i < 4; i++) {
        drop(default_pools[i].reserved);
        default_pools[i] = (struct pool){0};
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

static uint64_t in_chunks(uint64_t bytes) { return (bytes + POOL_CHUNK - 1) / POOL_CHUNK * POOL_CHUNK; }

/* Gives the driver's memory back, down to what is in use or kept. Call with the lock held. */
static void pool_shrink(struct pool *pool, uint64_t keep) {
    uint64_t wanted = in_chunks(pool->live) > keep ? in_chunks(pool->live) : keep;
    if (wanted < pool->reserved) {
        drop(pool->reserved - wanted);
        pool->reserved = wanted;
    }
}

/* Call with the lock held. */
static int pool_grow(struct pool *pool, uint64_t bytes) {
    uint64_t wanted = in_chunks(pool->live + bytes);
    if (wanted > pool->reserved) {
        if (!grab(wanted - pool->reserved)) {
            return 0;
        }
        pool->reserved = wanted;
    }
    pool->live += bytes;
    return 1;
}

static CUresult take_from(CUdeviceptr *out, size_t bytes, struct pool *pool) {
    static CUdeviceptr next = 0x700000000000ull;
    if (!current()) {
        return NO_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    if (pool ? !pool_grow(pool, bytes) : !grab(bytes)) {
        pthread_mutex_unlock(&lock);
        return OUT_OF_MEMORY;
    }
    struct block *block = malloc(sizeof *block);
    *block = (struct block){next, bytes, pool, blocks};
    blocks = block;
    *out = next;
    next += (bytes + 0x1fffff) / 0x200000 * 0x200000 + 0x200000;
    stats->allocations++;
    pthread_mutex_unlock(&lock);
    return OK;
}
static CUresult take(CUdeviceptr *out, size_t bytes) { return take_from(out, bytes, NULL); }

static CUresult give(CUdeviceptr ptr) {
    pthread_mutex_lock(&lock);
    struct block **link = &blocks;
    while (*link && (*link)->ptr != ptr) {
        link = &(*link)->next;
    }
    struct block *block = *link;
    if (block) {
        *link = block->next;
        if (block->pool) {
            block->pool->live -= block->bytes;
            pool_shrink(block->pool, block->pool->threshold < block->pool->reserved ? block->pool->threshold
                                                                                    : block->pool->reserved);
        } else {
            drop(block->bytes);
        }
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
/* ---- pools ---- */

CUresult cuDeviceGetMemPool(struct pool **out, int device) {
    *out = current_pools[device] ? current_pools[device] : &default_pools[device];
    return OK;
}
CUresult cuDeviceSetMemPool(int device, struct pool *pool) { current_pools[device] = pool; return OK; }
CUresult cuMemPoolCreate(struct pool **out, const void *props) {
    (void)props;
    *out = calloc(1, sizeof **out);
    return OK;
}
CUresult cuMemPoolDestroy(struct pool *pool) {
    pthread_mutex_lock(&lock);
    drop(pool->reserved);
    for (struct block *block = blocks; block; block = block->next) {
        if (block->pool == pool) { /* what is still used goes on without it */
            block->pool = NULL;
            grab(block->bytes);
        }
    }
    free(pool);
    pthread_mutex_unlock(&lock);
    return OK;
}
CUresult cuMemPoolSetAttribute(struct pool *pool, int what, void *value) {
    if (what == 4) {
        pool->threshold = *(uint64_t *)value;
    }
    return OK;
}
CUresult cuMemPoolGetAttribute(struct pool *pool, int what, void *value) {
    pthread_mutex_lock(&lock);
    *(uint64_t *)value = what == 5 ? pool->reserved : what == 7 ? pool->live : pool->threshold;
    pthread_mutex_unlock(&lock);
    return OK;
}
CUresult cuMemPoolTrimTo(struct pool *pool, size_t keep) {
    pthread_mutex_lock(&lock);
    stats->trims++;
    pool_shrink(pool, keep);
    pthread_mutex_unlock(&lock);
    return OK;
}

static CUresult take_ordered(CUdeviceptr *out, size_t bytes, struct pool *pool, struct stream *stream) {
    static CUdeviceptr next = 0x600000000000ull;
    struct context *context = current();
    if (!context) {
        return NO_CONTEXT;
    }
    if (stream->capturing) { /* becomes a node: memory is taken when the graph is launched */
        stream->graph->bytes += bytes;
        *out = __atomic_fetch_add(&next, 0x100000000ull, __ATOMIC_SEQ_CST);
        return OK;
    }
    if (!pool) {
        cuDeviceGetMemPool(&pool, context->device);
    }
    return take_from(out, bytes, pool);
}
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, void *stream) {
    return take_ordered(out, bytes, NULL, stream_of(stream, 0));
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, void *stream) {
    return take_ordered(out, bytes, NULL, stream_of(stream, 1));
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, struct pool *pool, void *stream) {
    return take_ordered(out, bytes, pool, stream_of(stream, 0));
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, struct pool *pool, void *stream) {
    return take_ordered(out, bytes, pool, stream_of(stream, 1));
}
CUresult cuMemFreeAsync(CUdeviceptr ptr, void *stream) { return stream_of(stream, 0)->capturing ? OK : give(ptr); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, void *stream) { return stream_of(stream, 1)->capturing ? OK : give(ptr); }

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = GPU_BYTES;
    *free_bytes = GPU_BYTES - stub_allocated();
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

/* ---- shared between processes: the handle says how large it is, and where it was ---- */

struct shared { CUdeviceptr ptr; uint64_t bytes; char rest[48]; };
static uint64_t size_of(CUdeviceptr ptr) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (struct block *block = blocks; block; block = block->next) {
        bytes = block->ptr == ptr ? block->bytes : bytes;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}
CUresult cuIpcGetMemHandle(struct shared *out, CUdeviceptr ptr) {
    *out = (struct shared){ptr, size_of(ptr), {0}};
    return out->bytes ? OK : INVALID;
}
/* An address of its own, which holds the size: nothing is allocated. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, struct shared handle, unsigned flags) {
    (void)flags;
    *out = 0x5000000000000000ull | handle.bytes;
    return OK;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, struct shared handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr ptr) { (void)ptr; return OK; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr) {
    *base = ptr;
    *bytes = ptr >> 60 == 5 ? ptr & 0x0fffffffffffffffull : size_of(ptr);
    return OK;
}
CUresult cuMemExportToShareableHandle(struct shared *out, CUdeviceptr handle, int type, unsigned long long flags) {
    (void)type, (void)flags;
    return cuIpcGetMemHandle(out, handle);
}
CUresult cuMemImportFromShareableHandle(CUdeviceptr *out, struct shared *handle, int type) {
    (void)type;
    *out = 0x5000000000000000ull | handle->bytes;
    return OK;
}

/* ---- modules: the image says how large its static arrays are ("static=BYTES") ---- */

static CUresult load(struct module **out, const char *image, int now) {
    uint64_t bytes = strncmp(image, "static=", 7) == 0 ? strtoull(image + 7, NULL, 10) : 0;
    if (now && !grab(bytes)) {
        return OUT_OF_MEMORY;
    }
    *out = malloc(sizeof **out);
    **out = (struct module){bytes, now};
    return OK;
}
CUresult cuModuleLoadData(struct module **out, const char *image) { return load(out, image, 1); }
CUresult cuModuleLoadDataEx(struct module **out, const char *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return load(out, image, 1);
}
CUresult cuModuleUnload(struct module *module) {
    drop(module->loaded ? module->bytes : 0);
    free(module);
    return OK;
}
CUresult cuLibraryLoadData(struct module **out, const char *image, int *jit, void **values, unsigned count, int *how,
                           void **how_values, unsigned how_count) {
    (void)jit, (void)values, (void)count, (void)how, (void)how_values, (void)how_count;
    return load(out, image, 0);
}
CUresult cuLibraryGetModule(struct module **out, struct module *library) {
    if (!library->loaded && !grab(library->bytes)) {
        return OUT_OF_MEMORY;
    }
    library->loaded = 1;
    *out = library;
    return OK;
}
CUresult cuLibraryUnload(struct module *library) { return cuModuleUnload(library); }

CUresult cuCtxSetLimit(int limit, size_t value) {
    static uint64_t heap;
    if (limit == 2) {
        if (!grab(value)) {
            return OUT_OF_MEMORY;
        }
        drop(heap);
        heap = value;
    }
    return OK;
}

/* ---- streams, events, capture ---- */

CUresult cuStreamCreate(struct stream **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof **out); return OK; }
CUresult cuStreamSynchronize(void *handle) { sleep_until(stream_of(handle, 0)->done_ns); return OK; }
CUresult cuStreamSynchronize_ptsz(void *handle) { sleep_until(stream_of(handle, 1)->done_ns); return OK; }
CUresult cuStreamQuery(void *handle) { return now() >= stream_of(handle, 0)->done_ns ? OK : NOT_READY; }

CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    stream->capturing = 1;
    stream->captured_ns = 0;
    stream->graph = calloc(1, sizeof *stream->graph);
    pthread_mutex_lock(&lock);
    captures += mode == 0;
    pthread_mutex_unlock(&lock);
    return OK;
}

CUresult cuStreamEndCapture(struct stream *stream, struct graph **out) {
    stream->capturing = 0;
    captures = 0;
    *out = stream->graph;
    (*out)->ns = (int64_t)stream->captured_ns;
    return OK;
}
CUresult cuStreamGetCaptureInfo_v2(void *handle, int *status, uint64_t *id, struct graph **graph, void *after, size_t *n) {
    struct stream *stream = stream_of(handle, 0);
    (void)after, (void)n;
    *status = stream->capturing;
    *id = 1;
    *graph = stream->capturing ? stream->graph : NULL;
    return OK;
}

CUresult cuGraphCreate(struct graph **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof **out); return OK; }
CUresult cuGraphDestroy(struct graph *graph) { free(graph); return OK; }
struct node_params { char properties[88]; const void *access; size_t access_count, bytes; CUdeviceptr ptr; };
CUresult cuGraphAddMemAllocNode(void **out, struct graph *graph, void **after, size_t count, struct node_params *params) {
    (void)after, (void)count;
    graph->bytes += params->bytes;
    *out = graph;
    return OK;
}
struct any_params { int type, reserved[3]; struct node_params alloc; };
CUresult cuGraphAddNode(void **out, struct graph *graph, void **after, size_t count, struct any_params *params) {
    return params->type == 10 ? cuGraphAddMemAllocNode(out, graph, after, count, &params->alloc) : OK;
}
CUresult cuGraphInstantiateWithFlags(struct exec **out, struct graph *graph, unsigned long long flags) {
    (void)flags;
    *out = malloc(sizeof **out);
    **out = (struct exec){graph->ns, graph->bytes, 0};
    return OK;
}
CUresult cuGraphExecDestroy(struct exec *exec) {
    pthread_mutex_lock(&lock);
    idle_graph_bytes += exec->holds ? exec->bytes : 0;
    pthread_mutex_unlock(&lock);
    free(exec);
    return OK;
}
CUresult cuDeviceGraphMemTrim(int device) {
    (void)device;
    pthread_mutex_lock(&lock);
    drop(idle_graph_bytes);
    idle_graph_bytes = 0;
    pthread_mutex_unlock(&lock);
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
CUresult cuEventSynchronize(struct event *event) { sleep_until(event->at_ns); return OK; }
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
static CUresult launch_graph(struct exec *exec, struct stream *stream) {
    pthread_mutex_lock(&lock);
    int refused = !exec->holds && !grab(exec->bytes);
    exec->holds = !refused;
    pthread_mutex_unlock(&lock);
    return refused ? OUT_OF_MEMORY : run(exec->ns, stream);
}
CUresult cuGraphLaunch(struct exec *exec, void *stream) {
    stats->graph_legacy++;
    return launch_graph(exec, stream_of(stream, 0));
}
CUresult cuGraphLaunch_ptsz(struct exec *exec, void *stream) {
    stats->graph_ptsz++;
    return launch_graph(exec, stream_of(stream, 1));
}

/* Called by copies.c. */
CUresult stub_copy(uint64_t bytes, void *handle, int per_thread, int waits);
CUresult stub_copy(uint64_t bytes, void *handle, int per_thread, int waits) {
    struct stream *stream = stream_of(handle, per_thread);
    pthread_mutex_lock(&lock);
    stats->copies++;
    stats->copied_bytes += bytes;
    pthread_mutex_unlock(&lock);
    CUresult result = run((int64_t)(bytes * 1000 / COPY_BYTES_PER_US), stream);
    if (waits && !stream->capturing) {
        sleep_until(stream->done_ns);
    }
    return result;
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
    E(cuEventSynchronize, 2000) E(cuStreamQuery, 2000) E(cuStreamSynchronize, 2000)
    E(cuCtxSetCurrent, 4000) E(cuCtxSynchronize, 2000) V(cuMemAlloc, 2000, cuMemAlloc) V(cuMemAlloc, 3020, cuMemAlloc_v2)
    V(cuMemAlloc, 14000, cuMemAlloc_v3)
    V(cuMemFree, 2000, cuMemFree) V(cuMemFree, 3020, cuMemFree_v2) V(cuMemGetInfo, 3020, cuMemGetInfo_v2)
    P(cuMemAllocAsync, 11020) P(cuMemFreeAsync, 11020) P(cuMemAllocFromPoolAsync, 11020)
    P(cuLaunchKernelEx, 11060) P(cuLaunchCooperativeKernel, 9000) P(cuGraphLaunch, 10000)
    V(cuLaunchKernel, 4000, cuLaunchKernel) {"cuLaunchKernel", 7000, 1, (void *)cuLaunchKernel_ptsz},
    E(cuModuleGetFunction, 2000) E(cuMemCreate, 10020) E(cuModuleLoadData, 2000) E(cuModuleUnload, 2000)
    E(cuGraphAddMemAllocNode, 11040) E(cuMemPoolDestroy, 11020) E(cuGraphExecDestroy, 10000)
    V(cuGetProcAddress, 11030, cuGetProcAddress) V(cuGetProcAddress, 12000, cuGetProcAddress_v2)
};

void *stub_copy_export(const char *symbol, int version, int per_thread);

static void *best(const char *symbol, int version, uint64_t flags) {
    void *found = stub_copy_export(symbol, version, (flags & 2) != 0);
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
