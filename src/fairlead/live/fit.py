"""Before a job is accepted: whether any state of this cluster could run it."""

from __future__ import annotations

from fairlead.errors import InputError
from fairlead.live.request import JobRequest
from fairlead.model.cluster import Cluster
from fairlead.model.profile import profile_named
from fairlead.policy.stack import Stack


def check_fit(request: JobRequest, cluster: Cluster, stack: Stack) -> None:
    """Raise `InputError` for more GPUs, or more memory on each of them, than there could ever be."""
    needed = request.least_gpus if stack.sizing.resizes else request.asked_gpus
    wanted = f"{needed} GPU{'s' * (needed > 1)}"
    if needed > cluster.gpus:
        raise InputError(f"gpus: {wanted} asked for, and this cluster is {cluster.describe()}", hint="ask for fewer")
    memory_mib = request.memory_mib or profile_named(request.profile).memory_mib
    if memory_mib <= cluster.least_memory_mib:
        return
    hold_it = cluster.gpus_holding(memory_mib)
    if needed > hold_it:
        raise InputError(
            f"memory_mib: {wanted} with {memory_mib:g} MiB each asked for, and {hold_it} of {cluster.describe()} have"
            " that much",
            hint="ask for less memory, or for fewer GPUs",
        )
