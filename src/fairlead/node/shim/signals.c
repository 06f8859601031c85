/* SIGTERM and SIGINT: taken over once CUDA is in use, without the program noticing. See STOPPING in shim.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

typedef int (*sigaction_t)(int, const struct sigaction *, struct sigaction *);

#define WATCHED 2
static const int watched[WATCHED] = {SIGTERM, SIGINT};

/* What the program wants, per signal. A handler reads it while another thread may replace it, so replacements go to a
 * fresh row of a small ring: a row is reused only after seven more. */
#define ROWS 8u
static struct sigaction programs[WATCHED][ROWS];
static _Atomic unsigned row[WATCHED];

static _Atomic pid_t armed; /* the process whose signals are ours; 0: none */
static _Atomic int64_t grace_ns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

_Atomic int64_t stopping_until;

static sigaction_t real_sigaction(void) {
    static _Atomic(sigaction_t) found;
    sigaction_t call = atomic_load_explicit(&found, memory_order_relaxed);
    if (!call) {
        call = (sigaction_t)real_libc("sigaction");
        atomic_store_explicit(&found, call, memory_order_relaxed);
    }
    return call;
}

static int index_of(int signal_number) {
    return signal_number == SIGTERM ? 0 : signal_number == SIGINT ? 1 : -1;
}

static struct sigaction program_action(int index) {
    return programs[index][atomic_load(&row[index]) % ROWS];
}

static void remember(int index, const struct sigaction *action) {
    unsigned next = atomic_load(&row[index]) + 1;
    programs[index][next % ROWS] = *action;
    atomic_store(&row[index], next);
}

static bool is_plain(const struct sigaction *action, void (*value)(int)) {
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == value;
}

static void die_by_default(int signal_number) {
    struct sigaction fallback = {.sa_handler = SIG_DFL};
    sigset_t only;
    real_sigaction()(signal_number, &fallback, NULL);
    sigemptyset(&only);
    sigaddset(&only, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    kill(getpid(), signal_number);
}

void signals_die(int signal_number) {
    die_by_default(signal_number);
    nap_ns(SECOND_NS);
    for (;;) {
        syscall(SYS_exit_group, 128 + signal_number); /* process 1 of a container has no default action */
    }
}

static void on_signal(int signal_number, siginfo_t *info, void *context) {
    int saved = errno, index = index_of(signal_number);
    struct sigaction action = program_action(index);
    bool mine = atomic_load(&armed) == getpid(); /* false in a child made by vfork or clone */
    if (is_plain(&action, SIG_DFL)) {
        if (mine) {
            drain_request_death(signal_number);
        } else {
            die_by_default(signal_number);
        }
    } else if (!is_plain(&action, SIG_IGN)) {
        if (mine) {
            atomic_store(&stopping_until, now_ns() + atomic_load(&grace_ns));
            atomic_store(&usage_mine()->state, STATE_STOPPING); /* claimed when armed: no lock here */
            drain_note_stopping();
        }
        if (action.sa_flags & (int)SA_RESETHAND) {
            remember(index, &(struct sigaction){.sa_handler = SIG_DFL});
        }
        errno = saved;
        if (action.sa_flags & SA_SIGINFO) {
            action.sa_sigaction(signal_number, info, context);
        } else {
            action.sa_handler(signal_number);
        }
    }
    errno = saved;
}

/* Puts our handler in front of what the program wants; mask and flags are the program's, so that system calls are
 * interrupted or restarted just as it expects. */
static int install(int index, const struct sigaction *wanted) {
    struct sigaction ours = *wanted;
    if (is_plain(wanted, SIG_IGN)) {
        return real_sigaction()(watched[index], wanted, NULL); /* ignored signals are inherited by exec: keep it so */
    }
    ours.sa_sigaction = on_signal;
    ours.sa_flags = (wanted->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
    if (is_plain(wanted, SIG_DFL)) {
        sigemptyset(&ours.sa_mask);
        ours.sa_flags = SA_SIGINFO | SA_RESTART;
    }
    return real_sigaction()(watched[index], &ours, NULL);
}

static bool is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_signal;
}

void signals_arm(void) {
    if (LIKELY(atomic_load(&armed) == getpid())) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (atomic_load(&armed) != getpid()) {
        usage_mine();
        atomic_store(&grace_ns, (int64_t)(setting_s("FAIRLEAD_SHIM_GRACE_S", 30) * 1e9));
        if (!drain_start()) {
            log_line("no helper thread: signals are not taken over");
        } else {
            for (int i = 0; i < WATCHED; i++) {
                struct sigaction found;
                real_sigaction()(watched[i], NULL, &found);
                remember(i, &found);
                install(i, &found);
            }
        }
        atomic_store(&armed, getpid());
    }
    pthread_mutex_unlock(&lock);
}

void signals_check(void) {
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction found;
        if (real_sigaction()(watched[i], NULL, &found) == 0 && !is_ours(&found) && !is_plain(&found, SIG_IGN)) {
            remember(i, &found);
            install(i, &found);
        }
    }
}

void signals_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    if (!atomic_load(&armed)) {
        return;
    }
    atomic_store(&armed, 0);
    atomic_store(&stopping_until, 0);
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction found, action = program_action(i);
        if (real_sigaction()(watched[i], NULL, &found) == 0 && is_ours(&found)) {
            real_sigaction()(watched[i], &action, NULL);
        }
    }
}

/* ---- what the program calls ---- */

EXPORT int sigaction(int signal_number, const struct sigaction *restrict wanted, struct sigaction *restrict before) {
    int index = index_of(signal_number);
    if (index < 0 || atomic_load(&armed) != getpid()) {
        return real_sigaction()(signal_number, wanted, before);
    }
    struct sigaction previous = program_action(index), fresh;
    if (wanted) {
        fresh = *wanted; /* may be the same memory as `before` */
        remember(index, &fresh);
        if (install(index, &fresh) != 0) {
            remember(index, &previous);
            return -1;
        }
    }
    if (before) {
        *before = previous;
    }
    return 0;
}

static sighandler_t set_handler(int signal_number, sighandler_t handler, int flags) {
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&wanted.sa_mask);
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    return sigaction(signal_number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

sighandler_t bsd_signal(int signal_number, sighandler_t handler);
sighandler_t sysv_signal(int signal_number, sighandler_t handler);
sighandler_t __sysv_signal(int signal_number, sighandler_t handler);

/* libc's signal() calls its own sigaction, not ours, so these need taking over too. */
EXPORT sighandler_t signal(int signal_number, sighandler_t handler) {
    return set_handler(signal_number, handler, SA_RESTART);
}

EXPORT sighandler_t bsd_signal(int signal_number, sighandler_t handler) {
    return set_handler(signal_number, handler, SA_RESTART);
}

EXPORT sighandler_t sysv_signal(int signal_number, sighandler_t handler) {
    return set_handler(signal_number, handler, (int)SA_RESETHAND | SA_NODEFER);
}

EXPORT sighandler_t __sysv_signal(int signal_number, sighandler_t handler) {
    return set_handler(signal_number, handler, (int)SA_RESETHAND | SA_NODEFER);
}
