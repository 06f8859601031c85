/* What lies beneath the hooks: libc's own dlsym, and the driver's functions.
 *
 * Two traps. Asking dlsym for "dlsym" finds our own, so libc's is read from its symbol table. And the driver is only
 * looked for among what is loaded (RTLD_NOLOAD), because a process that never uses CUDA must not get it from us; this
 * also finds it where it was loaded with RTLD_LOCAL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "shim.h"

struct real real;
_Atomic bool real_bound;

struct hook {
    const char *name, *base;
    int version;
    uint64_t flags;
    void *hook;
    void **real;       /* its field in `real` */
    void *by_address;  /* what cuGetProcAddress gives for it, should that differ from the exported symbol */
};

static struct hook hooks[] = {
#define ROW(name, base, version, flags) {#name, base, version, flags, (void *)name, (void **)&real.name, NULL},
#define THREAD_VERSION(version) ((version) > 7000 ? (version) : 7000) /* when per-thread default streams appeared */
#define SYNC_ROWS(name, base, version, ...)                                      \
    ROW(name, base, version, CU_GET_PROC_LEGACY_STREAM)                          \
    ROW(name##_ptds, base, THREAD_VERSION(version), CU_GET_PROC_PER_THREAD_STREAM)
#define ASYNC_ROWS(name, base, version, ...)                                     \
    ROW(name, base, version, CU_GET_PROC_LEGACY_STREAM)                          \
    ROW(name##_ptsz, base, THREAD_VERSION(version), CU_GET_PROC_PER_THREAD_STREAM)
    HOOKED(ROW)
    COPIES(SYNC_ROWS, ASYNC_ROWS)
#undef ASYNC_ROWS
#undef SYNC_ROWS
#undef ROW
};
#define HOOK_COUNT (sizeof hooks / sizeof hooks[0])

/* ---- libc's symbol table ---- */

struct search {
    const char *name;
    void *found;
};

static const void *at(const struct dl_phdr_info *object, ElfW(Addr) address) {
    /* glibc has relocated these entries in place, other loaders have not. */
    return (const void *)(address < object->dlpi_addr ? address + object->dlpi_addr : address);
}

static uint32_t symbol_count(const uint32_t *gnu) {
    uint32_t buckets = gnu[0], first = gnu[1], bloom = gnu[2], last = 0;
    const uint32_t *bucket = gnu + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++) {
        last = bucket[i] > last ? bucket[i] : last;
    }
    if (last < first) {
        return first;
    }
    while (!(chain[last - first] & 1)) {
        last++;
    }
    return last + 1;
}

static void *object_symbol(const struct dl_phdr_info *object, const char *name) {
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        }
    }
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    uint32_t count = 0;
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            symbols = at(object, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_STRTAB) {
            strings = at(object, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_GNU_HASH) {
            count = symbol_count(at(object, entry->d_un.d_ptr));
        } else if (entry->d_tag == DT_HASH && !count) {
            count = ((const uint32_t *)at(object, entry->d_un.d_ptr))[1];
        }
    }
    for (uint32_t i = 0; symbols && strings && i < count; i++) {
        /* Versions of dlsym differ in name only; an indirect function would need a call to resolve, so not those. */
        if (symbols[i].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC &&
            strcmp(strings + symbols[i].st_name, name) == 0) {
            return (void *)(object->dlpi_addr + symbols[i].st_value);
        }
    }
    return NULL;
}

static int look_in(struct dl_phdr_info *object, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    const char *slash = object->dlpi_name ? strrchr(object->dlpi_name, '/') : NULL;
    const char *base = slash ? slash + 1 : object->dlpi_name;
    bool is_libc = base && (strncmp(base, "libc.", 5) == 0 || strncmp(base, "libdl.", 6) == 0 ||
                            strncmp(base, "ld-musl", 7) == 0);
    if (!is_libc) {
        return 0;
    }
    search->found = object_symbol(object, search->name);
    return search->found != NULL;
}

void *real_libc(const char *name) {
    struct search search = {name, NULL};
    dl_iterate_phdr(look_in, &search);
    return search.found;
}

/* Threads that race in these find the same. */
dlsym_t real_dlsym(void) {
    static _Atomic(dlsym_t) found;
    dlsym_t call = atomic_load_explicit(&found, memory_order_relaxed);
    if (UNLIKELY(!call)) {
        call = (dlsym_t)real_libc("dlsym");
        atomic_store_explicit(&found, call, memory_order_relaxed);
    }
    return call;
}

dlvsym_t real_dlvsym(void) {
    static _Atomic(dlvsym_t) found;
    dlvsym_t call = atomic_load_explicit(&found, memory_order_relaxed);
    if (UNLIKELY(!call)) {
        call = (dlvsym_t)real_libc("dlvsym");
        atomic_store_explicit(&found, call, memory_order_relaxed);
    }
    return call;
}

/* ---- the driver ---- */

struct binding {
    void *exported[HOOK_COUNT];
    void *by_address[HOOK_COUNT];
};

static bool is_exported(const struct binding *binding, const void *pointer) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (binding->exported[i] == pointer) {
            return true;
        }
    }
    return false;
}

/* Should the driver hand out other addresses than it exports, these are what a lookup will return. */
static void ask_get_proc(void *driver, struct binding *binding) {
    __typeof__(real.cuGetProcAddress) ask = (__typeof__(ask))real_dlsym()(driver, "cuGetProcAddress");
    __typeof__(real.cuGetProcAddress_v2) ask_v2 = (__typeof__(ask_v2))real_dlsym()(driver, "cuGetProcAddress_v2");
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        const struct hook *hook = &hooks[i];
        void *found = NULL;
        int status = 0;
        CUresult result = ask_v2 ? ask_v2(hook->base, &found, hook->version, hook->flags, &status)
                          : ask  ? ask(hook->base, &found, hook->version, hook->flags)
                                 : CUDA_ERROR_NOT_SUPPORTED;
        /* (A driver whose own table can be interposed on gives our hook itself.) */
        if (result == CUDA_SUCCESS && found && !is_exported(binding, found) && !real_is_hook(found)) {
            binding->by_address[i] = found;
        }
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void publish(const struct binding *binding) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        *hooks[i].real = binding->exported[i] ? binding->exported[i] : binding->by_address[i];
        hooks[i].by_address = binding->by_address[i];
        if (binding->exported[i] && binding->by_address[i]) {
            log_line("%s: cuGetProcAddress and dlsym differ; both are hooked", hooks[i].name);
        }
    }
}

bool real_bind(void) {
    static __thread bool inside; /* the driver itself may look symbols up while it is being bound */
    void *driver = inside ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) {
        return false;
    }
    inside = true;
    /* No lock of ours while the loader's is taken: another thread may come here from a library's constructor, with the
     * loader's lock in its hands. Threads that race find the same; one publishes it. */
    struct binding binding = {{NULL}, {NULL}};
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        binding.exported[i] = real_dlsym()(driver, hooks[i].name);
    }
    struct real others = {0};
#define FIND(name) others.name = (__typeof__(others.name))real_dlsym()(driver, #name);
    CALLED(FIND)
#undef FIND
    ask_get_proc(driver, &binding);
    (void)dlerror(); /* a variant that this driver lacks is no error of the program's */
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&real_bound, memory_order_acquire)) {
        real = others;
        publish(&binding);
        forking_watch();
        atomic_store_explicit(&real_bound, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    inside = false;
    return true;
}

/* A service is only watched, and an offline job has no need to be watched: what a role does not need stays the driver's. */
static bool wanted(const struct hook *hook) {
    static const char *const waits[] = {"cuCtxSync", "cuStreamSync", "cuStreamQuery", "cuEvent"};
    static const char *const works[] = {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemPrefetch",
                                        "cuGetProc", "cuInit"};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        if (strncmp(hook->name, waits[i], strlen(waits[i])) == 0) {
            return is_observed();
        }
    }
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        if (strncmp(hook->name, works[i], strlen(works[i])) == 0) {
            return true;
        }
    }
    return !is_observed();
}

void *real_to_hook(void *pointer) {
    for (size_t i = 0; pointer && i < HOOK_COUNT; i++) {
        if (wanted(&hooks[i]) && (*hooks[i].real == pointer || hooks[i].by_address == pointer)) {
            return hooks[i].hook;
        }
    }
    return pointer;
}

bool real_is_hook(const void *pointer) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].hook == pointer) {
            return true;
        }
    }
    return false;
}

bool real_knows_name(const char *name) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (strcmp(hooks[i].base, name) == 0 || strcmp(hooks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

void real_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}
