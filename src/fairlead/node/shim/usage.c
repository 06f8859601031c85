/* The usage page: what each process of the job holds. See page.h for how slots are owned and reservations decided. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

_Atomic(struct usage_slot *) usage_slot_mine;

static struct usage_page *page;
static int page_fd = -1; /* -1: the page is private to this process, and the mutex is enough */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool lock_byte(unsigned byte, short type, int command) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do {
        result = fcntl(page_fd, command, &range);
    } while (result < 0 && errno == EINTR && command == F_SETLKW);
    return result == 0;
}

static void begin(void) {
    pthread_mutex_lock(&lock); /* record locks don't exclude threads of one process */
    if (page_fd >= 0) {
        lock_byte(SLOTS, F_WRLCK, F_SETLKW);
    }
}

static void end(void) {
    if (page_fd >= 0) {
        lock_byte(SLOTS, F_UNLCK, F_SETLK);
    }
    pthread_mutex_unlock(&lock);
}

static void *map_private(void) {
    page_fd = -1;
    void *memory = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static struct usage_page *map_file(const char *path) {
    page_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat info;
    if (page_fd < 0 || !lock_byte(SLOTS, F_WRLCK, F_SETLKW)) {
        return NULL;
    }
    bool sized = fstat(page_fd, &info) == 0 &&
                 (info.st_size >= (off_t)sizeof *page || ftruncate(page_fd, sizeof *page) == 0);
    void *memory = sized ? mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        lock_byte(SLOTS, F_UNLCK, F_SETLK);
        return NULL;
    }
    struct usage_page *mapped = memory;
    if (!mapped->magic) {
        mapped->version = PAGE_VERSION;
        mapped->slot_count = SLOTS;
        mapped->magic = USAGE_MAGIC;
    }
    lock_byte(SLOTS, F_UNLCK, F_SETLK);
    if (mapped->magic != USAGE_MAGIC || mapped->version != PAGE_VERSION || mapped->slot_count != SLOTS) {
        munmap(memory, sizeof *page);
        return NULL;
    }
    return mapped;
}

static void open_page(void) {
    const char *path = getenv("FAIRLEAD_SHIM_USAGE");
    if (path && *path) {
        page = map_file(path);
        if (page) {
            return;
        }
        log_line("usage page %s can't be used (%s); memory is counted for this process alone", path, strerror(errno));
        if (page_fd >= 0) {
            close(page_fd);
        }
    }
    page = map_private();
    if (!page) {
        static struct usage_page spare; /* no memory left at all: still count */
        page = &spare;
    }
}

static void ensure_page(void) {
    pthread_mutex_lock(&lock);
    if (!page) {
        open_page();
    }
    pthread_mutex_unlock(&lock);
}

static void clear(struct usage_slot *slot) {
    /* Field by field through the atomics would say no more: nobody else writes a slot whose lock is free. */
    memset((void *)slot, 0, sizeof *slot);
}

struct usage_slot *usage_claim(void) {
    ensure_page();
    begin();
    struct usage_slot *slot = atomic_load_explicit(&usage_slot_mine, memory_order_acquire);
    for (unsigned i = 0; !slot && i < SLOTS; i++) {
        if (page_fd < 0 || lock_byte(i, F_WRLCK, F_SETLK)) {
            slot = &page->slots[i];
            clear(slot);
        }
    }
    if (!slot) {
        static struct usage_slot overflow;
        slot = &overflow;
        log_line("all %u slots of the usage page are taken; this process is not counted for the others", SLOTS);
    }
    atomic_store(&slot->pid, (uint32_t)getpid());
    atomic_store(&slot->state, STATE_RUNNING);
    atomic_store_explicit(&usage_slot_mine, slot, memory_order_release);
    end();
    return slot;
}

unsigned usage_gpu_index(const uint8_t uuid[16]) {
    usage_mine();
    begin();
    unsigned index = MAX_GPUS - 1; /* more GPUs than rows: the last row is shared */
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        if (!page->gpus[i].known) {
            memcpy(page->gpus[i].uuid, uuid, 16);
            atomic_store(&page->gpus[i].refilled_ns, (uint64_t)now_ns());
            atomic_store(&page->gpus[i].known, 1);
        }
        if (memcmp(page->gpus[i].uuid, uuid, 16) == 0) {
            index = i;
            break;
        }
    }
    end();
    return index;
}

struct usage_gpu *usage_gpu(unsigned index) {
    return &page->gpus[index];
}

/* Call between begin and end. */
static uint64_t sum(unsigned index) {
    uint64_t total = atomic_load(&usage_slot_mine->used_bytes[index]);
    for (unsigned i = 0; page_fd >= 0 && i < SLOTS; i++) {
        if (&page->slots[i] != usage_slot_mine) {
            total += atomic_load(&page->slots[i].used_bytes[index]);
        }
    }
    return total;
}

static void reclaim(void) {
    for (unsigned i = 0; page_fd >= 0 && i < SLOTS; i++) {
        struct usage_slot *slot = &page->slots[i];
        if (slot != usage_slot_mine && atomic_load(&slot->pid) && lock_byte(i, F_WRLCK, F_SETLK)) {
            clear(slot); /* its owner is dead: the lock was free */
            lock_byte(i, F_UNLCK, F_SETLK);
        }
    }
}

uint64_t usage_sum(unsigned index) {
    usage_mine();
    begin();
    reclaim();
    uint64_t total = sum(index);
    end();
    return total;
}

bool usage_reserve(unsigned index, uint64_t bytes, uint64_t limit) {
    struct usage_slot *slot = usage_mine();
    if (!limit) {
        atomic_fetch_add(&slot->used_bytes[index], bytes);
        return true;
    }
    begin();
    /* Asking which processes live costs a system call each, so only when it could matter. */
    uint64_t total = sum(index);
    if (bytes > limit || total > limit - bytes) {
        reclaim();
        total = sum(index);
    }
    bool fits = bytes <= limit && total <= limit - bytes;
    if (fits) {
        atomic_fetch_add(&slot->used_bytes[index], bytes);
    }
    end();
    return fits;
}

void usage_give_back(unsigned index, uint64_t bytes) {
    atomic_fetch_sub(&usage_mine()->used_bytes[index], bytes);
}

void usage_after_fork(void) {
    /* The parent's slot stays the parent's: record locks are not inherited. The mapping and descriptor serve us too. */
    pthread_mutex_init(&lock, NULL);
    if (page && page_fd < 0) {
        page = NULL; /* a private page is copied on fork, with the parent's numbers in it */
    }
    atomic_store(&usage_slot_mine, NULL);
}
