/* Waiting for work in flight before the process goes, on a helper thread.
 *
 * A signal handler may not call the driver, and the thread it interrupted may hold the driver's locks. So a helper
 * thread, started when CUDA is initialised, does it; and since a synchronisation can't be given a time limit, the
 * helper lets yet another thread make that call and stops waiting for it at the limit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

#define MAX_DRAINED 64
#define SETTLE_NS (2 * MS_NS)
#define PARK_NS (20 * MS_NS)
#define CAPTURE_ERRORS_FIRST 900
#define CAPTURE_ERRORS_LAST 908
#define CAPTURE_WAIT_NS (2 * SECOND_NS)
#define QUICK_EXIT_S 5.0

_Atomic bool closing;

static sem_t wake, drained;
static _Atomic int death_signal;
static _Atomic unsigned requested, finished;
static _Atomic bool release_wanted, left_by_signal;
static _Atomic pid_t owner; /* 0: no helper in this process */
static double drain_s;

static void synchronize(CUcontext context) {
    int64_t deadline = now_ns() + CAPTURE_WAIT_NS;
    if (real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        return;
    }
    for (;;) {
        CUresult result = real.cuCtxSynchronize();
        /* Refused while a stream is captured; other errors mean that there is nothing left to wait for. */
        if (result < CAPTURE_ERRORS_FIRST || result > CAPTURE_ERRORS_LAST || now_ns() > deadline) {
            break;
        }
        nap_ns(10 * MS_NS);
    }
    CUcontext popped;
    real.cuCtxPopCurrent_v2(&popped);
}

static void destroy(const struct context *context) {
    if (!context->primary) {
        cuCtxDestroy_v2(context->handle); /* our own hook: it also forgets what belonged to the context */
    } else if (real.cuDevicePrimaryCtxReset_v2) {
        cuDevicePrimaryCtxReset_v2(context->device);
    } else {
        cuDevicePrimaryCtxReset(context->device);
    }
}

static void *drain_all(void *unused) {
    (void)unused;
    struct context contexts[MAX_DRAINED];
    int count = contexts_copy(contexts, MAX_DRAINED);
    nap_ns(SETTLE_NS); /* a launch that had passed the gate already */
    for (int i = 0; i < count; i++) {
        synchronize(contexts[i].handle);
    }
    if (atomic_load(&release_wanted)) {
        /* Threads that were waiting for the GPU go on now, up to the gate. Let them get there, and drain what else they
         * handed in on the way: a context is best destroyed while nobody is in a call on it. */
        nap_ns(PARK_NS);
        for (int i = 0; i < count; i++) {
            synchronize(contexts[i].handle);
            destroy(&contexts[i]);
        }
    }
    sem_post(&drained);
    return NULL;
}

static bool wait_until(sem_t *semaphore, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += ns / SECOND_NS;
    until.tv_nsec = ns % SECOND_NS;
    int result;
    while ((result = sem_timedwait(semaphore, &until)) < 0 && errno == EINTR) {
    }
    return result == 0;
}

bool start_thread(void *(*body)(void *)) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: the program's signals stay with its threads */
    bool started = pthread_create(&thread, NULL, body, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        pthread_detach(thread);
    }
    return started;
}

static void drain(double seconds) {
    struct context any;
    if (contexts_copy(&any, 1) == 0) {
        return;
    }
    if (!start_thread(drain_all)) {
        log_line("no thread to drain with");
    } else if (!wait_until(&drained, seconds)) {
        log_line("work was still in flight after %g s", seconds);
    }
}

static void *help(void *unused) {
    (void)unused;
    for (;;) {
        bool woken = wait_until(&wake, 1.0);
        int signal_number = atomic_load(&death_signal);
        unsigned wanted = atomic_load(&requested);
        if (signal_number) {
            atomic_store(&closing, true);
            atomic_store(&usage_mine()->state, STATE_CLOSING);
            log_line("signal %d: draining", signal_number);
            atomic_store(&release_wanted, true);
            drain(drain_s);
            atomic_store(&usage_mine()->state, STATE_DRAINED);
            log_line("signal %d: drained", signal_number);
            signals_die(signal_number);
        } else if (wanted != atomic_load(&finished)) {
            drain(drain_s);
            atomic_store(&finished, wanted);
        } else if (!woken) {
            signals_check();
        }
    }
    return NULL;
}

/* For a thread that is about to end the process. Async-signal-safe, for handlers that call _exit. */
static void drain_and_wait(double seconds) {
    if (atomic_load(&owner) != getpid()) {
        return;
    }
    int64_t deadline = now_ns() + (int64_t)(seconds * 1e9);
    unsigned ticket = atomic_fetch_add(&requested, 1) + 1;
    sem_post(&wake);
    while ((int)(atomic_load(&finished) - ticket) < 0 && now_ns() < deadline) {
        nap_ns(100000);
    }
    while (atomic_load(&death_signal) && now_ns() < deadline) {
        nap_ns(MS_NS); /* the helper ends the process itself, by the signal */
    }
}

static void at_exit(void) {
    drain_and_wait(drain_s + 1);
}

/* After the last of the program's own destructors. Only where a signal asked for the exit: a normal end must not differ
 * from one without the shim. Where the driver has shut itself down already, this is refused, and rightly so. */
static __attribute__((destructor)) void at_very_end(void) {
    if (atomic_load(&left_by_signal) && atomic_load(&owner) == getpid()) {
        atomic_store(&release_wanted, true);
        drain_and_wait(drain_s + 1);
    }
}

EXPORT __attribute__((noreturn)) void _exit(int status) {
    drain_and_wait(drain_s < QUICK_EXIT_S ? drain_s : QUICK_EXIT_S);
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

EXPORT __attribute__((noreturn)) void _Exit(int status) {
    _exit(status);
}

bool drain_start(void) {
    static _Atomic bool registered;
    sem_init(&wake, 0, 0);
    sem_init(&drained, 0, 0);
    drain_s = setting_s("FAIRLEAD_SHIM_DRAIN_S", 30);
    if (!start_thread(help)) {
        return false;
    }
    atomic_store(&owner, getpid());
    if (!atomic_exchange(&registered, true)) {
        atexit(at_exit);
    }
    return true;
}

void drain_request_death(int signal_number) {
    int none = 0;
    atomic_compare_exchange_strong(&death_signal, &none, signal_number);
    sem_post(&wake);
}

void drain_note_stopping(void) {
    atomic_store(&left_by_signal, true);
}

void drain_after_fork(void) {
    atomic_store(&owner, 0); /* threads don't survive fork */
    atomic_store(&closing, false);
    atomic_store(&death_signal, 0);
    atomic_store(&left_by_signal, false);
    atomic_store(&release_wanted, false);
    atomic_store(&finished, atomic_load(&requested));
}
