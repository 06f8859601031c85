/* Small CUDA programs that link the driver directly. First argument: what to do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long ptr_t;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuMemFree_v2(ptr_t);
int cuStreamCreate(void **, unsigned);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *function(const char *name) {
    void *f = NULL;
    cuModuleGetFunction(&f, NULL, name);
    return f;
}

static int launch(void *f) {
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static double by_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double seconds(void) {
    return by_clock(CLOCK_MONOTONIC);
}

/* The virtual clock, where it is preloaded. */
void stub_clock_join(void) __attribute__((weak));
void stub_clock_leave(void) __attribute__((weak));

static void join_clock(void) {
    if (stub_clock_join) {
        stub_clock_join();
    }
}

static void leave_clock(void) {
    if (stub_clock_leave) {
        stub_clock_leave();
    }
}

/* ns of CPU per launch, the best of several rounds: what other processes take of the CPU is not in it. */
static void cost(const char *name, long count) {
    void *f = function(name);
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        double began = by_clock(CLOCK_THREAD_CPUTIME_ID);
        for (long i = 0; i < count; i++) {
            launch(f);
        }
        double took = by_clock(CLOCK_THREAD_CPUTIME_ID) - began;
        best = took < best ? took : best;
    }
    printf("%.2f\n", best / (double)count * 1e9);
}

/* Launches kernels as fast as it may for a time, as a training does; several names: in turn. Says how long it was. */
static void keep_busy(double for_s, int count, char **names) {
    void *functions[16];
    for (int i = 0; i < count; i++) {
        functions[i] = function(names[i]);
    }
    join_clock();
    double began = seconds();
    for (long i = 0; seconds() < began + for_s; i++) {
        launch(functions[i % count]);
    }
    printf("%.6f\n", seconds() - began);
    leave_clock();
}

/* ns per pair of allocation and free. */
static void memory_cost(long count) {
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double began = seconds();
        for (long i = 0; i < count; i++) {
            ptr_t p = 0;
            cuMemAlloc_v2(&p, 1 << 20);
            cuMemFree_v2(p);
        }
        double took = seconds() - began;
        best = took < best ? took : best;
    }
    printf("%.2f\n", best / (double)count * 1e9);
}

static void *context;

struct worker {
    double for_s;
    char *name;
};

static void *launch_on_own_stream(void *data) {
    struct worker *worker = data;
    void *stream = NULL, *f = function(worker->name);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 1);
    join_clock();
    double until = seconds() + worker->for_s;
    while (seconds() < until) {
        cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    }
    leave_clock();
    return NULL;
}

/* One thread and stream for each kernel. */
static void busy_threads(double for_s, int count, char **names) {
    pthread_t threads[16];
    struct worker workers[16];
    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){for_s, names[i]};
        pthread_create(&threads[i], NULL, launch_on_own_stream, &workers[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void *hammer_memory(void *out) {
    long granted = 0;
    cuCtxSetCurrent(context);
    for (int i = 0; i < 200; i++) {
        ptr_t p = 0;
        if (cuMemAlloc_v2(&p, 1 << 20) == 0) {
            granted++;
            if (i % 3) {
                cuMemFree_v2(p);
                granted--;
            }
        }
    }
    *(long *)out = granted;
    return NULL;
}

static void race(void) {
    pthread_t threads[8];
    long granted[8], total = 0;
    for (int i = 0; i < 8; i++) {
        pthread_create(&threads[i], NULL, hammer_memory, &granted[i]);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        total += granted[i];
    }
    printf("%ld\n", total);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    if (strcmp(what, "cost") == 0) {
        cost("k0us", atol(argv[2]));
    } else if (strcmp(what, "busy") == 0) {
        keep_busy(atof(argv[2]), argc - 3, argv + 3);
    } else if (strcmp(what, "memory-cost") == 0) {
        memory_cost(atol(argv[2]));
    } else if (strcmp(what, "threads") == 0) {
        busy_threads(atof(argv[2]), argc - 3, argv + 3);
    } else if (strcmp(what, "race") == 0) {
        race();
    } else if (strcmp(what, "leave") == 0) { /* exits with work in flight; argv[2]: how */
        void *f = function("k20000us");
        for (int i = 0; i < 3; i++) {
            launch(f);
        }
        if (strcmp(argv[2], "_exit") == 0) {
            _exit(7);
        }
        exit(7);
    } else if (strcmp(what, "hold") == 0) { /* takes memory and waits to be killed */
        ptr_t p = 0;
        printf("%d\n", cuMemAlloc_v2(&p, (size_t)atol(argv[2]) << 20));
        pause();
    }
    return 0;
}
