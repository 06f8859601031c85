/* A service's own side: when it is at work on a GPU, as its busy page tells the offline jobs there.
 *
 * Only observed, nothing is held back, and the driver is asked nothing but whether a stream is being captured. A launch,
 * copy or graph makes its stream (a lane) pending; a synchronisation or query that finds the stream done, with nothing
 * launched on it since, ends that. The service is busy while any lane is pending. A lane whose end nobody looks at (work
 * handed on to another stream) counts until the lease is over: it follows from how long ends were waited for so far.
 *
 * A request is often several passes with a little Python between them. The pauses are counted by length, and the linger,
 * for which a pause still counts as busy, is the one that costs least: a pause that is longer costs the neighbour the
 * linger and the service one wait for the neighbour's work in flight.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define LANES 1024u
#define EVENTS 4096u
#define PROBES 8u
#define LEASE_LEAST_US 5000u
#define LEASE_MOST_US 1000000u
#define LEASE_FIRST_US 20000u
#define PAUSES 9             /* up to 16, 32, ... 4096 us */
#define FIRST_PAUSE_NS 16000ll
#define INTERRUPTED_NS (2 * MS_NS) /* what meeting the neighbour's work is weighed with */
#define RECKON_EVERY 64u

struct lane {
    _Atomic uint64_t key;
    _Atomic uint64_t state; /* launches so far, twice; plus 1 while pending */
    _Atomic int gpu;        /* its row on the page */
};

struct recorded {
    _Atomic uint64_t key;
    _Atomic(struct lane *) lane;
    _Atomic uint64_t state;
};

_Atomic int observing = -1;
static _Atomic(struct busy_process *) mine;
static struct busy_page *page;
static struct lane lanes[LANES];
static struct recorded events[EVENTS];
static _Atomic int pending[MAX_GPUS]; /* lanes */
static struct {
    _Atomic uint32_t count[PAUSES + 1];
    _Atomic uint32_t total;
} pauses[MAX_GPUS];
static pthread_mutex_t claiming = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER; /* from idle to busy and back, one at a time */
static sem_t claimed;
static bool tried;

int observe_look(void) {
    const char *path = setting("FAIRLEAD_SHIM_BUSY");
    int found = path && *path;
    atomic_store(&observing, found);
    return found;
}

/* ---- the slot ---- */

static void init_owner(struct shared_lock *made) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&made->mutex, &how);
    pthread_mutexattr_destroy(&how);
}

static struct busy_process *own_a_slot(void) {
    for (unsigned i = 0; i < BUSY_PROCESSES; i++) {
        struct busy_process *slot = &page->processes[i];
        if (i >= atomic_load(&page->processes_used)) {
            init_owner(&slot->owner);
        } else if (atomic_load(&slot->owner.word) & FUTEX_TID_MASK) {
            continue;
        }
        memset((char *)slot + offsetof(struct busy_process, pid), 0, sizeof *slot - offsetof(struct busy_process, pid));
        int result = pthread_mutex_trylock(&slot->owner.mutex);
        if (result == EOWNERDEAD) {
            pthread_mutex_consistent(&slot->owner.mutex);
        }
        if (result == 0 || result == EOWNERDEAD) {
            for (unsigned g = 0; g < MAX_GPUS; g++) {
                atomic_store(&slot->marks[g].lease_us, LEASE_FIRST_US);
            }
            atomic_store(&slot->pid, (uint32_t)getpid());
            if (i >= atomic_load(&page->processes_used)) {
                atomic_store(&page->processes_used, i + 1);
            }
            return slot;
        }
    }
    return NULL;
}

static struct busy_page *map_busy(int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(struct busy_page)) {
        return NULL;
    }
    void *memory = mmap(NULL, sizeof(struct busy_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct busy_page *found = memory == MAP_FAILED ? NULL : memory;
    return found && found->magic == BUSY_MAGIC && found->version == PAGE_VERSION ? found : NULL;
}

/* On a thread that does nothing else: it owns the slot for as long as the process lives. */
static void *keep(void *unused) {
    (void)unused;
    const char *path = setting("FAIRLEAD_SHIM_BUSY");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct busy_process *slot = NULL;
    if (fd >= 0 && flock(fd, LOCK_EX) == 0) {
        page = map_busy(fd);
        slot = page ? own_a_slot() : NULL;
        flock(fd, LOCK_UN);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (!slot) {
        log_line("busy page %s can't be used: neighbours do not see when this service is busy", path);
    }
    atomic_store_explicit(&mine, slot, memory_order_release);
    sem_post(&claimed);
    while (slot) {
        nap_ns(3600 * SECOND_NS);
    }
    return NULL;
}

static __attribute__((noinline)) struct busy_process *claim(void) {
    pthread_mutex_lock(&claiming);
    if (!tried) {
        tried = true;
        sem_init(&claimed, 0, 0);
        if (start_thread(keep)) {
            while (sem_wait(&claimed) < 0 && errno == EINTR) {
            }
        }
    }
    struct busy_process *slot = atomic_load(&mine);
    pthread_mutex_unlock(&claiming);
    return slot;
}

static int row_of(const struct gpu *gpu) {
    static const uint8_t any[16];
    for (unsigned i = 0; i < page->gpu_count && i < MAX_GPUS; i++) {
        if (memcmp(page->gpus[i], gpu->uuid, 16) == 0 || memcmp(page->gpus[i], any, 16) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- busy and idle ---- */

static void reckon_linger(struct busy_mark *mark, int row) {
    uint64_t longer = 0, best = UINT64_MAX, below_ns = 0;
    for (int i = 0; i <= PAUSES; i++) {
        longer += atomic_load(&pauses[row].count[i]);
    }
    uint32_t linger_us = 0;
    for (int i = -1; i < PAUSES; i++) {
        uint64_t bound_ns = i < 0 ? 0 : (uint64_t)FIRST_PAUSE_NS << i;
        if (i >= 0) {
            uint64_t count = atomic_load(&pauses[row].count[i]);
            longer -= count;
            below_ns += count * bound_ns;
        }
        uint64_t cost = below_ns + longer * (bound_ns + (uint64_t)INTERRUPTED_NS);
        if (cost < best) {
            best = cost;
            linger_us = (uint32_t)(bound_ns / 1000);
        }
    }
    atomic_store(&mark->linger_us, linger_us);
    for (int i = 0; i <= PAUSES; i++) { /* what was long ago counts for less */
        atomic_store(&pauses[row].count[i], atomic_load(&pauses[row].count[i]) / 2);
    }
}

static void count_pause(struct busy_mark *mark, int row, int64_t ns) {
    int i = 0;
    while (i < PAUSES && ns > FIRST_PAUSE_NS << i) {
        i++;
    }
    atomic_fetch_add(&pauses[row].count[i], 1);
    if (atomic_fetch_add(&pauses[row].total, 1) % RECKON_EVERY == RECKON_EVERY - 1) {
        reckon_linger(mark, row);
    }
}

static void turn(int row, int64_t now) {
    struct busy_mark *mark = &atomic_load(&mine)->marks[row];
    pthread_mutex_lock(&turning);
    bool busy = atomic_load(&pending[row]) > 0;
    uint64_t since = atomic_load(&mark->since_ns), idle = atomic_load(&mark->idle_ns);
    if (busy && !since) {
        atomic_store(&mark->touched_ns, (uint64_t)now);
        atomic_store_explicit(&mark->since_ns, (uint64_t)now, memory_order_release);
        atomic_fetch_add(&mark->stretches, 1);
        if (!idle || now - (int64_t)idle >= (int64_t)atomic_load(&mark->linger_us) * 1000) {
            atomic_fetch_add(&mark->requests, 1);
        }
        if (idle) {
            count_pause(mark, row, now - (int64_t)idle);
        }
    } else if (!busy && since) {
        atomic_store(&mark->idle_ns, (uint64_t)now);
        atomic_fetch_add(&mark->busy_ns, (uint64_t)(now - (int64_t)since));
        atomic_store_explicit(&mark->since_ns, 0, memory_order_release);
    }
    pthread_mutex_unlock(&turning);
}

static struct lane *lane_of(CUstream stream) {
    static __thread char own;
    uint64_t key = (uint64_t)(uintptr_t)(stream == CU_STREAM_PER_THREAD ? (void *)&own : stream == (CUstream)1 ? NULL : stream);
    key = (key * 0x9e3779b97f4a7c15ull) | 1;
    for (unsigned i = 0, at = (unsigned)(key >> 40); i < PROBES; i++, at++) {
        struct lane *lane = &lanes[at % LANES];
        uint64_t seen = atomic_load_explicit(&lane->key, memory_order_relaxed);
        if (seen == key || (!seen && (atomic_compare_exchange_strong(&lane->key, &seen, key) || seen == key))) {
            return lane;
        }
    }
    return &lanes[0]; /* shared by the crowd: its work ends a little late */
}

void observe_launch(CUstream stream, const struct gpu *gpu) {
    struct busy_process *slot = atomic_load_explicit(&mine, memory_order_acquire);
    slot = LIKELY(slot) ? slot : claim();
    gpu = gpu ? gpu : gpu_current();
    int row = slot && gpu ? row_of(gpu) : -1;
    if (row < 0) {
        return;
    }
    struct lane *lane = lane_of(stream);
    uint64_t state = atomic_load(&lane->state);
    if (!(state & 1) && flight_capturing(stream)) {
        return; /* recorded into a graph: no work yet */
    }
    int64_t now = now_ns();
    bool began = false;
    for (;;) {
        began = !(state & 1);
        if (began) { /* before anybody can see it pending, and so end it */
            atomic_fetch_add(&pending[row], 1);
            atomic_store(&lane->gpu, row);
        }
        if (atomic_compare_exchange_strong(&lane->state, &state, (state + 2) | 1)) {
            break;
        }
        if (began) {
            atomic_fetch_sub(&pending[row], 1);
        }
    }
    atomic_store_explicit(&slot->marks[row].touched_ns, (uint64_t)now, memory_order_relaxed);
    if (began || !atomic_load_explicit(&slot->marks[row].since_ns, memory_order_relaxed)) {
        turn(row, now);
    }
}

/* ---- ends ---- */

static void learn_lease(struct busy_mark *mark, int64_t now) {
    int64_t took_us = (now - (int64_t)atomic_load(&mark->touched_ns)) / 1000;
    int64_t lease = atomic_load(&mark->lease_us), wanted = 2 * took_us;
    wanted = wanted > LEASE_MOST_US ? LEASE_MOST_US : wanted < LEASE_LEAST_US ? LEASE_LEAST_US : wanted;
    lease = wanted > lease ? wanted : lease - (lease - wanted) / 64; /* up at once, down slowly */
    atomic_store(&mark->lease_us, (uint32_t)lease);
}

/* The lane is done as of `state`, which was read before the call that says so. */
static void ended(struct lane *lane, uint64_t state, bool learn) {
    if ((state & 1) && atomic_compare_exchange_strong(&lane->state, &state, state & ~1ull)) {
        int row = atomic_load(&lane->gpu);
        int64_t now = now_ns();
        struct busy_process *slot = atomic_load(&mine);
        if (!slot) {
            return;
        }
        if (learn) {
            learn_lease(&slot->marks[row], now);
        }
        if (atomic_fetch_sub(&pending[row], 1) == 1) {
            turn(row, now);
        }
    }
}

void observe_waited(CUstream stream) {
    struct lane *lane = lane_of(stream);
    ended(lane, atomic_load(&lane->state), false);
}

static void waiting(int by) {
    struct busy_process *slot = atomic_load_explicit(&mine, memory_order_acquire);
    for (unsigned i = 0; slot && i < page->gpu_count && i < MAX_GPUS; i++) {
        if (by < 0) {
            atomic_store(&slot->marks[i].touched_ns, (uint64_t)now_ns());
        }
        atomic_fetch_add(&slot->marks[i].waiting, (uint32_t)by);
    }
}

static void looked(struct lane *lane) {
    struct busy_process *slot = atomic_load_explicit(&mine, memory_order_acquire);
    if (slot && (atomic_load(&lane->state) & 1)) {
        atomic_store(&slot->marks[atomic_load(&lane->gpu)].touched_ns, (uint64_t)now_ns());
    }
}
#define WAITS(call, lane, state)                                \
    do {                                                        \
        waiting(1);                                             \
        CUresult result = call;                                 \
        if (result == CUDA_SUCCESS && (lane)) {                 \
            ended((lane), (state), true);                       \
        }                                                       \
        waiting(-1);                                            \
        return result;                                          \
    } while (0)

EXPORT CUresult cuCtxSynchronize(void) {
    NEEDS(cuCtxSynchronize);
    if (!is_observed()) {
        return real.cuCtxSynchronize();
    }
    uint64_t *states = __builtin_alloca(sizeof(uint64_t) * LANES);
    for (unsigned i = 0; i < LANES; i++) {
        states[i] = atomic_load_explicit(&lanes[i].state, memory_order_acquire);
    }
    waiting(1);
    CUresult result = real.cuCtxSynchronize();
    struct gpu *gpu = gpu_current();
    int row = page && gpu ? row_of(gpu) : -1;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < LANES; i++) {
        if ((states[i] & 1) && atomic_load(&lanes[i].gpu) == row) { /* other GPUs have contexts of their own */
            ended(&lanes[i], states[i], true);
        }
    }
    waiting(-1);
    return result;
}

#define STREAM_WAITS(name, on)                                           \
    EXPORT CUresult name(CUstream stream) {                              \
        NEEDS(name);                                                     \
        if (!is_observed()) {                                            \
            return real.name(stream);                                    \
        }                                                                \
        struct lane *lane = lane_of(on(stream));                         \
        uint64_t state = atomic_load(&lane->state);                      \
        WAITS(real.name(stream), lane, state);                           \
    }
STREAM_WAITS(cuStreamSynchronize, LEGACY)
STREAM_WAITS(cuStreamSynchronize_ptsz, PER_THREAD)

#define STREAM_LOOKS(name, on)                                           \
    EXPORT CUresult name(CUstream stream) {                              \
        NEEDS(name);                                                     \
        if (!is_observed()) {                                            \
            return real.name(stream);                                    \
        }                                                                \
        struct lane *lane = lane_of(on(stream));                         \
        uint64_t state = atomic_load(&lane->state);                      \
        CUresult result = real.name(stream);                             \
        if (result == CUDA_SUCCESS) {                                    \
            ended(lane, state, true);                                    \
        } else {                                                         \
            looked(lane);                                                \
        }                                                                \
        return result;                                                   \
    }
STREAM_LOOKS(cuStreamQuery, LEGACY)
STREAM_LOOKS(cuStreamQuery_ptsz, PER_THREAD)

/* ---- events: they end what was launched before them ---- */

static struct recorded *recorded_of(CUevent event) {
    uint64_t key = ((uint64_t)(uintptr_t)event * 0x9e3779b97f4a7c15ull) | 1;
    return &events[(key >> 40) % EVENTS];
}

static void note_record(CUevent event, CUstream stream) {
    struct recorded *at = recorded_of(event);
    struct lane *lane = lane_of(stream);
    atomic_store(&at->key, 0); /* whoever reads it meanwhile finds nothing */
    atomic_store(&at->lane, lane);
    atomic_store(&at->state, atomic_load(&lane->state));
    atomic_store(&at->key, (uint64_t)(uintptr_t)event);
}

static struct lane *recorded_lane(CUevent event, uint64_t *state) {
    struct recorded *at = recorded_of(event);
    struct lane *lane = atomic_load(&at->lane);
    *state = atomic_load(&at->state);
    return atomic_load(&at->key) == (uint64_t)(uintptr_t)event ? lane : NULL;
}

#define RECORDS(name, params, names, on)            \
    EXPORT CUresult name params {                   \
        NEEDS(name);                                \
        if (is_observed()) {                        \
            note_record(event, on(stream));         \
        }                                           \
        return real.name names;                     \
    }
RECORDS(cuEventRecord, (CUevent event, CUstream stream), (event, stream), LEGACY)
RECORDS(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream), PER_THREAD)
RECORDS(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags), LEGACY)
RECORDS(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags), PER_THREAD)

EXPORT CUresult cuEventSynchronize(CUevent event) {
    NEEDS(cuEventSynchronize);
    if (!is_observed()) {
        return real.cuEventSynchronize(event);
    }
    uint64_t state = 0;
    struct lane *lane = recorded_lane(event, &state);
    WAITS(real.cuEventSynchronize(event), lane, state);
}

EXPORT CUresult cuEventQuery(CUevent event) {
    NEEDS(cuEventQuery);
    if (!is_observed()) {
        return real.cuEventQuery(event);
    }
    uint64_t state = 0;
    struct lane *lane = recorded_lane(event, &state);
    CUresult result = real.cuEventQuery(event);
    if (lane && result == CUDA_SUCCESS) {
        ended(lane, state, true);
    } else if (lane) {
        looked(lane);
    }
    return result;
}

void observe_after_fork(void) {
    pthread_mutex_init(&claiming, NULL);
    pthread_mutex_init(&turning, NULL);
    atomic_store(&mine, NULL);
    tried = false;
    memset(lanes, 0, sizeof lanes);
    memset(events, 0, sizeof events);
    memset(pending, 0, sizeof pending);
}
