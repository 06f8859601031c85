/* Copies and fills of the stub driver, made from the shim's own list of them: each takes time by its bytes. */
#include <string.h>

#include "driver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

CUresult stub_copy(uint64_t bytes, void *stream, int per_thread, int waits);
void *stub_copy_export(const char *symbol, int version, int per_thread);

static uint64_t copy_batch_bytes(const size_t *sizes, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += sizes[i];
    }
    return total;
}

#define SYNC(name, base, version, params, names, bytes)                          \
    CUresult name params { return stub_copy((bytes), NULL, 0, 1); }              \
    CUresult name##_ptds params { return stub_copy((bytes), NULL, 1, 1); }
#define ASYNC(name, base, version, params, names, bytes)                         \
    CUresult name params { return stub_copy((bytes), stream, 0, 0); }            \
    CUresult name##_ptsz params { return stub_copy((bytes), stream, 1, 0); }
COPIES(SYNC, ASYNC)

static const struct {
    const char *name;
    int version, per_thread;
    void *function;
} exports[] = {
#define SYNC_ROWS(name, base, version, ...) {base, version, 0, (void *)name}, {base, version, 1, (void *)name##_ptds},
#define ASYNC_ROWS(name, base, version, ...) {base, version, 0, (void *)name}, {base, version, 1, (void *)name##_ptsz},
    COPIES(SYNC_ROWS, ASYNC_ROWS)
};

void *stub_copy_export(const char *symbol, int version, int per_thread) {
    void *found = NULL;
    for (size_t i = 0; i < sizeof exports / sizeof exports[0]; i++) {
        if (exports[i].version <= version && exports[i].per_thread == per_thread &&
            strcmp(exports[i].name, symbol) == 0) {
            found = exports[i].function; /* the newest comes last */
        }
    }
    return found;
}
