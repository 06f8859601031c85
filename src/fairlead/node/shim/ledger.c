/* Which allocation holds how much, so that its end gives the right amount back.
 *
 * Most memory has one key, its pointer. Virtual memory management has several: cuMemCreate's handle, handles retained
 * from it, and every mapping. The memory is gone only with the last of them, and libraries do release the handle right
 * after mapping it. So keys share a `holding`, and the holding counts them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define BUCKETS 4096u

struct entry {
    struct entry *next;
    enum kind kind;
    uint64_t key, span;
    struct holding *holding;
};

static struct entry *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry **bucket_of(enum kind kind, uint64_t key) {
    return &table[((key ^ ((uint64_t)kind << 59)) * 0x9e3779b97f4a7c15ull) >> 52];
}

static void insert(struct entry *entry) {
    struct entry **bucket = bucket_of(entry->kind, entry->key);
    entry->next = *bucket;
    *bucket = entry;
}

static struct entry *find(enum kind kind, uint64_t key) {
    struct entry *entry = *bucket_of(kind, key);
    while (entry && (entry->key != key || entry->kind != kind)) {
        entry = entry->next;
    }
    return entry;
}

static struct entry *new_entry(enum kind kind, uint64_t key, uint64_t span, struct holding *holding) {
    struct entry *entry = malloc(sizeof *entry);
    if (entry) {
        *entry = (struct entry){NULL, kind, key, span, holding};
    }
    return entry;
}

static struct entry *make(enum kind kind, uint64_t key, uint64_t span, struct holding holding) {
    struct holding *kept = malloc(sizeof *kept);
    struct entry *entry = kept ? new_entry(kind, key, span, kept) : NULL;
    if (!entry) {
        free(kept); /* stays charged: too much counted is the safe side */
        return NULL;
    }
    *kept = holding;
    kept->references = 1;
    return entry;
}

void ledger_add(enum kind kind, uint64_t key, uint64_t span, struct holding holding) {
    struct entry *entry = make(kind, key, span, holding);
    if (entry) {
        pthread_mutex_lock(&lock);
        insert(entry);
        pthread_mutex_unlock(&lock);
    }
}

bool ledger_share(enum kind from_kind, uint64_t from, enum kind kind, uint64_t key, uint64_t span) {
    pthread_mutex_lock(&lock);
    struct entry *source = find(from_kind, from);
    struct entry *entry = source ? new_entry(kind, key, span, source->holding) : NULL;
    if (entry) {
        entry->holding->references++;
        insert(entry);
    }
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

struct entry *ledger_take(enum kind kind, uint64_t key) {
    pthread_mutex_lock(&lock);
    struct entry **link = bucket_of(kind, key);
    while (*link && ((*link)->key != key || (*link)->kind != kind)) {
        link = &(*link)->next;
    }
    struct entry *entry = *link;
    if (entry) {
        *link = entry->next;
    }
    pthread_mutex_unlock(&lock);
    return entry;
}

void ledger_put_back(struct entry *entry) {
    if (entry) {
        pthread_mutex_lock(&lock);
        insert(entry);
        pthread_mutex_unlock(&lock);
    }
}

void ledger_grow(enum kind kind, uint64_t key, struct gpu *gpu, uint64_t bytes) {
    struct entry *fresh = make(kind, key, 0, (struct holding){.gpu = gpu});
    pthread_mutex_lock(&lock);
    struct entry *entry = find(kind, key);
    if (!entry && fresh) {
        insert(fresh);
        entry = fresh;
        fresh = NULL;
    }
    if (entry) {
        entry->holding->bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
    if (fresh) {
        free(fresh->holding);
        free(fresh);
    }
}

void ledger_size_import(enum kind kind, uint64_t key, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    struct entry *entry = find(kind, key);
    struct holding *holding = entry ? entry->holding : NULL;
    if (holding && holding->account == ACCOUNT_IMPORTED && bytes > holding->bytes) {
        usage_add(holding->gpu->usage_index, ACCOUNT_IMPORTED, bytes - holding->bytes);
        holding->bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
}

void ledger_export(enum kind kind, uint64_t key) {
    pthread_mutex_lock(&lock);
    struct entry *entry = find(kind, key);
    struct holding *holding = entry ? entry->holding : NULL;
    if (holding && holding->account == ACCOUNT_USED && !holding->exported_bytes) {
        holding->exported_bytes = holding->bytes;
        usage_add(holding->gpu->usage_index, ACCOUNT_EXPORTED, holding->bytes);
    }
    pthread_mutex_unlock(&lock);
}

static void free_holding(struct holding *holding) {
    unsigned index = holding->gpu->usage_index;
    if (holding->exported_bytes) {
        usage_subtract(index, ACCOUNT_EXPORTED, holding->exported_bytes);
    }
    if (holding->pool) {
        pool_give_back(holding->pool, holding->bytes);
    } else {
        usage_subtract(index, holding->account, holding->bytes);
    }
    free(holding);
}

/* Gives what nobody leads to any more, for free_holding once the lock is released: a pool asks the driver. */
static struct holding *unlink_holding(struct entry *entry) {
    struct holding *last = --entry->holding->references == 0 ? entry->holding : NULL;
    free(entry);
    return last;
}

struct gpu *ledger_drop(struct entry *entry) {
    if (!entry) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    struct holding *last = unlink_holding(entry);
    pthread_mutex_unlock(&lock);
    struct gpu *gpu = last ? last->gpu : NULL;
    if (last) {
        free_holding(last);
    }
    return gpu;
}

uint64_t entry_span(const struct entry *entry) {
    return entry->span;
}

bool ledger_find_mapping(uint64_t address, uint64_t *start) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; !found && i < BUCKETS; i++) {
        for (struct entry *entry = table[i]; entry && !found; entry = entry->next) {
            if (entry->kind == KIND_MAPPING && address >= entry->key && address - entry->key < entry->span) {
                *start = entry->key;
                found = true;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ledger_forget_context(CUcontext context) {
    struct holding *gone = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct entry **link = &table[i];
        while (*link) {
            struct entry *entry = *link;
            if (entry->holding->context && entry->holding->context == context) {
                *link = entry->next;
                struct holding *last = unlink_holding(entry);
                if (last) {
                    last->next = gone;
                    gone = last;
                }
            } else {
                link = &entry->next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        struct holding *next = gone->next;
        free_holding(gone);
        gone = next;
    }
}

void ledger_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    memset(table, 0, sizeof table); /* what they lead to is the parent's */
}
