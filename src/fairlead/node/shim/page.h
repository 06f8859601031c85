/* The files that jobs share with the agent. `fairlead/node/guard/control_page.py` states the same layout; a test compares them.
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
#define BUSY_MAGIC 0x5953424c52494146ull /* "FAIRLBSY" */
#define BUSY_PROCESSES 64u
#define SERVICES 16u
#define SERVICE_NAME 64u

struct page_gpu {
    uint8_t uuid[16];
    _Atomic uint32_t rate_ppm; /* share of wall time that the GPU may be busy, in millionths; 1,000,000: no limit */
    _Atomic uint32_t frozen;   /* not 0: no launch at all */
    _Atomic uint32_t clock_mhz;
    _Atomic uint32_t reference_clock_mhz;
    _Atomic uint32_t util_ppm;
    _Atomic uint32_t sm_activity_ppm;
    _Atomic uint64_t quota_bytes; /* of device memory; 0: the page sets none */
    _Atomic uint32_t inflight_us; /* most GPU time in flight on this GPU; 0: the page's */
    uint32_t reserved[3];
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
    _Atomic uint32_t services_seq; /* odd while the names below are written; another number: read them again */
    _Atomic uint32_t floor_ppm;    /* what a job gets beside a service that never rests; 0: the shim's default */
    uint8_t reserved[16];
    struct page_gpu gpus[MAX_GPUS];
    char services[SERVICES][SERVICE_NAME]; /* busy pages to obey, beside this file; "" : none */
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
    _Atomic int64_t floor_tokens_ns; /* GPU time it may take although the service is busy; negative: not yet */
    _Atomic uint64_t floor_refilled_ns; /* 0: the service was at rest when it was last looked at */
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

/* What one process of a service does on one GPU. All times are CLOCK_MONOTONIC. */
struct busy_mark {
    _Atomic uint64_t since_ns;   /* when this stretch of work began; 0: it is idle */
    _Atomic uint64_t touched_ns; /* its last launch, or look at whether work is done */
    _Atomic uint64_t idle_ns;    /* when the last stretch ended */
    _Atomic uint64_t busy_ns;    /* of all stretches that have ended */
    _Atomic uint64_t stretches;  /* begun */
    _Atomic uint32_t waiting;    /* threads in a call that waits for the GPU */
    _Atomic uint32_t lease_us;   /* work that nobody waits for counts as done so long after `touched_ns` */
    _Atomic uint32_t linger_us;  /* a pause shorter than this is one inside a request: it counts as busy */
    uint32_t reserved;
    _Atomic uint64_t requests;   /* stretches after a pause longer than the linger */
};

struct busy_process {
    struct shared_lock owner; /* held while the process lives: a mark is worth nothing without it */
    _Atomic uint32_t pid;
    uint32_t reserved[3];
    struct busy_mark marks[MAX_GPUS]; /* as `gpus` of the page */
};

/* Busy page: written by the processes of one service, mapped read-only by the offline jobs of its GPUs. */
struct busy_page {
    uint64_t magic;
    uint32_t version;
    uint32_t process_count;
    _Atomic uint32_t processes_used; /* how many slots ever had an owner */
    uint32_t gpu_count;
    uint8_t reserved[40];
    uint8_t gpus[MAX_GPUS][16]; /* UUIDs; all zero stands for every GPU */
    struct busy_process processes[BUSY_PROCESSES];
};

_Static_assert(sizeof(struct busy_mark) == 64, "busy_mark");
_Static_assert(sizeof(struct busy_process) == 1088, "busy_process");
_Static_assert(sizeof(struct page_gpu) == 64, "page_gpu");
_Static_assert(sizeof(struct control_page) <= PAGE_BYTES, "control_page");
_Static_assert(sizeof(struct usage_gpu) == 64, "usage_gpu");
_Static_assert(sizeof(struct shared_lock) == 48, "shared_lock");
_Static_assert(sizeof(struct usage_slot) == 512, "usage_slot");

#endif
