/* The two files that a job shares with the agent. `fairlead/node/page.py` states the same layout; a test compares them.
 *
 * Control page: 4 KiB, written by the agent alone, mapped read-only by the job. One record per GPU, found by UUID; a
 * record whose UUID is all zero stands for every GPU without its own. `seq` is odd while the agent writes.
 *
 * Usage page: written by the job's processes, read by the agent. One slot per process. A process owns slot i as long as
 * it holds the POSIX record lock on byte i of the file: the kernel drops that lock when the process dies, however it
 * dies, so what a killed process used is reclaimed without trusting process ids (which are reused, and differ between
 * PID namespaces). Byte SLOTS is locked while a reservation is decided, so that the sum over all slots never passes the
 * quota and nobody is refused for another's half-made reservation.
 */
#ifndef FAIRLEAD_PAGE_H
#define FAIRLEAD_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define PAGE_MAGIC 0x4741504c52494146ull  /* "FAIRLPAG" */
#define USAGE_MAGIC 0x4553554c52494146ull /* "FAIRLUSE" */
#define PAGE_VERSION 1u
#define PAGE_BYTES 4096u
#define MAX_GPUS 16u
#define SLOTS 128u

struct page_gpu {
    uint8_t uuid[16];
    _Atomic uint32_t rate_ppm; /* share of wall time that the GPU may be busy, in millionths; 1,000,000: no limit */
    _Atomic uint32_t frozen;   /* not 0: no launch at all */
    _Atomic uint32_t clock_mhz;
    _Atomic uint32_t reference_clock_mhz;
    _Atomic uint32_t util_ppm;
    _Atomic uint32_t sm_activity_ppm;
    uint32_t reserved[6];
};

struct control_page {
    uint64_t magic;
    uint32_t version;
    uint32_t gpu_count;
    _Atomic uint32_t seq;
    _Atomic uint32_t inflight_us;    /* most GPU time in flight; 0: the shim's default */
    _Atomic uint64_t heartbeat_ns;   /* CLOCK_MONOTONIC of the agent's last sign of life */
    _Atomic uint32_t stale_after_ms; /* the agent counts as gone after this long; 0: the shim's default */
    _Atomic uint32_t stale_rate_ppm; /* the rate that then holds; 0: the shim's default */
    uint8_t reserved[24];
    struct page_gpu gpus[MAX_GPUS];
};

enum process_state { STATE_NONE = 0, STATE_RUNNING = 1, STATE_LEAVING = 2, STATE_CLOSING = 3, STATE_DRAINED = 4 };

struct usage_slot {
    _Atomic uint32_t pid;
    _Atomic uint32_t state;
    _Atomic uint64_t launches;
    _Atomic uint64_t charged_ns;    /* estimated GPU time of what was launched */
    _Atomic uint64_t gated_ns;      /* time launches were held back by rate or freeze */
    _Atomic uint64_t capped_ns;     /* time launches were held back because enough work was in flight */
    _Atomic uint64_t cap_timeouts;  /* launches let through although the work in flight had not ended in time */
    _Atomic uint64_t samples;       /* launches timed with events */
    _Atomic uint64_t out_of_memory; /* allocations refused */
    _Atomic uint64_t unhooked;      /* lookups that gave an unknown variant of a hooked call */
    uint64_t reserved[7];
    _Atomic uint64_t used_bytes[MAX_GPUS];
};

struct usage_gpu {
    uint8_t uuid[16];
    _Atomic uint32_t known;
    uint32_t reserved;
    _Atomic int64_t tokens_ns; /* GPU time the job may still take; negative: owed */
    _Atomic uint64_t refilled_ns;
    uint64_t reserved_more[3];
};

struct usage_page {
    uint64_t magic;
    uint32_t version;
    uint32_t slot_count;
    uint8_t reserved[112];
    struct usage_gpu gpus[MAX_GPUS];
    struct usage_slot slots[SLOTS];
};

_Static_assert(sizeof(struct page_gpu) == 64, "page_gpu");
_Static_assert(sizeof(struct control_page) <= PAGE_BYTES, "control_page");
_Static_assert(sizeof(struct usage_gpu) == 64, "usage_gpu");
_Static_assert(sizeof(struct usage_slot) == 256, "usage_slot");

#endif
