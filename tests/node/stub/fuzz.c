/* Random sequences of calls against the shim, with a driver that counts what it has really handed out.
 *
 * fuzz SEED STEPS THREADS QUOTA_MIB [no-fork]. After every step of one thread, and whenever all threads rest, the driver must not
 * have given more than the quota; when everything is given back, nothing may be counted any more.
 *
 * A process forks while the others are in the middle of a call. Not under the address sanitizer: its allocator forgets to
 * let go of its own locks in the child (GCC 12), so there the others rest meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long ptr_t;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSetLimit(int, size_t);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuMemAllocManaged(ptr_t *, size_t, unsigned);
int cuMemAllocPitch_v2(ptr_t *, size_t *, size_t, size_t, unsigned);
int cuMemAllocAsync(ptr_t *, size_t, void *);
int cuMemAllocFromPoolAsync(ptr_t *, size_t, void *, void *);
int cuMemFree_v2(ptr_t);
int cuMemFreeAsync(ptr_t, void *);
int cuMemCreate(ptr_t *, size_t, const int *, unsigned long long);
int cuMemMap(ptr_t, size_t, size_t, ptr_t, unsigned long long);
int cuMemUnmap(ptr_t, size_t);
int cuMemRelease(ptr_t);
int cuMemPoolCreate(void **, const void *);
int cuMemPoolDestroy(void *);
int cuMemPoolSetAttribute(void *, int, void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuIpcGetMemHandle(void *, ptr_t);
int cuModuleLoadData(void **, const void *);
int cuModuleUnload(void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuGraphCreate(void **, unsigned);
int cuGraphDestroy(void *);
int cuGraphAddMemAllocNode(void **, void *, void **, size_t, void *);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphExecDestroy(void *);
int cuGraphLaunch(void *, void *);
int cuStreamCreate(void **, unsigned);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemcpyHtoDAsync_v2(ptr_t, const void *, size_t, void *);
int cuMemcpyDtoH_v2(void *, ptr_t, size_t);
int cuMemsetD32Async(ptr_t, unsigned, size_t, void *);
uint64_t stub_allocated(void);

#define MIB (1ull << 20)
#define MOST 48

enum what { POINTER, ORDERED, HANDLE, MODULE, EXECUTABLE };
struct thing { enum what what; uint64_t key, mapped; };
struct worker {
    uint64_t dice, quota;
    int steps, alone, count;
    void *stream, *pool, *kernel;
    struct thing things[MOST];
};
static void *context;
static pthread_barrier_t rest;
static pthread_rwlock_t stepping = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int handled; /* by any thread */
static int forks = 1; /* the thread sanitizer can't follow a child that starts threads */

static unsigned roll(struct worker *w, unsigned sides) {
    w->dice ^= w->dice << 13, w->dice ^= w->dice >> 7, w->dice ^= w->dice << 17;
    return (unsigned)((w->dice >> 32) % sides);
}

static void check(const struct worker *w, const char *when) {
    if (stub_allocated() > w->quota) {
        fprintf(stderr, "%s: %llu MiB handed out, the quota is %llu\n", when,
                (unsigned long long)(stub_allocated() / MIB), (unsigned long long)(w->quota / MIB));
        abort();
    }
}

static void keep(struct worker *w, int result, enum what what, uint64_t key, uint64_t mapped) {
    if (result == 0) {
        w->things[w->count++] = (struct thing){what, key, mapped};
    }
}

static void give(struct worker *w, int i) {
    struct thing thing = w->things[i];
    w->things[i] = w->things[--w->count];
    switch (thing.what) {
    case POINTER: cuMemFree_v2(thing.key); break;
    case ORDERED: cuMemFreeAsync(thing.key, w->stream); break;
    case HANDLE:
        if (thing.mapped) {
            cuMemUnmap(thing.mapped, 4 * MIB);
        }
        cuMemRelease(thing.key);
        cuMemFree_v2(thing.key); /* the stub's handle is a block that release leaves alone */
        break;
    case MODULE: cuModuleUnload((void *)(uintptr_t)thing.key); break;
    case EXECUTABLE: cuGraphExecDestroy((void *)(uintptr_t)thing.key); break;
    }
}

static void make_graph(struct worker *w, size_t bytes, int captured) {
    void *graph = NULL, *exec = NULL, *node = NULL;
    struct { int head[4]; char rest[72]; void *access; size_t count, bytes; ptr_t ptr; } params = {{1, 0, 1, 0}, "", 0, 0, bytes, 0};
    ptr_t p = 0;
    int result;
    if (captured) { /* thread-local mode: other threads go on */
        cuStreamBeginCapture_v2(w->stream, 1);
        result = cuMemAllocAsync(&p, bytes, w->stream);
        cuLaunchKernel(w->kernel, 1, 1, 1, 1, 1, 1, 0, w->stream, NULL, NULL);
        cuMemsetD32Async(p, 0, 100, w->stream);
        cuStreamEndCapture(w->stream, &graph);
    } else {
        cuGraphCreate(&graph, 0);
        result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
    }
    if (cuGraphInstantiateWithFlags(&exec, graph, 0) == 0) {
        cuGraphLaunch(exec, w->stream);
        keep(w, 0, EXECUTABLE, (uint64_t)(uintptr_t)exec, 0);
    }
    (void)result;
    cuGraphDestroy(graph);
}

static pid_t fork_among_threads(void) {
#ifdef __SANITIZE_ADDRESS__
    pthread_rwlock_unlock(&stepping);
    pthread_rwlock_wrlock(&stepping);
    pid_t pid = fork();
    pthread_rwlock_unlock(&stepping);
    if (pid != 0) {
        pthread_rwlock_rdlock(&stepping);
    }
    return pid;
#else
    return fork();
#endif
}

static void child(struct worker *w) {
    ptr_t p = 0;
    void *mine = NULL;
    pid_t pid = fork_among_threads();
    if (pid == 0) {
        cuInit(0);
        cuDevicePrimaryCtxRetain(&mine, 0);
        cuCtxSetCurrent(mine);
        if (cuMemAlloc_v2(&p, (1 + roll(w, 20)) * MIB) == 0) {
            cuLaunchKernel(w->kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
            cuMemFree_v2(p);
        }
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (pid > 0 && status != 0) {
        fprintf(stderr, "a child ended with %x\n", status);
        abort();
    }
}

static void step(struct worker *w) {
    size_t bytes = (1 + roll(w, 30)) * MIB / (1 + roll(w, 3)), pitch, free_bytes, total;
    static char host[4096];
    char image[64], handle[64];
    ptr_t p = 0;
    void *module = NULL;
    int result;
    const int device[] = {1, 0, 1, 0, 0, 0, 0, 0};
    unsigned kind = roll(w, w->count >= MOST - 2 ? 8 : 24);
    if (kind < 7 && w->count) {
        give(w, (int)roll(w, (unsigned)w->count));
        return;
    }
    switch (kind) {
    case 8: case 9: result = cuMemAlloc_v2(&p, bytes); keep(w, result, POINTER, p, 0); break;
    case 10: result = cuMemAllocManaged(&p, bytes, 1); keep(w, result, POINTER, p, 0); break;
    case 11: result = cuMemAllocPitch_v2(&p, &pitch, 1000, 1 + roll(w, 9000), 16); keep(w, result, POINTER, p, 0); break;
    case 12: case 13: result = cuMemAllocAsync(&p, bytes, w->stream); keep(w, result, ORDERED, p, 0); break;
    case 14: case 15: result = cuMemAllocFromPoolAsync(&p, bytes, w->pool, w->stream); keep(w, result, ORDERED, p, 0); break;
    case 16:
        if (cuMemCreate(&p, 4 * MIB, device, 0) == 0) {
            ptr_t at = (p << 8) + 0x1000000;
            int mapped = roll(w, 2) && cuMemMap(at, 4 * MIB, 0, p, 0) == 0;
            keep(w, 0, HANDLE, p, mapped ? at : 0);
        }
        break;
    case 17:
        snprintf(image, sizeof image, "static=%zu", bytes);
        if (w->alone) { /* what a module takes is measured: others must not allocate past the shim meanwhile */
            result = cuModuleLoadData(&module, image);
            keep(w, result, MODULE, (uint64_t)(uintptr_t)module, 0);
        }
        break;
    case 18: make_graph(w, bytes, 0); break;
    case 19: make_graph(w, bytes, 1); break;
    case 20: cuMemcpyHtoDAsync_v2(0, host, 1 + roll(w, 100000), w->stream); break;
    case 21: cuMemsetD32Async(0, 7, 1 + roll(w, 100000), w->stream), cuMemcpyDtoH_v2(host, 0, 1000); break;
    case 22:
        if (roll(w, 16) == 0 && forks) {
            child(w);
        } else if (roll(w, 8) == 0) {
            raise(SIGINT);
        } else if (w->alone) {
            cuCtxSetLimit(2, roll(w, 8) * MIB);
        }
        break;
    case 23:
        for (int i = 0; i < w->count && w->things[i].what == POINTER; i++) {
            cuIpcGetMemHandle(handle, w->things[i].key);
        }
        cuMemGetInfo_v2(&free_bytes, &total);
        break;
    default: cuLaunchKernel(w->kernel, 1 + roll(w, 64), 1, 1, 1, 1, 1, 0, w->stream, NULL, NULL);
    }
}

static void *work(void *data) {
    struct worker *w = data;
    uint64_t never = 1ull << 62;
    cuCtxSetCurrent(context);
    cuStreamCreate(&w->stream, 1);
    cuMemPoolCreate(&w->pool, NULL);
    cuMemPoolSetAttribute(w->pool, 4, &never);
    cuModuleGetFunction(&w->kernel, NULL, "k3us");
    pthread_barrier_wait(&rest); /* forks begin when all are there, and are over before the first one leaves */
    for (int i = 0; i < w->steps; i++) {
        pthread_rwlock_rdlock(&stepping);
        step(w);
        pthread_rwlock_unlock(&stepping);
        if (w->alone) {
            check(w, "after a step");
        } else if (i % 64 == 63) {
            pthread_barrier_wait(&rest);
            check(w, "while all rest");
            pthread_barrier_wait(&rest);
        }
    }
    pthread_barrier_wait(&rest);
    while (w->count) {
        give(w, w->count - 1);
    }
    cuMemPoolDestroy(w->pool);
    return NULL;
}

static void on_signal(int number) {
    (void)number;
    handled++;
}

int main(int argc, char **argv) {
    unsigned threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    uint64_t quota = (uint64_t)atoi(argv[4]) * MIB;
    struct worker *workers = calloc(threads, sizeof *workers);
    pthread_t *ids = calloc(threads, sizeof *ids);
    forks = argc < 6;
    signal(SIGINT, on_signal);
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    pthread_barrier_init(&rest, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        uint64_t dice = ((uint64_t)atoll(argv[1]) * 0x9e3779b97f4a7c15ull + i + 1) | 1;
        workers[i] = (struct worker){.dice = dice, .quota = quota, .steps = atoi(argv[2]), .alone = threads == 1};
        pthread_create(&ids[i], NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    cuCtxSetLimit(2, 0);
    size_t free_bytes = 0, total = 0;
    cuMemGetInfo_v2(&free_bytes, &total);
    printf("%zu %llu\n", (size_t)(quota - free_bytes), (unsigned long long)stub_allocated());
    free(workers);
    free(ids);
    return free_bytes == quota && total == quota && stub_allocated() == 0 ? 0 : 1;
}
