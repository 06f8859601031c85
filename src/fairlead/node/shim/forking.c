/* After fork the child is a process without CUDA, whatever the parent was: CUDA itself does not survive fork.
 *
 * Locks are made anew, because a thread that the child does not have may have held them; what they guarded is dropped.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "shim.h"

static void in_child(void) {
    real_after_fork();
    usage_after_fork();
    ledger_after_fork();
    pools_after_fork();
    modules_after_fork();
    gate_after_fork();
    flight_after_fork();
    devices_after_fork();
    control_after_fork();
    observe_after_fork();
    services_after_fork();
    drain_after_fork();
    signals_after_fork();
}

void forking_watch(void) {
    pthread_atfork(NULL, NULL, in_child);
}
