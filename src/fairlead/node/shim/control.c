/* What the agent wants, read from the control page. See shim.h for what holds when the agent is gone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define STALE_AFTER_MS 10000u
#define STALE_RATE_PPM 100000u
#define STOPPING_RATE_PPM 500000u
#define INFLIGHT_US 50000u
#define CHECK_EVERY 64u /* launches at full rate between two looks at the heartbeat */

static _Atomic(const struct control_page *) page;
static _Atomic int configured; /* 0: not looked yet, 1: no page is wanted, 2: one is */
static _Atomic(const struct page_gpu *) records[MAX_GPUS];
static _Atomic bool gone; /* the agent was found gone: the fast path is shut until it is seen again */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ino_t inode;
static int64_t tried_ns;

static const struct control_page *map_page(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < (off_t)PAGE_BYTES) {
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    const struct control_page *mapped = NULL;
    if (info.st_ino != inode || !atomic_load(&page)) {
        void *memory = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        mapped = memory == MAP_FAILED ? NULL : memory;
        if (mapped && (mapped->magic != PAGE_MAGIC || mapped->version != PAGE_VERSION ||
                       mapped->gpu_count > MAX_GPUS)) {
            munmap(memory, PAGE_BYTES);
            mapped = NULL;
        }
        inode = mapped ? info.st_ino : inode;
    }
    close(fd);
    return mapped;
}

/* Opens the page, or the one that has replaced it; at most once a second. The old mapping stays: others may read it. */
static void open_page(int64_t now) {
    pthread_mutex_lock(&lock);
    const char *path = setting("FAIRLEAD_SHIM_PAGE");
    if (!path || !*path) {
        atomic_store(&configured, 1);
    } else if (!tried_ns || now - tried_ns > SECOND_NS) {
        const struct control_page *mapped = map_page(path);
        if (mapped) {
            for (unsigned i = 0; i < MAX_GPUS; i++) {
                atomic_store(&records[i], NULL);
            }
            atomic_store_explicit(&page, mapped, memory_order_release);
        } else if (!tried_ns) {
            log_line("control page %s can't be used yet; launches go at the floor rate", path);
        }
        tried_ns = now;
        atomic_store(&configured, 2);
    }
    pthread_mutex_unlock(&lock);
}

static const struct page_gpu *find_record(const struct control_page *mapped, const uint8_t uuid[16]) {
    static const uint8_t any[16];
    const struct page_gpu *found = NULL;
    for (unsigned i = 0; i < mapped->gpu_count; i++) {
        if (memcmp(mapped->gpus[i].uuid, uuid, 16) == 0) {
            return &mapped->gpus[i];
        }
        if (memcmp(mapped->gpus[i].uuid, any, 16) == 0) {
            found = &mapped->gpus[i];
        }
    }
    return found;
}

static const struct page_gpu *record_of(const struct control_page *mapped, const struct gpu *gpu) {
    const struct page_gpu *found = atomic_load_explicit(&records[gpu->ordinal], memory_order_acquire);
    if (LIKELY(found)) {
        return found;
    }
    found = find_record(mapped, gpu->uuid);
    atomic_store_explicit(&records[gpu->ordinal], found, memory_order_release);
    return found;
}

static bool is_stale(const struct control_page *mapped, int64_t now) {
    uint32_t after_ms = atomic_load_explicit(&mapped->stale_after_ms, memory_order_relaxed);
    int64_t beat = (int64_t)atomic_load_explicit(&mapped->heartbeat_ns, memory_order_relaxed);
    return now - beat > (int64_t)(after_ms ? after_ms : STALE_AFTER_MS) * MS_NS;
}

bool control_is_open(const struct gpu *gpu) {
    static __thread unsigned ticks;
    if (UNLIKELY(atomic_load_explicit(&closing, memory_order_relaxed) ||
                 atomic_load_explicit(&stopping_until, memory_order_relaxed))) {
        return false;
    }
    const struct control_page *mapped = atomic_load_explicit(&page, memory_order_acquire);
    if (!mapped) {
        return atomic_load_explicit(&configured, memory_order_relaxed) == 1;
    }
    const struct page_gpu *record = record_of(mapped, gpu);
    if (UNLIKELY(!record || atomic_load_explicit(&record->frozen, memory_order_relaxed) ||
                 atomic_load_explicit(&record->rate_ppm, memory_order_relaxed) < FULL_RATE ||
                 services_busy(gpu))) {
        return false;
    }
    if (UNLIKELY(++ticks % CHECK_EVERY == 0) && is_stale(mapped, now_ns())) {
        atomic_store(&gone, true);
    }
    return !atomic_load_explicit(&gone, memory_order_relaxed);
}

static struct wish read_record(const struct control_page *mapped, const struct page_gpu *record) {
    struct wish wish = {0, false};
    for (int tries = 0; tries < 100; tries++) { /* an agent that died while writing leaves seq odd: don't wait for it */
        uint32_t before = atomic_load_explicit(&mapped->seq, memory_order_acquire);
        wish.rate_ppm = atomic_load_explicit(&record->rate_ppm, memory_order_acquire);
        wish.frozen = atomic_load_explicit(&record->frozen, memory_order_acquire) != 0;
        uint32_t after = atomic_load_explicit(&mapped->seq, memory_order_acquire);
        if (before == after && before % 2 == 0) {
            break;
        }
    }
    wish.frozen = wish.frozen || wish.rate_ppm == 0;
    return wish;
}

static struct wish page_wish(const struct gpu *gpu, int64_t now) {
    const struct control_page *mapped = atomic_load_explicit(&page, memory_order_acquire);
    if (!mapped || is_stale(mapped, now)) {
        open_page(now);
        if (atomic_load(&configured) == 1) {
            return (struct wish){FULL_RATE, false};
        }
        mapped = atomic_load_explicit(&page, memory_order_acquire);
    }
    const struct page_gpu *record = mapped ? record_of(mapped, gpu) : NULL;
    if (!record || is_stale(mapped, now)) {
        uint32_t floor_ppm = mapped ? atomic_load_explicit(&mapped->stale_rate_ppm, memory_order_relaxed) : 0;
        atomic_store(&gone, true);
        return (struct wish){floor_ppm ? floor_ppm : STALE_RATE_PPM, false};
    }
    atomic_store(&gone, false);
    return read_record(mapped, record);
}

struct wish control_wish(const struct gpu *gpu, int64_t now) {
    struct wish wish = page_wish(gpu, now);
    int64_t until = atomic_load(&stopping_until);
    if (until && now < until) {
        bool slow = wish.frozen || wish.rate_ppm < STOPPING_RATE_PPM;
        wish = (struct wish){slow ? STOPPING_RATE_PPM : wish.rate_ppm, false};
    } else if (until && atomic_compare_exchange_strong(&stopping_until, &until, 0)) {
        log_line("the program's signal handler did not end it in time; the agent's rate holds again");
        atomic_store(&usage_mine()->state, STATE_RUNNING);
    }
    return wish;
}

/* The last word counts, from an agent that is gone too: a quota that nobody watches is still a promise to a neighbour. */
uint64_t control_quota(const uint8_t uuid[16]) {
    const struct control_page *mapped = atomic_load_explicit(&page, memory_order_acquire);
    if (atomic_load_explicit(&configured, memory_order_relaxed) != 1) {
        int64_t now = now_ns();
        if (!mapped || is_stale(mapped, now)) {
            open_page(now);
            mapped = atomic_load_explicit(&page, memory_order_acquire);
        }
    }
    const struct page_gpu *record = mapped ? find_record(mapped, uuid) : NULL;
    return record ? atomic_load_explicit(&record->quota_bytes, memory_order_acquire) : 0;
}

const struct control_page *control_page_now(void) {
    return atomic_load_explicit(&page, memory_order_acquire);
}

int64_t control_inflight_ns(const struct gpu *gpu) {
    const struct control_page *mapped = atomic_load_explicit(&page, memory_order_acquire);
    const struct page_gpu *record = mapped ? record_of(mapped, gpu) : NULL;
    uint32_t us = record ? atomic_load_explicit(&record->inflight_us, memory_order_relaxed) : 0;
    us = us || !mapped ? us : atomic_load_explicit(&mapped->inflight_us, memory_order_relaxed);
    return (int64_t)(us ? us : INFLIGHT_US) * 1000;
}

void control_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}
