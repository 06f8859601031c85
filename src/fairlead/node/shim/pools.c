/* Memory pools: what is freed into one stays with the driver, up to the pool's release threshold, which the program may
 * set as high as it likes. So a pool is charged what it holds (the driver says how much), or what was allocated from it
 * if that is more; and before an allocation is refused, pools are told to let go of what nobody uses.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "shim.h"

struct pool {
    struct pool *next;
    CUmemoryPool handle; /* NULL: destroyed, and kept until its last allocation is gone */
    struct gpu *gpu;
    uint64_t live_bytes;    /* allocated from it */
    uint64_t charged_bytes; /* counted for it: never less than live_bytes */
};

static struct pool *pools;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUmemoryPool pool_current(const struct gpu *gpu) {
    CUmemoryPool handle = NULL;
    if (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&handle, gpu->ordinal) != CUDA_SUCCESS) {
        return NULL;
    }
    return handle;
}

struct pool *pool_of(struct gpu *gpu, CUmemoryPool handle) {
    if (!handle) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    struct pool *pool = pools;
    while (pool && (pool->handle != handle || pool->gpu != gpu)) {
        pool = pool->next;
    }
    if (!pool && (pool = calloc(1, sizeof *pool))) {
        pool->handle = handle;
        pool->gpu = gpu;
        pool->next = pools;
        pools = pool;
    }
    pthread_mutex_unlock(&lock);
    return pool;
}

static uint64_t kept_bytes(const struct pool *pool) {
    uint64_t bytes = 0;
    if (!pool->handle || !real.cuMemPoolGetAttribute) {
        return 0;
    }
    int mode = flight_relax();
    CUresult result = real.cuMemPoolGetAttribute(pool->handle, CU_POOL_RESERVED_BYTES, &bytes);
    flight_restore(mode);
    return result == CUDA_SUCCESS ? bytes : 0;
}

/* Call with the lock held: what was asked of the driver must not be older than what is made of it. */
static void refresh(struct pool *pool) {
    uint64_t kept = kept_bytes(pool), wanted = kept > pool->live_bytes ? kept : pool->live_bytes;
    if (wanted > pool->charged_bytes) {
        quota_take(pool->gpu, wanted - pool->charged_bytes);
    } else {
        quota_give_back(pool->gpu, pool->charged_bytes - wanted);
    }
    pool->charged_bytes = wanted;
}

bool pool_reserve(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint64_t after = pool->live_bytes + bytes;
    uint64_t more = after > pool->charged_bytes ? after - pool->charged_bytes : 0;
    pool->live_bytes = after; /* before it is granted: others must not count on the same room */
    pool->charged_bytes += more;
    pthread_mutex_unlock(&lock);
    if (!more || quota_reserve(pool->gpu, more)) {
        return true;
    }
    pthread_mutex_lock(&lock);
    pool->live_bytes -= bytes;
    pool->charged_bytes -= more; /* never was counted */
    refresh(pool);
    pthread_mutex_unlock(&lock);
    return false;
}

bool pool_fits(struct pool *pool) {
    pthread_mutex_lock(&lock);
    refresh(pool); /* a pool grows by more than it was asked for */
    pthread_mutex_unlock(&lock);
    if (quota_has_room(pool->gpu)) {
        return true;
    }
    pools_shrink(pool->gpu);
    return quota_has_room(pool->gpu);
}

void pool_give_back(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    pool->live_bytes -= bytes;
    refresh(pool);
    for (struct pool **link = &pools; !pool->handle && !pool->live_bytes && *link; link = &(*link)->next) {
        if (*link == pool) {
            *link = pool->next;
            free(pool);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void pools_shrink(const struct gpu *gpu) {
    pthread_mutex_lock(&lock);
    int mode = flight_relax();
    for (struct pool *pool = pools; pool; pool = pool->next) {
        if (pool->gpu == gpu && pool->handle && pool->charged_bytes > pool->live_bytes && real.cuMemPoolTrimTo) {
            real.cuMemPoolTrimTo(pool->handle, 0);
            refresh(pool);
        }
    }
    flight_restore(mode);
    pthread_mutex_unlock(&lock);
}

/* Call with the lock held. Without a handle it counts what is allocated, and goes with the last of that. */
static void forget(struct pool **link) {
    struct pool *pool = *link;
    pool->handle = NULL;
    refresh(pool);
    if (!pool->live_bytes) {
        *link = pool->next;
        free(pool);
    }
}

void pools_forget(const struct gpu *gpu) {
    pthread_mutex_lock(&lock);
    for (struct pool **link = &pools; *link;) {
        struct pool *before = *link;
        if (before->gpu == gpu) {
            forget(link);
        }
        if (*link == before) {
            link = &before->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    NEEDS(cuMemPoolDestroy);
    pthread_mutex_lock(&lock); /* nobody asks the driver about it afterwards */
    CUresult result = real.cuMemPoolDestroy(handle);
    for (struct pool **link = &pools; result == CUDA_SUCCESS && *link; link = &(*link)->next) {
        if ((*link)->handle == handle) {
            forget(link);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void pools_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    pools = NULL;
}
