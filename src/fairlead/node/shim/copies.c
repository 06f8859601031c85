/* Hooks of copies, fills and prefetches: they keep the GPU's memory busy, so they go through the gate as launches do.
 *
 * How long one takes goes by its bytes, learnt for each call and order of magnitude. A capture is left alone.
 */
#define _GNU_SOURCE
#include "shim.h"

uint64_t copy_batch_bytes(const size_t *sizes, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; sizes && i < count; i++) {
        total += sizes[i];
    }
    return total;
}

/* Each call has an address of its own to be told apart by. */
#define COPY(name, params, names, bytes, on, waits)                       \
    EXPORT CUresult name params {                                         \
        static const char tag;                                            \
        NEEDS(name);                                                      \
        if (waits && is_observed()) {                                     \
            observe_launch(on, NULL);                                     \
            CUresult result = real.name names;                            \
            observe_waited(on);                                           \
            return result;                                                \
        }                                                                 \
        GATED(&tag, (bytes), on, real.name names);                        \
    }
#define SYNC_COPY(name, base, version, params, names, bytes)              \
    COPY(name, params, names, bytes, NULL, true)                                \
    COPY(name##_ptds, params, names, bytes, CU_STREAM_PER_THREAD, true)
#define ASYNC_COPY(name, base, version, params, names, bytes)             \
    COPY(name, params, names, bytes, LEGACY(stream), false)                      \
    COPY(name##_ptsz, params, names, bytes, PER_THREAD(stream), false)

COPIES(SYNC_COPY, ASYNC_COPY)
