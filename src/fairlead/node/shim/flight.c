/* Work in flight, and timings: everything that needs events.
 *
 * Markers bound what has been launched and not yet done. After each quantum of estimated GPU time on a stream an event
 * is recorded; while the markers that have not completed stand for more than the cap, launches wait. The wait itself is
 * bounded: a kernel may be waiting for something that only a later launch brings (a collective with a peer, a host
 * flag).
 *
 * Creating and asking events is forbidden to a thread while any stream of the process is captured in global mode, and
 * doing it anyway spoils the capture. So these calls are made in relaxed mode, and never on a stream that is captured.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "shim.h"

#define FLOWS 1024u
#define PROBES 8u
#define MARKERS 256
#define TIMINGS 64
#define HOLD_AT_MOST_NS SECOND_NS
#define HOLD_NAP_NS 100000ll

struct marker {
    CUevent event;
    CUcontext context;
    int ordinal;
    int64_t covers_ns;
};

struct timing {
    CUevent start, end;
    CUcontext context;
    struct gpu *gpu;
    struct cost *cost;
};

static struct flow flows[FLOWS];
static struct flow crowd = {.key = 1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct marker markers[MARKERS];
static int marker_count;
static struct timing timings[TIMINGS];
static int timing_count;
static _Atomic int64_t outstanding_ns[MAX_GPUS];

struct flow *flow_of(CUstream stream, const struct gpu *gpu) {
    static __thread char mine; /* the per-thread default stream has one handle and many streams */
    uint64_t key = stream == CU_STREAM_PER_THREAD ? (uint64_t)(uintptr_t)&mine : (uint64_t)(uintptr_t)stream;
    key = ((key ^ ((uint64_t)gpu->ordinal << 56)) * 0x9e3779b97f4a7c15ull) | 1;
    for (unsigned i = 0, at = (unsigned)(key >> 40); i < PROBES; i++, at++) {
        struct flow *flow = &flows[at % FLOWS];
        uint64_t seen = atomic_load_explicit(&flow->key, memory_order_relaxed);
        if (LIKELY(seen == key)) {
            return flow;
        }
        if (!seen && (atomic_compare_exchange_strong(&flow->key, &seen, key) || seen == key)) {
            return flow;
        }
    }
    return &crowd;
}

bool flight_capturing(CUstream stream) {
    int status = CU_CAPTURE_STATUS_NONE;
    if (!real.cuStreamIsCapturing) {
        return false;
    }
    /* An error means a capture elsewhere that concerns this stream: hands off as well. */
    return real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_CAPTURE_STATUS_NONE;
}

int flight_relax(void) {
    int mode = CU_CAPTURE_MODE_RELAXED;
    if (real.cuThreadExchangeStreamCaptureMode) {
        real.cuThreadExchangeStreamCaptureMode(&mode);
    }
    return mode;
}

void flight_restore(int mode) {
    if (real.cuThreadExchangeStreamCaptureMode) {
        real.cuThreadExchangeStreamCaptureMode(&mode);
    }
}

static CUevent record(CUstream stream, unsigned flags) {
    CUevent event = NULL;
    if (!real.cuEventCreate || real.cuEventCreate(&event, flags) != CUDA_SUCCESS) {
        return NULL;
    }
    if (real.cuEventRecord(event, stream) != CUDA_SUCCESS) {
        real.cuEventDestroy_v2(event);
        return NULL;
    }
    return event;
}

static void settle(const struct timing *timing) {
    float ms = 0;
    if (real.cuEventElapsedTime(&ms, timing->start, timing->end) == CUDA_SUCCESS && ms >= 0) {
        int64_t guessed = atomic_exchange(&timing->cost->guessed_ns, 0);
        int64_t estimate = cost_learn(timing->cost, (uint64_t)((double)ms * 1e6));
        COUNT(samples, 1);
        if (guessed) { /* launches before this were charged by default */
            gate_charge(timing->gpu, guessed / GUESS_NS * estimate - guessed);
        }
    }
    atomic_store(&timing->cost->pending, 0);
}

/* Takes out what has completed. Anything but "not ready" counts as that: a broken context has nothing in flight. */
static void poll(void) {
    pthread_mutex_lock(&lock);
    int mode = flight_relax(), kept = 0;
    for (int i = 0; i < marker_count; i++) {
        if (real.cuEventQuery(markers[i].event) == CUDA_ERROR_NOT_READY) {
            markers[kept++] = markers[i];
        } else {
            real.cuEventDestroy_v2(markers[i].event);
            atomic_fetch_sub(&outstanding_ns[markers[i].ordinal], markers[i].covers_ns);
        }
    }
    marker_count = kept;
    kept = 0;
    for (int i = 0; i < timing_count; i++) {
        if (real.cuEventQuery(timings[i].end) == CUDA_ERROR_NOT_READY) {
            timings[kept++] = timings[i];
        } else {
            settle(&timings[i]);
            real.cuEventDestroy_v2(timings[i].start);
            real.cuEventDestroy_v2(timings[i].end);
        }
    }
    timing_count = kept;
    flight_restore(mode);
    pthread_mutex_unlock(&lock);
}

void flight_mark(struct gpu *gpu, CUstream stream, int64_t covers_ns) {
    int mode = flight_relax();
    CUevent event = record(stream, CU_EVENT_DISABLE_TIMING);
    if (event) {
        CUcontext context = context_seen();
        pthread_mutex_lock(&lock);
        bool room = marker_count < MARKERS;
        if (room) {
            markers[marker_count++] = (struct marker){event, context, gpu->ordinal, covers_ns};
            atomic_fetch_add(&outstanding_ns[gpu->ordinal], covers_ns);
        }
        pthread_mutex_unlock(&lock);
        if (!room) {
            real.cuEventDestroy_v2(event);
        }
    }
    flight_restore(mode);
}

void flight_hold(struct gpu *gpu) {
    poll();
    int64_t cap = control_inflight_ns(gpu), began = 0;
    int64_t nap = cap / 32 < HOLD_NAP_NS ? cap / 32 + 1 : HOLD_NAP_NS; /* a small cap leaves little to sleep through */
    while (atomic_load(&outstanding_ns[gpu->ordinal]) >= cap && !atomic_load(&closing)) {
        int64_t now = now_ns();
        began = began ? began : now;
        if (now - began > HOLD_AT_MOST_NS) {
            COUNT(cap_timeouts, 1);
            break;
        }
        nap_ns(nap);
        poll();
    }
    if (began) {
        COUNT(capped_ns, (uint64_t)(now_ns() - began));
    }
}

bool flight_time_begin(CUstream stream, CUevent *start) {
    poll();
    int mode = flight_relax();
    *start = record(stream, CU_EVENT_DEFAULT);
    flight_restore(mode);
    return *start != NULL;
}

void flight_time_cancel(CUevent start, struct cost *cost) {
    int mode = flight_relax();
    real.cuEventDestroy_v2(start);
    flight_restore(mode);
    atomic_store(&cost->pending, 0);
}

void flight_time_end(struct gpu *gpu, CUstream stream, CUevent start, struct cost *cost) {
    int mode = flight_relax();
    CUevent end = record(stream, CU_EVENT_DEFAULT);
    flight_restore(mode);
    CUcontext context = context_seen();
    pthread_mutex_lock(&lock);
    bool room = end && timing_count < TIMINGS;
    if (room) {
        timings[timing_count++] = (struct timing){start, end, context, gpu, cost};
    }
    pthread_mutex_unlock(&lock);
    if (!room) {
        if (end) {
            flight_time_cancel(end, cost);
        }
        flight_time_cancel(start, cost);
    }
}

void flight_forget_context(CUcontext context) {
    pthread_mutex_lock(&lock);
    int kept = 0;
    for (int i = 0; i < marker_count; i++) {
        if (markers[i].context != context) {
            markers[kept++] = markers[i];
        } else {
            atomic_fetch_sub(&outstanding_ns[markers[i].ordinal], markers[i].covers_ns);
        }
    }
    marker_count = kept;
    kept = 0;
    for (int i = 0; i < timing_count; i++) {
        if (timings[i].context != context) {
            timings[kept++] = timings[i];
        } else {
            atomic_store(&timings[i].cost->pending, 0);
        }
    }
    timing_count = kept;
    pthread_mutex_unlock(&lock);
}

void flight_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    marker_count = timing_count = 0;
    memset(flows, 0, sizeof flows);
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        atomic_store(&outstanding_ns[i], 0);
    }
}
