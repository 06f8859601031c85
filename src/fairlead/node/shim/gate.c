/* The gate that every launch goes through.
 *
 * Fast path, at rate 1: a few loads, three additions and no lock; 15 to 25 ns on the stub driver (bench/shim.py).
 * Otherwise a launch takes its estimated GPU time out of the bucket of its GPU. It may leave the bucket in debt, since
 * a kernel can be longer than any sensible burst; the next one waits until the debt is paid. The bucket lies in the
 * usage page, so that the processes of a job share one rate. The job can write that page, so each process keeps a second
 * bucket in its own memory, at the same rate: it must have something in both.
 */
#define _GNU_SOURCE
#include <string.h>

#include "shim.h"

#define BURST_NS (10 * MS_NS)
#define DEEPEST_DEBT_NS (5 * SECOND_NS)
#define LONGEST_REFILL_NS (10 * SECOND_NS)
#define NAP_AT_LEAST_NS 50000ll
#define NAP_AT_MOST_NS MS_NS /* so long may a change of the agent's mind go unseen */
#define FROZEN_NAP_NS 500000ll
#define BUSY_NAP_NS 50000ll  /* between two looks at a service that is busy */
#define FLOOR_PPM 50000u     /* what a job gets beside a service that never rests */
#define STARVED_AFTER_NS (100 * MS_NS) /* of a service's work without a pause */
#define QUANTA 8             /* markers per cap */
#define LAUNCHES_PER_QUANTUM 256
#define TIMED_EARLY 4u       /* timings of a new entry before chance decides */
#define TIME_ONE_IN_OPEN 256u
#define TIME_ONE_IN_LIMITED 16u

static __thread int until_timed;
static __thread uint64_t dice;

static unsigned roll(unsigned sides) {
    if (!dice) {
        dice = (uint64_t)now_ns() ^ (uint64_t)(uintptr_t)&dice;
    }
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)((dice >> 32) % sides);
}

static struct usage_gpu own[MAX_GPUS]; /* by ordinal */

static void charge(_Atomic int64_t *tokens, int64_t ns) {
    int64_t have = atomic_load(tokens), after;
    do {
        after = have - ns;
        after = after < -DEEPEST_DEBT_NS ? -DEEPEST_DEBT_NS : after > BURST_NS ? BURST_NS : after;
    } while (!atomic_compare_exchange_weak(tokens, &have, after));
}

void gate_charge(struct gpu *gpu, int64_t ns) {
    charge(&usage_gpu(gpu->usage_index)->tokens_ns, ns);
    charge(&own[gpu->ordinal].tokens_ns, ns);
    COUNT(charged_ns, (uint64_t)ns);
}

static void refill(struct usage_gpu *bucket, uint32_t rate_ppm, int64_t now) {
    uint64_t last = atomic_load(&bucket->refilled_ns);
    int64_t passed = now - (int64_t)last;
    if (passed <= 0 || !atomic_compare_exchange_strong(&bucket->refilled_ns, &last, (uint64_t)now)) {
        return; /* another thread or process is just doing it */
    }
    passed = passed > LONGEST_REFILL_NS ? LONGEST_REFILL_NS : passed;
    int64_t earned = passed * (int64_t)rate_ppm / (int64_t)FULL_RATE, have = atomic_load(&bucket->tokens_ns), after;
    do {
        after = have + earned > BURST_NS ? BURST_NS : have + earned;
    } while (!atomic_compare_exchange_weak(&bucket->tokens_ns, &have, after));
}

/* 0: there was enough, go. Otherwise how long to wait before asking again. */
static int64_t bucket_wait_ns(const struct gpu *gpu, uint32_t rate_ppm, int64_t now) {
    struct usage_gpu *bucket = usage_gpu(gpu->usage_index), *mine = &own[gpu->ordinal];
    refill(bucket, rate_ppm, now);
    refill(mine, rate_ppm, now);
    int64_t tokens = atomic_load(&bucket->tokens_ns), private_tokens = atomic_load(&mine->tokens_ns);
    tokens = private_tokens < tokens ? private_tokens : tokens;
    if (tokens > 0) {
        return 0;
    }
    int64_t wait = (1 - tokens) * (int64_t)FULL_RATE / rate_ppm;
    return wait < NAP_AT_LEAST_NS ? NAP_AT_LEAST_NS : wait > NAP_AT_MOST_NS ? NAP_AT_MOST_NS : wait;
}

/* The floor. Beside a service that has not rested for STARVED_AFTER_NS the job gets a small part of the time, paid for
 * launch by launch; as soon as the service rests, all of that begins anew. */
static bool floor_allows(struct usage_gpu *bucket, uint32_t floor_ppm, int64_t now) {
    int64_t first = -STARVED_AFTER_NS * (int64_t)floor_ppm / (int64_t)FULL_RATE;
    uint64_t last = atomic_load(&bucket->floor_refilled_ns);
    if (!last || now - (int64_t)last > STARVED_AFTER_NS) { /* it was at rest, or nobody has wanted to launch */
        if (atomic_compare_exchange_strong(&bucket->floor_refilled_ns, &last, (uint64_t)now)) {
            int64_t owed = atomic_load(&bucket->floor_tokens_ns);
            atomic_store(&bucket->floor_tokens_ns, last && owed < first ? owed : first);
        }
        return false;
    }
    if (now > (int64_t)last && atomic_compare_exchange_strong(&bucket->floor_refilled_ns, &last, (uint64_t)now)) {
        atomic_fetch_add(&bucket->floor_tokens_ns, (now - (int64_t)last) * (int64_t)floor_ppm / (int64_t)FULL_RATE);
    }
    return atomic_load(&bucket->floor_tokens_ns) > 0;
}

static void floor_rest(struct usage_gpu *bucket) {
    if (atomic_load_explicit(&bucket->floor_refilled_ns, memory_order_relaxed)) {
        atomic_store(&bucket->floor_refilled_ns, 0);
    }
}

/* Whether a launch of so long must wait for a service. */
static bool must_yield(const struct gpu *gpu, int64_t charge_ns, int64_t now) {
    struct usage_gpu *bucket = usage_gpu(gpu->usage_index), *mine = &own[gpu->ordinal];
    if (!services_busy(gpu)) {
        floor_rest(bucket);
        floor_rest(mine);
        return false;
    }
    const struct control_page *page = control_page_now();
    uint32_t told = page ? atomic_load_explicit(&page->floor_ppm, memory_order_relaxed) : 0;
    uint32_t floor_ppm = told ? told : FLOOR_PPM;
    bool all = floor_allows(bucket, floor_ppm, now), one = floor_allows(mine, floor_ppm, now);
    if (!all || !one) {
        return true;
    }
    atomic_fetch_sub(&bucket->floor_tokens_ns, charge_ns);
    atomic_fetch_sub(&mine->floor_tokens_ns, charge_ns);
    return false;
}

/* Waits until a launch may go; gives whether the rate was limited. */
static bool wait_for_turn(const struct gpu *gpu, int64_t charge_ns) {
    int64_t began = 0;
    bool limited = true;
    for (;;) {
        int64_t now = now_ns(), wait = FROZEN_NAP_NS;
        if (UNLIKELY(atomic_load(&closing))) {
            nap_ns(10 * MS_NS); /* the process is about to end; the helper thread sees to it */
            continue;
        }
        struct wish wish = control_wish(gpu, now);
        if (!wish.frozen) {
            limited = wish.rate_ppm < FULL_RATE;
            wait = limited ? bucket_wait_ns(gpu, wish.rate_ppm, now) : 0;
            bool stopping = atomic_load(&stopping_until) != 0; /* it has little time to write its checkpoint */
            wait = !wait && !stopping && must_yield(gpu, charge_ns, now) ? BUSY_NAP_NS : wait;
        }
        if (!wait) {
            break;
        }
        began = began ? began : now;
        nap_ns(wait);
    }
    if (began) {
        COUNT(gated_ns, (uint64_t)(now_ns() - began));
    }
    return limited;
}

static bool pick_for_timing(struct cost *cost, bool limited) {
    bool due = --until_timed <= 0;
    if (due) {
        until_timed = 1 + (int)roll(2 * (limited ? TIME_ONE_IN_LIMITED : TIME_ONE_IN_OPEN));
    }
    if (!due && atomic_load_explicit(&cost->samples, memory_order_relaxed) >= TIMED_EARLY) {
        return false;
    }
    uint32_t idle = 0;
    return atomic_compare_exchange_strong(&cost->pending, &idle, 1);
}

static __attribute__((noinline)) bool enter_slowly(struct ticket *ticket, struct flow *flow, int64_t quantum,
                                                   bool added) {
    struct cost *cost = ticket->cost;
    if (flight_capturing(ticket->stream)) {
        atomic_store(&flow->unmarked_ns, 0); /* what was recorded into a graph is not in flight */
        return false;
    }
    context_seen();
    int64_t estimate = atomic_load(&cost->estimate_ns), charge = estimate ? estimate : GUESS_NS;
    if (!added) {
        int64_t least = quantum / LAUNCHES_PER_QUANTUM;
        /* Of unknown length: a marker for each, so that only a few can be in flight. */
        atomic_fetch_add(&flow->unmarked_ns, !estimate ? quantum : estimate > least ? estimate : least);
    }
    if (atomic_load(&flow->unmarked_ns) >= quantum) {
        flight_hold(ticket->gpu);
        ticket->mark_ns = atomic_exchange(&flow->unmarked_ns, 0);
    }
    /* Last, so that nothing slips through a freeze, or past a service, that came while it was held. */
    bool limited = wait_for_turn(ticket->gpu, charge);
    if (!estimate) {
        atomic_fetch_add(&cost->guessed_ns, limited ? GUESS_NS : 0);
    }
    if (limited) {
        gate_charge(ticket->gpu, charge);
    } else {
        COUNT(charged_ns, (uint64_t)charge);
    }
    if (pick_for_timing(cost, limited)) {
        ticket->timed = flight_time_begin(ticket->stream, &ticket->start);
        if (!ticket->timed) {
            atomic_store(&cost->pending, 0);
        }
    }
    return ticket->timed || ticket->mark_ns;
}

bool gate_enter(struct ticket *ticket, const void *function, uint64_t blocks, CUstream stream) {
    struct gpu *gpu = gpu_current();
    if (UNLIKELY(!gpu)) {
        return false; /* no context: the driver will say so */
    }
    COUNT(launches, 1);
    struct cost *cost = cost_of(function, blocks);
    struct flow *flow = flow_of(stream, gpu);
    int64_t estimate = atomic_load_explicit(&cost->estimate_ns, memory_order_relaxed);
    int64_t quantum = control_inflight_ns(gpu) / QUANTA;
    bool added = false;
    if (LIKELY(estimate && until_timed > 1 && control_is_open(gpu))) {
        int64_t least = quantum / LAUNCHES_PER_QUANTUM, weight = estimate > least ? estimate : least;
        if (LIKELY(atomic_fetch_add_explicit(&flow->unmarked_ns, weight, memory_order_relaxed) + weight < quantum)) {
            until_timed--;
            COUNT(charged_ns, (uint64_t)estimate);
            return false;
        }
        added = true;
    }
    *ticket = (struct ticket){.gpu = gpu, .cost = cost, .stream = stream};
    return enter_slowly(ticket, flow, quantum, added);
}

void gate_leave(struct ticket *ticket, CUresult result) {
    if (ticket->timed) {
        if (result == CUDA_SUCCESS) {
            flight_time_end(ticket->gpu, ticket->stream, ticket->start, ticket->cost);
        } else {
            flight_time_cancel(ticket->start, ticket->cost);
        }
    }
    if (ticket->mark_ns && result == CUDA_SUCCESS) {
        flight_mark(ticket->gpu, ticket->stream, ticket->mark_ns);
    }
}

void gate_after_fork(void) {
    memset(own, 0, sizeof own);
}
