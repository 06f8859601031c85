/* The usage page: what each process of the job holds. See page.h for how slots are owned and reservations decided.
 *
 * What this process holds is counted in its own memory (`held`), and only published in its slot: a job that writes its
 * page does not make the process forget. A thread that does nothing else owns the slot, publishes again and again, and
 * repairs the page where it was spoiled.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define PUBLISH_EVERY_NS (SECOND_NS / 4)
#define DECIDE_WITHIN_S 2 /* a neighbour that was stopped with the lock in its hands must not stop us for good */

_Atomic(struct usage_slot *) usage_slot_mine;

static _Atomic(struct usage_page *) page;
static _Atomic bool shared;  /* false: the page is private to this process, and the mutex is enough */
static _Atomic bool crowded; /* no slot was left: the other processes can't see what we hold */
static _Atomic uint64_t held[ACCOUNTS][MAX_GPUS];
static struct {
    bool known;
    uint8_t uuid[16];
} rows[MAX_GPUS]; /* as the page has them, should it lose them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct usage_slot private_slot;
static struct usage_page spare; /* no memory left at all: still count */

static void init_shared(struct shared_lock *made) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&made->mutex, &how);
    pthread_mutexattr_destroy(&how);
}

static bool is_owned(struct usage_slot *slot) {
    return (atomic_load_explicit(&slot->owner.word, memory_order_acquire) & FUTEX_TID_MASK) != 0;
}

/* Gives whether the lock of all processes was taken. Without it a reservation is still decided, by what is published:
 * the page is the job's own, and one that spoils it must not stop for ever. */
static bool begin(void) {
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&shared, memory_order_relaxed)) {
        return false;
    }
    pthread_mutex_t *deciding = &atomic_load(&page)->deciding.mutex;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DECIDE_WITHIN_S;
    int result = pthread_mutex_timedlock(deciding, &until);
    if (result == EOWNERDEAD) {
        pthread_mutex_consistent(deciding); /* every change under it is one store: nothing is half made */
    }
    return result == 0 || result == EOWNERDEAD;
}

static void end(bool taken) {
    if (taken) {
        pthread_mutex_unlock(&atomic_load(&page)->deciding.mutex);
    }
    pthread_mutex_unlock(&lock);
}

static struct usage_page *map_private(void) {
    void *memory = mmap(NULL, sizeof(struct usage_page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? &spare : memory;
}

static void sign(struct usage_page *mapped) {
    mapped->version = PAGE_VERSION;
    mapped->slot_count = SLOTS;
    mapped->magic = USAGE_MAGIC;
}

/* Under the file's lock, which goes with the descriptor. */
static struct usage_page *map_locked(int fd) {
    struct stat info;
    bool sized = fstat(fd, &info) == 0 && (info.st_size >= (off_t)sizeof(struct usage_page) ||
                                           ftruncate(fd, sizeof(struct usage_page)) == 0);
    void *memory = sized ? mmap(NULL, sizeof(struct usage_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        return NULL;
    }
    struct usage_page *mapped = memory;
    if (!mapped->magic) {
        sign(mapped);
    }
    if (mapped->magic != USAGE_MAGIC || mapped->version != PAGE_VERSION || mapped->slot_count != SLOTS) {
        munmap(memory, sizeof(struct usage_page));
        errno = EINVAL;
        return NULL;
    }
    if (!atomic_load(&mapped->prepared)) {
        init_shared(&mapped->deciding);
        atomic_store(&mapped->prepared, 1);
    }
    return mapped;
}

static struct usage_page *map_file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return NULL;
    }
    struct usage_page *mapped = flock(fd, LOCK_EX) == 0 ? map_locked(fd) : NULL;
    int problem = errno;
    flock(fd, LOCK_UN); /* the mapping would keep it */
    close(fd);          /* the mapping stays, and needs no descriptor that the program might close */
    errno = problem;
    return mapped;
}

static void ensure_page(void) {
    if (LIKELY(atomic_load_explicit(&page, memory_order_acquire))) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (!atomic_load(&page)) {
        const char *path = setting("FAIRLEAD_SHIM_USAGE");
        struct usage_page *mapped = path && *path ? map_file(path) : NULL;
        if (path && *path && !mapped) {
            log_line("usage page %s can't be used (%s); memory is counted for this process alone", path,
                     strerror(errno));
        }
        atomic_store(&shared, mapped != NULL);
        atomic_store_explicit(&page, mapped ? mapped : map_private(), memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

/* All but the lock, which has an owner or will get one. */
static void clear(struct usage_slot *slot) {
    size_t from = offsetof(struct usage_slot, pid);
    memset((char *)slot + from, 0, sizeof *slot - from);
}

static void publish(struct usage_slot *slot, enum account account, unsigned index) {
    _Atomic uint64_t *rows[ACCOUNTS] = {slot->used_bytes, slot->exported_bytes, slot->imported_bytes};
    atomic_store(&rows[account][index], atomic_load(&held[account][index]));
}

static void publish_all(struct usage_slot *slot) {
    atomic_store(&slot->pid, (uint32_t)getpid());
    for (int account = 0; account < ACCOUNTS; account++) {
        for (unsigned i = 0; i < MAX_GPUS; i++) {
            publish(slot, (enum account)account, i);
        }
    }
}

/* ---- the owner's thread ---- */

static pthread_mutex_t claiming = PTHREAD_MUTEX_INITIALIZER;
static sem_t claimed;

/* Call between begin and end, on the thread that stays. */
static struct usage_slot *own_a_slot(struct usage_page *mapped) {
    for (unsigned i = 0; i < SLOTS; i++) {
        struct usage_slot *slot = &mapped->slots[i];
        if (i >= atomic_load(&mapped->slots_used)) {
            init_shared(&slot->owner);
            atomic_store(&mapped->slots_used, i + 1);
        } else if (is_owned(slot)) {
            continue;
        }
        int result = pthread_mutex_trylock(&slot->owner.mutex);
        if (result == EOWNERDEAD) {
            pthread_mutex_consistent(&slot->owner.mutex);
        }
        if (result == 0 || result == EOWNERDEAD) {
            return slot;
        }
    }
    return NULL;
}

static void reclaim(void);

/* Somebody has written the page who should not have: others would take us for dead, and our memory for free. */
static void repair(struct usage_page *mapped, struct usage_slot *slot, unsigned number) {
    log_line("the usage page was spoiled; it is repaired");
    sign(mapped);
    if (!atomic_exchange(&mapped->prepared, 1)) {
        init_shared(&mapped->deciding);
    }
    bool taken = begin();
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        if (rows[i].known) {
            memcpy(mapped->gpus[i].uuid, rows[i].uuid, 16);
            atomic_store(&mapped->gpus[i].known, 1);
        }
    }
    for (unsigned i = atomic_load(&mapped->slots_used); i <= number; i++) {
        init_shared(&mapped->slots[i].owner); /* theirs to take again */
        atomic_store(&mapped->slots_used, i + 1);
    }
    init_shared(&slot->owner);
    pthread_mutex_lock(&slot->owner.mutex);
    end(taken);
}

static void *keep(void *unused) {
    (void)unused;
    bool taken = begin();
    reclaim(); /* what the slot's last owner has exported is not forgotten with it */
    struct usage_slot *slot = own_a_slot(atomic_load(&page));
    if (slot) {
        clear(slot);
        publish_all(slot);
        atomic_store(&slot->state, STATE_RUNNING);
        atomic_store_explicit(&usage_slot_mine, slot, memory_order_release);
    }
    end(taken);
    sem_post(&claimed);
    while (slot) {
        nap_ns(PUBLISH_EVERY_NS);
        struct usage_page *mapped = atomic_load(&page);
        unsigned number = (unsigned)(slot - mapped->slots);
        if (!is_owned(slot) || mapped->magic != USAGE_MAGIC || atomic_load(&mapped->slots_used) <= number) {
            repair(mapped, slot, number);
        }
        pthread_mutex_lock(&lock);
        publish_all(slot); /* again: the job can write the page */
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void claim_shared(void) {
    sem_init(&claimed, 0, 0);
    if (start_thread(keep)) {
        while (sem_wait(&claimed) < 0 && errno == EINTR) {
        }
    }
}

struct usage_slot *usage_claim(void) {
    ensure_page();
    pthread_mutex_lock(&claiming);
    if (!atomic_load(&usage_slot_mine) && atomic_load(&shared)) {
        claim_shared();
    }
    struct usage_slot *slot = atomic_load(&usage_slot_mine);
    if (!slot) {
        slot = atomic_load(&shared) ? &private_slot : &atomic_load(&page)->slots[0];
        if (slot == &private_slot) {
            atomic_store(&crowded, true);
            log_line("no slot of the usage page could be had, of %u: under a quota this process gets no memory", SLOTS);
        }
        publish_all(slot);
        atomic_store(&slot->state, STATE_RUNNING);
        atomic_store_explicit(&usage_slot_mine, slot, memory_order_release);
    }
    pthread_mutex_unlock(&claiming);
    return slot;
}

/* ---- GPUs ---- */

unsigned usage_gpu_index(const uint8_t uuid[16]) {
    ensure_page();
    bool taken = begin();
    struct usage_gpu *gpus = atomic_load(&page)->gpus;
    unsigned index = MAX_GPUS - 1; /* more GPUs than rows: the last row is shared */
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        if (!atomic_load(&gpus[i].known)) {
            memcpy(gpus[i].uuid, uuid, 16);
            atomic_store(&gpus[i].refilled_ns, (uint64_t)now_ns());
            atomic_store(&gpus[i].known, 1);
        }
        if (memcmp(gpus[i].uuid, uuid, 16) == 0) {
            index = i;
            break;
        }
    }
    rows[index].known = true;
    memcpy(rows[index].uuid, uuid, 16);
    end(taken);
    return index;
}

struct usage_gpu *usage_gpu(unsigned index) {
    return &atomic_load_explicit(&page, memory_order_acquire)->gpus[index];
}

/* ---- bytes; call these between begin and end ---- */

static unsigned slots_in_use(struct usage_page *mapped) {
    unsigned count = atomic_load(&mapped->slots_used);
    return !atomic_load(&shared) ? 0 : count < SLOTS ? count : SLOTS;
}

static uint64_t sum(unsigned index) {
    struct usage_page *mapped = atomic_load(&page);
    struct usage_slot *mine = atomic_load(&usage_slot_mine);
    uint64_t used = atomic_load(&held[ACCOUNT_USED][index]), imported = atomic_load(&held[ACCOUNT_IMPORTED][index]);
    for (unsigned i = 0, count = slots_in_use(mapped); i < count; i++) {
        if (&mapped->slots[i] != mine) {
            used += atomic_load(&mapped->slots[i].used_bytes[index]);
            imported += atomic_load(&mapped->slots[i].imported_bytes[index]);
        }
    }
    /* Memory that a process has imported is counted with the one that allocated it, while that lives. */
    uint64_t orphaned = atomic_load(&mapped->gpus[index].orphaned_bytes);
    if (orphaned && !imported) {
        atomic_store(&mapped->gpus[index].orphaned_bytes, 0);
    }
    return used + (orphaned < imported ? orphaned : imported);
}

static void reclaim(void) {
    struct usage_page *mapped = atomic_load(&page);
    for (unsigned i = 0, count = slots_in_use(mapped); i < count; i++) {
        struct usage_slot *slot = &mapped->slots[i];
        if (slot == atomic_load(&usage_slot_mine) || !atomic_load(&slot->pid) || is_owned(slot)) {
            continue;
        }
        for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++) {
            atomic_fetch_add(&mapped->gpus[gpu].orphaned_bytes, atomic_load(&slot->exported_bytes[gpu]));
        }
        clear(slot);
    }
}

static void hold(unsigned index, enum account account, uint64_t bytes) {
    struct usage_slot *slot = atomic_load(&usage_slot_mine);
    atomic_fetch_add(&held[account][index], bytes);
    if (slot) {
        publish(slot, account, index);
    }
}

/* ---- what others call ---- */

uint64_t usage_sum(unsigned index) {
    ensure_page();
    bool taken = begin();
    reclaim();
    uint64_t total = sum(index);
    end(taken);
    return total;
}

bool usage_reserve(unsigned index, uint64_t bytes, uint64_t limit) {
    usage_mine();
    if (!limit) {
        usage_add(index, ACCOUNT_USED, bytes);
        return true;
    }
    if (UNLIKELY(atomic_load(&crowded))) {
        return false;
    }
    bool taken = begin();
    /* Who lives is looked at only when it could matter. */
    uint64_t total = sum(index);
    if (bytes > limit || total > limit - bytes) {
        reclaim();
        total = sum(index);
    }
    bool fits = bytes <= limit && total <= limit - bytes;
    if (fits) {
        hold(index, ACCOUNT_USED, bytes);
    }
    end(taken);
    return fits;
}

void usage_add(unsigned index, enum account account, uint64_t bytes) {
    usage_mine();
    pthread_mutex_lock(&lock);
    hold(index, account, bytes);
    pthread_mutex_unlock(&lock);
}

void usage_subtract(unsigned index, enum account account, uint64_t bytes) {
    usage_add(index, account, -bytes);
}

void usage_after_fork(void) {
    /* The parent's slot stays the parent's: its thread has it. The mapping serves us too, unless it is the parent's
     * private one, copied with its numbers in it. */
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&claiming, NULL);
    if (!atomic_load(&shared)) {
        if (atomic_exchange(&page, NULL) == &spare) {
            memset(&spare, 0, sizeof spare);
        }
    }
    memset(held, 0, sizeof held);
    memset(rows, 0, sizeof rows);
    memset(&private_slot, 0, sizeof private_slot);
    atomic_store(&crowded, false);
    atomic_store(&usage_slot_mine, NULL);
}
