/* Time that passes by what programs do, not by what the machine lets them do: preloaded before the shim.
 *
 * STUB_CLOCK names a file with the time in it. A thread that has joined sees that time: reading it costs READ_NS, and a
 * sleep takes no longer than it takes the other joined threads, of any process, to sleep as well; then the time is that
 * of the first one to wake. It never passes `limit_ns`, which a test moves: whoever would wake later waits for that.
 * So a program gets as far in a second of that time on a busy machine as on a quiet one. Other threads (the shim's
 * helpers, everybody before joining and after leaving) sleep for real, and time passes with them if nobody has joined.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll
#define READ_NS 100
#define SLEEPERS 32
#define LOOK_EVERY_NS 2000000 /* for a limit that has moved, or a party that has joined */

struct shared { /* tests/node/shim/virtual.py has the first four as well */
    int64_t now_ns, limit_ns;
    int32_t expected, awake; /* parties; until all have joined, time stands still */
    int32_t joined, ready;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t until_ns[SLEEPERS]; /* 0: nobody */
};

static struct shared *shared;
static __thread int member;

static int64_t real_now(clockid_t which) {
    struct timespec t;
    syscall(SYS_clock_gettime, which, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static __attribute__((constructor)) void open_clock(void) {
    const char *path = getenv("STUB_CLOCK");
    int fd = path && !shared ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) {
        return;
    }
    struct shared *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    int32_t none = 0;
    if (__atomic_compare_exchange_n(&mapped->ready, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        pthread_mutexattr_t mutex;
        pthread_condattr_t cond;
        pthread_mutexattr_init(&mutex);
        pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
        pthread_condattr_init(&cond);
        pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&mapped->lock, &mutex);
        pthread_cond_init(&mapped->changed, &cond);
        __atomic_store_n(&mapped->ready, 2, __ATOMIC_SEQ_CST);
    }
    while (__atomic_load_n(&mapped->ready, __ATOMIC_SEQ_CST) != 2) {
        sched_yield();
    }
    shared = mapped;
}

static int64_t limit(void) { return __atomic_load_n(&shared->limit_ns, __ATOMIC_SEQ_CST); }

/* These four with the lock held. */
static void set_now(int64_t ns) {
    __atomic_store_n(&shared->now_ns, ns, __ATOMIC_SEQ_CST);
    int woken = 0;
    for (int i = 0; i < SLEEPERS; i++) {
        if (shared->until_ns[i] && shared->until_ns[i] <= ns) {
            shared->until_ns[i] = 0;
            woken++;
        }
    }
    if (woken) {
        __atomic_add_fetch(&shared->awake, woken, __ATOMIC_SEQ_CST);
        pthread_cond_broadcast(&shared->changed);
    }
}

static void wait_for_change(void) {
    int64_t ns = real_now(CLOCK_REALTIME) + LOOK_EVERY_NS;
    struct timespec until = {ns / SECOND_NS, ns % SECOND_NS};
    pthread_cond_timedwait(&shared->changed, &shared->lock, &until);
}

/* All sleep: on to the first who wakes, or as far as the test lets it. */
static void go_on(void) {
    int64_t first = INT64_MAX;
    for (int i = 0; i < SLEEPERS; i++) {
        first = shared->until_ns[i] && shared->until_ns[i] < first ? shared->until_ns[i] : first;
    }
    if (first <= limit()) {
        set_now(first);
    } else if (shared->now_ns < limit()) {
        set_now(limit());
    } else {
        wait_for_change();
    }
}

static void sleep_for(int64_t ns) {
    int mine = 0;
    while (shared->until_ns[mine]) {
        mine++;
    }
    shared->until_ns[mine] = shared->now_ns + (ns > 0 ? ns : 1);
    __atomic_sub_fetch(&shared->awake, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&shared->changed);
    int64_t until = shared->until_ns[mine];
    while (shared->until_ns[mine] == until) { /* nobody else can have taken it: it would be for later */
        if (shared->awake == 0 && shared->joined >= shared->expected) {
            go_on();
        } else {
            wait_for_change();
        }
    }
}

/* A thread takes part from here on; threads that it makes do so themselves. */
void stub_clock_join(void) {
    if (shared && !member) {
        member = 1;
        pthread_mutex_lock(&shared->lock);
        __atomic_add_fetch(&shared->awake, 1, __ATOMIC_SEQ_CST);
        shared->joined++;
        while (shared->joined < shared->expected) {
            wait_for_change();
        }
        pthread_cond_broadcast(&shared->changed);
        pthread_mutex_unlock(&shared->lock);
    }
}

void stub_clock_leave(void) {
    if (shared && member) {
        member = 0;
        pthread_mutex_lock(&shared->lock);
        __atomic_sub_fetch(&shared->awake, 1, __ATOMIC_SEQ_CST);
        shared->joined--;
        shared->expected = shared->expected > 0 ? shared->expected - 1 : 0;
        pthread_cond_broadcast(&shared->changed);
        pthread_mutex_unlock(&shared->lock);
    }
}

int clock_gettime(clockid_t which, struct timespec *out) {
    if (!shared || which != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, which, out);
    }
    pthread_mutex_lock(&shared->lock);
    if (member && shared->now_ns + READ_NS > limit()) {
        sleep_for(READ_NS);
    } else if (member) {
        set_now(shared->now_ns + READ_NS);
    }
    int64_t ns = shared->now_ns;
    pthread_mutex_unlock(&shared->lock);
    *out = (struct timespec){ns / SECOND_NS, ns % SECOND_NS};
    return 0;
}

int nanosleep(const struct timespec *asked, struct timespec *rest) {
    int64_t ns = asked->tv_sec * SECOND_NS + asked->tv_nsec;
    if (!shared || !member) {
        int result = (int)syscall(SYS_nanosleep, asked, rest);
        if (shared) {
            pthread_mutex_lock(&shared->lock);
            if (shared->joined == 0 && shared->expected == 0) {
                set_now(shared->now_ns + ns);
            }
            pthread_mutex_unlock(&shared->lock);
        }
        return result;
    }
    pthread_mutex_lock(&shared->lock);
    sleep_for(ns);
    pthread_mutex_unlock(&shared->lock);
    return 0;
}

/* What Python sleeps by. */
int clock_nanosleep(clockid_t which, int flags, const struct timespec *asked, struct timespec *rest) {
    if (!shared || !member || which != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_nanosleep, which, flags, asked, rest) ? errno : 0;
    }
    int64_t ns = asked->tv_sec * SECOND_NS + asked->tv_nsec;
    pthread_mutex_lock(&shared->lock);
    sleep_for(flags & TIMER_ABSTIME ? ns - shared->now_ns : ns);
    pthread_mutex_unlock(&shared->lock);
    return 0;
}
