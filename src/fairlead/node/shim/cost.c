/* How long a launch will take on the GPU, learnt by timing a few.
 *
 * One entry per function and order of magnitude (log2) of its blocks: libraries launch the same function on very
 * different sizes. The estimate is a moving mean. Launches to be timed are picked at random (gate.c), so what is
 * charged is right on average even where durations within one entry differ.
 * Lock-free: an entry is claimed by its key and never given up. A full table leads to one shared entry.
 */
#define _GNU_SOURCE
#include "shim.h"

#define ENTRIES 8192u
#define PROBES 16u

static struct cost table[ENTRIES];
static struct cost crowd = {.key = 1};

struct cost *cost_of(const void *function, uint64_t blocks) {
    unsigned magnitude = 63u - (unsigned)__builtin_clzll(blocks | 1);
    uint64_t key = ((uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15ull) ^ ((magnitude + 1) * 0xd6e8feb86659fd93ull);
    key |= 1; /* 0 marks a free entry */
    for (unsigned i = 0, at = (unsigned)(key >> 40); i < PROBES; i++, at++) {
        struct cost *cost = &table[at % ENTRIES];
        uint64_t seen = atomic_load_explicit(&cost->key, memory_order_relaxed);
        if (LIKELY(seen == key)) {
            return cost;
        }
        if (!seen && (atomic_compare_exchange_strong(&cost->key, &seen, key) || seen == key)) {
            return cost;
        }
    }
    return &crowd;
}

int64_t cost_learn(struct cost *cost, uint64_t measured_ns) {
    uint32_t samples = atomic_load(&cost->samples);
    int64_t estimate = atomic_load(&cost->estimate_ns), measured = (int64_t)measured_ns;
    if (samples < 2) {
        estimate = measured; /* the first may hold the loading of its code: the second replaces it */
    } else {
        int64_t weight = samples < 8 ? (int64_t)samples : 8;
        estimate += (measured - estimate) / weight;
    }
    estimate = estimate < 1 ? 1 : estimate > UINT32_MAX ? UINT32_MAX : estimate;
    atomic_store(&cost->estimate_ns, (uint32_t)estimate);
    atomic_fetch_add(&cost->samples, 1);
    return estimate;
}
