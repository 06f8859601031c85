/* The two files that a job shares with the agent. `fairlead/node/guard/control_page.py` states the same layout; a test compares them.
 *
 * Control page: 4 KiB, written by the agent alone, mapped read-only by the job. One record per GPU, found by UUID; a
 * record whose UUID is all zero stands for every GPU without its own. `seq` is odd while the agent writes.
 *
 * Usage page: written by the job's processes, read by the agent. One slot per process. A thread of the process holds
 * the slot's robust mutex for as long as the process lives: the kernel marks it when the process dies, however it dies,
 * so what a killed process used is reclaimed without trusting process ids (which are reused, and differ between PID
 * namespaces). No descriptor is involved, so a program that closes all of its own loses nothing. `deciding` is held
 * while a reservation is decided, so that the sum over all slots never passes the quota and nobody is refused for
 * another's half-made reservation.
 *
 * The job can write the usage page, so it is no proof of anything: each process counts in memory of its own, publishes
 * that here again and again, and the agent compares the quota with what the driver tells of each process.
 */
#ifndef FAIRLEAD_PAGE_H
#define FAIRLEAD_PAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define PAGE_MAGIC 0x4741504c52494146ull  /* "FAIRLPAG" */
#define USAGE_MAGIC 0x4553554c52494146ull /* "FAIRLUSE" */
#define PAGE_VERSION 2u
#define PAGE_BYTES 4096u
#define MAX_GPUS 16u
#define SLOTS 1024u

struct page_gpu {
    uint8_t uuid[16];
    _Atomic uint32_t rate_ppm; /* share of wall time that the GPU may be busy, in millionths; 1,000,000: no limit */
    _Atomic uint32_t frozen;   /* not 0: no launch at all */
    _Atomic uint32_t clock_mhz;
    _Atomic uint32_t reference_clock_mhz;
    _Atomic uint32_t util_ppm;
    _Atomic uint32_t sm_activity_ppm;
    _Atomic uint64_t quota_bytes; /* of device memory; 0: the page sets none */
    uint32_t reserved[4];
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

enum process_state { STATE_NONE = 0, STATE_RUNNING = 1, STATE_STOPPING = 2, STATE_CLOSING = 3, STATE_DRAINED = 4 };

/* A mutex of the C library in a place of fixed size. Its first word holds the owner's thread id, 0 in the lowest 30 bits
 * when nobody holds it or its owner has died. */
struct shared_lock {
    union {
        pthread_mutex_t mutex;
        _Atomic uint32_t word;
        uint64_t room[6];
    };
};

struct usage_slot {
    struct shared_lock owner;
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
    uint64_t reserved;
    _Atomic uint64_t used_bytes[MAX_GPUS];
    _Atomic uint64_t exported_bytes[MAX_GPUS]; /* of those, what other processes may have been given */
    _Atomic uint64_t imported_bytes[MAX_GPUS]; /* held beside them: memory that another process allocated */
};

struct usage_gpu {
    uint8_t uuid[16];
    _Atomic uint32_t known;
    uint32_t reserved;
    _Atomic int64_t tokens_ns; /* GPU time the job may still take; negative: owed */
    _Atomic uint64_t refilled_ns;
    _Atomic uint64_t orphaned_bytes; /* exported by processes that have died; held while somebody has imported memory */
    uint64_t reserved_more[2];
};

struct usage_page {
    uint64_t magic;
    uint32_t version;
    uint32_t slot_count;
    _Atomic uint32_t prepared;   /* `deciding` can be used */
    _Atomic uint32_t slots_used; /* how many slots ever had an owner; those behind them are untouched */
    struct shared_lock deciding;
    uint8_t reserved[56];
    struct usage_gpu gpus[MAX_GPUS];
    struct usage_slot slots[SLOTS];
};

_Static_assert(sizeof(struct page_gpu) == 64, "page_gpu");
_Static_assert(sizeof(struct control_page) <= PAGE_BYTES, "control_page");
_Static_assert(sizeof(struct usage_gpu) == 64, "usage_gpu");
_Static_assert(sizeof(struct shared_lock) == 48, "shared_lock");
_Static_assert(sizeof(struct usage_slot) == 512, "usage_slot");

#endif
