/* The services beside an offline job: their busy pages, named by the job's control page and lying beside it.
 *
 * A mark counts only while its process lives: the kernel takes the owner's number out of the slot's robust mutex when
 * that dies, however it dies. Pages are mapped for reading alone. A page that is not named any more stays mapped, since
 * another thread may be reading it; a service that comes again has its page of before.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define KNOWN 256 /* services in the life of a process; one more is not obeyed, and the agent's rate has to do */

static struct {
    char name[SERVICE_NAME];
    ino_t inode;
    const struct busy_page *page;
} known[KNOWN];
static int known_count;
static _Atomic(const struct busy_page *) named[SERVICES];
static _Atomic uint32_t seen_seq;
static _Atomic(const struct control_page *) seen_page;
static _Atomic int64_t tried_ns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct busy_page *map_page(const char *name) {
    char path[4096];
    const char *control = setting("FAIRLEAD_SHIM_PAGE"), *slash = control ? strrchr(control, '/') : NULL;
    int length = slash ? (int)(slash - control) + 1 : 0;
    struct stat info;
    if (strchr(name, '/') || snprintf(path, sizeof path, "%.*s%s", length, control, name) >= (int)sizeof path) {
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(struct busy_page)) {
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    for (int i = 0; i < known_count; i++) {
        if (known[i].inode == info.st_ino && strcmp(known[i].name, name) == 0) {
            close(fd);
            return known[i].page;
        }
    }
    void *memory = known_count < KNOWN ? mmap(NULL, sizeof(struct busy_page), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    const struct busy_page *page = memory == MAP_FAILED ? NULL : memory;
    if (page && (page->magic != BUSY_MAGIC || page->version != PAGE_VERSION)) {
        munmap(memory, sizeof(struct busy_page));
        page = NULL;
    }
    if (page) {
        known[known_count].inode = info.st_ino;
        snprintf(known[known_count].name, SERVICE_NAME, "%s", name);
        known[known_count++].page = page;
    }
    return page;
}

/* Reads the names; a page that can't be had yet is tried again within a second. */
static __attribute__((noinline)) void attach(const struct control_page *control, uint32_t seq) {
    pthread_mutex_lock(&lock);
    bool missing = false;
    for (unsigned i = 0; i < SERVICES; i++) {
        char name[SERVICE_NAME];
        memcpy(name, control->services[i], sizeof name);
        name[SERVICE_NAME - 1] = 0;
        const struct busy_page *page = *name ? map_page(name) : NULL;
        missing = missing || (*name && !page);
        atomic_store_explicit(&named[i], page, memory_order_release);
    }
    atomic_store(&tried_ns, now_ns());
    if (!missing && seq % 2 == 0 && atomic_load(&control->services_seq) == seq) {
        atomic_store(&seen_seq, seq);
        atomic_store(&seen_page, control);
    }
    pthread_mutex_unlock(&lock);
}

static bool is_alive(const struct busy_process *process) {
    return (atomic_load_explicit(&process->owner.word, memory_order_acquire) & FUTEX_TID_MASK) != 0;
}

static bool mark_says_busy(const struct busy_process *process, const struct busy_mark *mark, int64_t *now) {
    uint64_t since = atomic_load_explicit(&mark->since_ns, memory_order_acquire);
    uint32_t linger_us = atomic_load_explicit(&mark->linger_us, memory_order_relaxed);
    if (LIKELY(!since && !linger_us)) {
        return false;
    }
    if (!is_alive(process)) {
        return false;
    }
    *now = *now ? *now : now_ns();
    if (!since) {
        return *now - (int64_t)atomic_load_explicit(&mark->idle_ns, memory_order_relaxed) < (int64_t)linger_us * 1000;
    }
    int64_t lease_ns = (int64_t)atomic_load_explicit(&mark->lease_us, memory_order_relaxed) * 1000;
    return atomic_load_explicit(&mark->waiting, memory_order_relaxed) ||
           *now - (int64_t)atomic_load_explicit(&mark->touched_ns, memory_order_relaxed) < lease_ns;
}

static bool page_says_busy(const struct busy_page *page, const struct gpu *gpu, int64_t *now) {
    static const uint8_t any[16];
    unsigned used = atomic_load_explicit(&page->processes_used, memory_order_acquire);
    used = used < BUSY_PROCESSES ? used : BUSY_PROCESSES;
    for (unsigned g = 0; g < page->gpu_count && g < MAX_GPUS; g++) {
        if (memcmp(page->gpus[g], gpu->uuid, 16) != 0 && memcmp(page->gpus[g], any, 16) != 0) {
            continue;
        }
        for (unsigned i = 0; i < used; i++) {
            if (mark_says_busy(&page->processes[i], &page->processes[i].marks[g], now)) {
                return true;
            }
        }
    }
    return false;
}

bool services_busy(const struct gpu *gpu) {
    const struct control_page *control = control_page_now();
    if (!control) {
        return false;
    }
    uint32_t seq = atomic_load_explicit(&control->services_seq, memory_order_acquire);
    int64_t now = 0;
    if (UNLIKELY(seq != atomic_load_explicit(&seen_seq, memory_order_relaxed) ||
                 (seq && control != atomic_load_explicit(&seen_page, memory_order_relaxed)))) {
        now = now_ns();
        int64_t tried = atomic_load_explicit(&tried_ns, memory_order_relaxed);
        if (!tried || now - tried > 10 * MS_NS) {
            attach(control, seq);
        }
    }
    if (LIKELY(!seq)) {
        return false; /* no service was ever named */
    }
    for (unsigned i = 0; i < SERVICES; i++) {
        const struct busy_page *page = atomic_load_explicit(&named[i], memory_order_acquire);
        if (page && page_says_busy(page, gpu, &now)) {
            return true;
        }
    }
    return false;
}

void services_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}
