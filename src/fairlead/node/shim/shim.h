/* Fairlead's shim: keeps a best-effort job inside its share of a GPU, from within the job's own processes.
 *
 * Preloaded (LD_PRELOAD) into every process of an offline job. A process that never touches CUDA is left alone: the
 * shim does not load the driver, starts no thread, installs no handler and opens no file.
 *
 * WHAT IT DOES
 * Lookup (lookup.c, real.c). The CUDA runtime finds the driver's functions through dlsym and cuGetProcAddress; some
 *   libraries link them directly. All three lead to the hooks. The real lookup is made first, and the *pointer* that it
 *   returned decides which hook is handed back. Names would not do: cuGetProcAddress("cuLaunchKernel") gives another
 *   function for the per-thread default stream, and versions have different signatures. A variant unknown to the shim
 *   is handed out as it is, logged and counted (`unhooked`). cuGetExportTable is left untouched.
 * Memory (memory.c, arrays.c, pools.c, graphs.c, modules.c, imports.c; quota.c, usage.c, ledger.c). Every call that
 *   takes device memory is counted against the quota *before* the driver is asked, and answered
 *   CUDA_ERROR_OUT_OF_MEMORY past it. cuMemGetInfo, cuDeviceTotalMem and NVML show the quota. The quota is per GPU and
 *   shared by all processes of the job; GPUs are told apart by UUID, since ranks may see different GPUs under the same
 *   ordinal. The agent may change it while the job runs: what is over it then is kept, and nothing more is granted.
 *   Counted too: what a memory pool keeps after a free, the allocation nodes of graphs (from when they are made), what
 *   loading a module takes (by what is free before and after), the heap of device code, and memory that a process
 *   imported and whose owner has died. What a context takes for itself is not counted (the driver doesn't say).
 * Launches (launch.c, copies.c, gate.c, cost.c, flight.c). A launch, copy or fill is charged its estimated GPU time,
 *   learnt per function and size (of the grid, or in bytes) by timing a random few with events. A token bucket per GPU,
 *   shared by the job's processes, refills at the agent's rate; a launch waits while the bucket is in debt. Each process
 *   has a bucket of its own beside it, since the job can write the shared one. Work in flight is capped, so that a
 *   freeze takes effect within the cap plus the longest kernel. At rate 1 the buckets are skipped and only the cap
 *   remains. Nothing is charged, timed or held back while the stream is being captured into a graph.
 * Services (observe.c, services.c). With FAIRLEAD_SHIM_BUSY the process is one of a service: it is only observed. What it
 *   launches marks it busy on its page until somebody has seen that it is done. The offline jobs of the same GPUs read
 *   that page, and their launches wait while a service is busy, down to a floor.
 * Children (settings.c, exec.c). The settings are those that the program was started with, whatever it does to its
 *   environment, and the programs that it starts get them too.
 * Leaving (signals.c, drain.c). See below.
 *
 * ENVIRONMENT
 *   FAIRLEAD_SHIM_PAGE      control page (page.h). Unset: rate 1, never frozen.
 *   FAIRLEAD_SHIM_BUSY      busy page of a service, whose processes are observed and never held back.
 *   FAIRLEAD_SHIM_USAGE     usage page, shared by the job's processes. Unset: quota and bucket are per process.
 *   FAIRLEAD_SHIM_QUOTA     bytes for every GPU; or a comma list by CUDA ordinal; or GPU-<uuid>=bytes, comma separated.
 *                           Holds where the control page sets none. Unset, empty or 0: no limit.
 *   FAIRLEAD_SHIM_LOG       file to append messages to. Unset: silent.
 *   FAIRLEAD_SHIM_DRAIN_S   longest wait for work in flight when stopping (30).
 *   FAIRLEAD_SHIM_GRACE_S   how long a program's own signal handler may use a frozen GPU (30).
 *
 * WHEN THE AGENT IS GONE
 *   A page that can't be read, or whose heartbeat is older than 10 s, means that nobody watches the online service. The
 *   job then goes on at a floor rate (0.1), whatever the page says: full speed could hurt a service that nobody guards,
 *   and a freeze without an end would hold the GPU's memory for nothing. The page is opened again once a second, so a
 *   restarted agent takes over whether it kept the file or replaced it.
 *
 * STOPPING
 *   Killing an MPS client with work in flight can take its neighbours down, so SIGTERM and SIGINT are taken over as
 *   soon as CUDA is initialised. sigaction() and signal() keep answering as if they were not: what the program
 *   installs, earlier or later, is remembered and called. (A helper thread also looks once a second whether something
 *   went past them, by a raw system call, and takes it over.)
 *   - Program's disposition is the default: the helper thread closes the gate for good, waits for the contexts to
 *     drain, destroys them, restores the default and raises the signal again, so that the exit status tells the signal.
 *   - Program has a handler (Python has one for SIGINT; a job that checkpoints has one for SIGTERM): it is called at
 *     once, just as the kernel would. It may need the GPU to checkpoint, and Python's only sets a flag that the main
 *     thread looks at after it is out of the launch. So for the grace period a freeze is lifted and the rate is at
 *     least 0.5; a launch that waits in the gate is let through at that rate. If the program then exits, it is drained
 *     first and, at the very end, its contexts are destroyed. After the grace period the page rules again.
 *   - Ignored: stays ignored.
 *   Every exit by exit() or _exit() waits for work in flight (bounded), signal or not. SIGKILL and crashes can't be
 *   helped from inside. After fork the child has none of this until it initialises CUDA itself.
 */
#ifndef FAIRLEAD_SHIM_H
#define FAIRLEAD_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "driver.h"
#include "page.h"

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define MS_NS 1000000ll
#define SECOND_NS 1000000000ll
#define FULL_RATE 1000000u

/* ---- real.c: what lies beneath the hooks ---- */

struct real {
#define FIELD(name, ...) __typeof__(&name) name;
#define SYNC_FIELDS(name, ...) FIELD(name) FIELD(name##_ptds)
#define ASYNC_FIELDS(name, ...) FIELD(name) FIELD(name##_ptsz)
    HOOKED(FIELD)
    COPIES(SYNC_FIELDS, ASYNC_FIELDS)
    CALLED(FIELD)
#undef ASYNC_FIELDS
#undef SYNC_FIELDS
#undef FIELD
};
extern struct real real;
extern _Atomic bool real_bound;

/* Finds the loaded driver, once. False where no driver is loaded: it is never loaded by the shim. */
bool real_bind(void);
static inline bool real_ready(void) {
    return LIKELY(atomic_load_explicit(&real_bound, memory_order_acquire)) || real_bind();
}
/* libc's own dlsym and dlvsym, found in its symbol table since asking for them by name would find ours. */
typedef void *(*dlsym_t)(void *, const char *);
typedef void *(*dlvsym_t)(void *, const char *, const char *);
dlsym_t real_dlsym(void);
dlvsym_t real_dlvsym(void);
void *real_libc(const char *name);
/* The hook for a pointer that a lookup gave, or the pointer itself. */
void *real_to_hook(void *pointer);
bool real_is_hook(const void *pointer);
/* Whether some variant of this name is hooked: then an unknown pointer deserves a word. */
bool real_knows_name(const char *name);
void real_after_fork(void);

#define NEEDS(name)                                           \
    do {                                                      \
        if (UNLIKELY(!real_ready())) {                        \
            return CUDA_ERROR_NOT_INITIALIZED;                \
        }                                                     \
        if (UNLIKELY(!real.name)) {                           \
            return CUDA_ERROR_NOT_SUPPORTED;                  \
        }                                                     \
    } while (0)

/* ---- log.c ---- */

void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- devices.c: GPUs and contexts seen so far ---- */

struct gpu {
    _Atomic bool known;
    int ordinal;
    unsigned usage_index; /* in the usage page */
    uint64_t quota_bytes; /* 0: none */
    uint8_t uuid[16];
};

/* The GPU of the calling thread's context; NULL where it has none. Cheap where the process sees one GPU only. */
struct gpu *gpu_current(void);
struct gpu *gpu_by_ordinal(CUdevice device);
struct gpu *gpu_by_uuid(const uint8_t uuid[16]);

struct context {
    CUcontext handle;
    CUdevice device;
    bool primary;
};
/* Remembers the calling thread's context, for draining; gives it. */
CUcontext context_seen(void);
/* Copies the contexts seen so far; gives their number. */
int contexts_copy(struct context *into, int room);
void context_forget(CUcontext handle);
CUcontext context_primary(CUdevice device);
void devices_after_fork(void);

/* ---- settings.c: the environment as it was when the program was loaded ---- */

/* What the program does to its environment later changes nothing for the shim. NULL: not set. */
const char *setting(const char *name);
double setting_s(const char *name, double otherwise);
/* The variables that a child must have, "NAME=value". */
extern const char *const *settings_kept;
extern const char *settings_preload; /* LD_PRELOAD, with the shim in it; NULL: the shim came another way */
extern const char *settings_library; /* the shim, as LD_PRELOAD names it */

/* ---- quota.c, usage.c: bytes ---- */

uint64_t quota_configured(int ordinal, const uint8_t uuid[16]); /* by the environment; 0: no limit */
uint64_t quota_now(const struct gpu *gpu); /* the agent's, else the environment's; 0: no limit */
bool quota_reserve(struct gpu *gpu, uint64_t bytes);
void quota_take(struct gpu *gpu, uint64_t bytes); /* the driver has it already: count it, fit or not */
void quota_give_back(struct gpu *gpu, uint64_t bytes);
uint64_t quota_used(const struct gpu *gpu); /* by the whole job */
bool quota_has_room(const struct gpu *gpu); /* it is not past its quota */

enum account { ACCOUNT_USED, ACCOUNT_EXPORTED, ACCOUNT_IMPORTED, ACCOUNTS };

extern _Atomic(struct usage_slot *) usage_slot_mine;
struct usage_slot *usage_claim(void);
static inline struct usage_slot *usage_mine(void) {
    struct usage_slot *slot = atomic_load_explicit(&usage_slot_mine, memory_order_acquire);
    return LIKELY(slot) ? slot : usage_claim();
}
unsigned usage_gpu_index(const uint8_t uuid[16]);
struct usage_gpu *usage_gpu(unsigned index);
uint64_t usage_sum(unsigned index); /* over all live processes */
bool usage_reserve(unsigned index, uint64_t bytes, uint64_t limit); /* limit 0: none */
void usage_add(unsigned index, enum account account, uint64_t bytes);
void usage_subtract(unsigned index, enum account account, uint64_t bytes);
void usage_after_fork(void);

#define COUNT(field, amount) atomic_fetch_add_explicit(&usage_mine()->field, (amount), memory_order_relaxed)

/* ---- ledger.c: which allocation holds how much ---- */

enum kind {
    KIND_POINTER,
    KIND_HANDLE,
    KIND_MAPPING,
    KIND_ARRAY,
    KIND_MIPMAP,
    KIND_MODULE,
    KIND_LIBRARY,
    KIND_GRAPH,      /* memory of its allocation nodes */
    KIND_GRAPH_EXEC, /* shares what its graph holds */
    KIND_LIMIT,      /* a context's heap and print buffer */
};

struct pool;

struct holding { /* physical memory; freed when the last key that leads to it is gone */
    struct gpu *gpu;
    uint64_t bytes;
    CUcontext context; /* NULL: outlives contexts (cuMemCreate) */
    unsigned references;
    struct pool *pool;      /* not NULL: the bytes are the pool's, which counts them itself */
    enum account account;   /* where they are counted: used, or imported */
    uint64_t exported_bytes; /* of those, counted as exported too */
    struct holding *next;    /* while it is being freed */
};

void ledger_add(enum kind kind, uint64_t key, uint64_t span, struct holding holding);
/* One more key for what `from` holds; false if that is unknown. */
bool ledger_share(enum kind from_kind, uint64_t from, enum kind kind, uint64_t key, uint64_t span);
/* So many bytes more for what the key leads to, which is made if it is unknown. They are reserved already. */
void ledger_grow(enum kind kind, uint64_t key, struct gpu *gpu, uint64_t bytes);
/* An imported handle turns out to be at least so large. */
void ledger_size_import(enum kind kind, uint64_t key, uint64_t bytes);
/* Counts what the key leads to as exported, once. */
void ledger_export(enum kind kind, uint64_t key);
/* Takes a key out before the driver frees it: afterwards another thread may be given the same one. */
struct entry *ledger_take(enum kind kind, uint64_t key);
void ledger_put_back(struct entry *entry);
/* Gives the GPU if that was the last key, so that the driver can be told to let go of what it keeps; else NULL. */
struct gpu *ledger_drop(struct entry *entry);
uint64_t entry_span(const struct entry *entry);
bool ledger_find_mapping(uint64_t address, uint64_t *start);
void ledger_forget_context(CUcontext context);
void ledger_after_fork(void);

/* ---- pools.c: memory that the driver keeps after it was freed ---- */

struct pool *pool_of(struct gpu *gpu, CUmemoryPool handle); /* NULL: too many, count each allocation by itself */
CUmemoryPool pool_current(const struct gpu *gpu);
bool pool_reserve(struct pool *pool, uint64_t bytes);
bool pool_fits(struct pool *pool);                      /* after the driver has allocated: is the job within its quota? */
void pool_give_back(struct pool *pool, uint64_t bytes); /* after a free, or an allocation that failed */
void pools_shrink(const struct gpu *gpu);               /* have the driver let go of what nobody uses */
void pools_forget(const struct gpu *gpu);               /* they died with the GPU's primary context */
void pools_after_fork(void);

/* ---- imports.c ---- */

void import_mapped(CUmemHandle handle, uint64_t bytes); /* only now the size of an imported handle is known */

/* ---- copies.c ---- */

uint64_t copy_batch_bytes(const size_t *sizes, size_t count);

/* ---- modules.c ---- */

void modules_after_fork(void);

/* ---- graphs.c ---- */

/* The graph that the stream is being captured into; NULL: none, or the driver can't say. */
void *graph_captured(CUstream stream);

/* ---- control.c: what the agent wants ---- */

struct wish {
    uint32_t rate_ppm;
    bool frozen;
};
/* True while the agent is alive, lets everything through and nobody is stopping: two loads. */
bool control_is_open(const struct gpu *gpu);
struct wish control_wish(const struct gpu *gpu, int64_t now_ns);
uint64_t control_quota(const uint8_t uuid[16]); /* 0: the page says nothing */
int64_t control_inflight_ns(const struct gpu *gpu);
const struct control_page *control_page_now(void); /* NULL: none */
void control_after_fork(void);

/* ---- cost.c: how long a launch will take ---- */

struct cost {
    _Atomic uint64_t key;
    _Atomic uint32_t estimate_ns; /* saturates at 4 s */
    _Atomic uint32_t samples;
    _Atomic uint32_t pending; /* a timing is under way */
    _Atomic int64_t guessed_ns; /* charged by default before the first sample; settled with it */
};
#define GUESS_NS 100000ll /* the charge for a launch of unknown length */
struct cost *cost_of(const void *function, uint64_t blocks);
/* Enters a measured duration; gives the new estimate. */
int64_t cost_learn(struct cost *cost, uint64_t measured_ns);

/* ---- flight.c: work in flight, and timings ---- */

struct flow { /* one stream */
    _Atomic uint64_t key;
    _Atomic int64_t unmarked_ns; /* launched since the last marker */
};
struct flow *flow_of(CUstream stream, const struct gpu *gpu);
bool flight_capturing(CUstream stream);
void flight_mark(struct gpu *gpu, CUstream stream, int64_t covers_ns);
void flight_hold(struct gpu *gpu);
bool flight_time_begin(CUstream stream, CUevent *start);
void flight_time_end(struct gpu *gpu, CUstream stream, CUevent start, struct cost *cost);
void flight_time_cancel(CUevent start, struct cost *cost);
void flight_forget_context(CUcontext context);
/* Around calls that are forbidden to a thread while any stream is captured, unless it is relaxed. */
int flight_relax(void);
void flight_restore(int mode);
void flight_after_fork(void);

/* ---- observe.c: a service's side of its busy page ---- */

extern _Atomic int observing; /* -1: not looked yet */
int observe_look(void);
/* Whether this process is one of a service. */
static inline bool is_observed(void) {
    int known = atomic_load_explicit(&observing, memory_order_relaxed);
    return UNLIKELY(known < 0) ? observe_look() : known;
}
void observe_launch(CUstream stream, const struct gpu *gpu);
/* A copy that waits has come back: its stream has nothing left. */
void observe_waited(CUstream stream);
void observe_after_fork(void);

/* ---- services.c: an offline job's side ---- */

/* Whether a service on this GPU is at work. Cheap: a few loads for each of its processes. */
bool services_busy(const struct gpu *gpu);
void services_after_fork(void);

/* ---- gate.c ---- */

struct ticket {
    struct gpu *gpu;
    struct cost *cost;
    CUstream stream;
    CUevent start;
    int64_t mark_ns;
    bool timed;
};
/* Before a launch: may wait. True if gate_leave must follow the launch. */
bool gate_enter(struct ticket *ticket, const void *function, uint64_t blocks, CUstream stream);
void gate_leave(struct ticket *ticket, CUresult result);
void gate_charge(struct gpu *gpu, int64_t ns);
void gate_after_fork(void);

/* A call that hands work to the GPU; `size` is what its duration goes by (blocks, bytes). */
#define GATED(function, size, stream, call)                                           \
    do {                                                                              \
        if (UNLIKELY(is_observed())) {                                                \
            observe_launch((stream), NULL);                                           \
            return call;                                                              \
        }                                                                             \
        struct ticket ticket;                                                         \
        if (LIKELY(!gate_enter(&ticket, (function), (uint64_t)(size), (stream)))) {   \
            return call;                                                              \
        }                                                                             \
        CUresult result = call;                                                       \
        gate_leave(&ticket, result);                                                  \
        return result;                                                                \
    } while (0)

/* In the _ptsz and _ptds variants stream 0 means the thread's own default stream; the shim names it by its handle. */
#define LEGACY(stream) (stream)
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* ---- signals.c, drain.c: stopping ---- */

extern _Atomic bool closing;          /* no launch ever again */
extern _Atomic int64_t stopping_until; /* the program's handler is at work until then; 0: no */

void signals_arm(void);
void signals_check(void);
void signals_after_fork(void);
void signals_die(int signal_number) __attribute__((noreturn));
bool drain_start(void);
void drain_request_death(int signal_number); /* async-signal-safe */
void drain_note_stopping(void);
void drain_after_fork(void);
void forking_watch(void);
bool start_thread(void *(*body)(void *)); /* detached, all signals blocked */

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static inline void nap_ns(int64_t ns) {
    struct timespec t = {ns / SECOND_NS, ns % SECOND_NS};
    nanosleep(&t, NULL); /* a signal ends it early, and the caller looks again */
}

#endif
