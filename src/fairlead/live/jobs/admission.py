"""Before a job is accepted: whether any state of this cluster could run it."""

from __future__ import annotations

from fairlead.errors import InputError
from fairlead.live.jobs.request import JobRequest
from fairlead.model.catalogue import Catalogue
from fairlead.model.cluster import Cluster
from fairlead.policy.by_parts import refusal
from fairlead.policy.fit import least_gpus, most_gpus
from fairlead.policy.stack import Stack


def check_fit(request: JobRequest, cluster: Cluster, stack: Stack, catalogue: Catalogue) -> None:
    """Raise `InputError` for more than there could ever be, and for parts of GPUs where the policy has none."""
    if request.gpu_frac < 1.0 and (reason := refusal(stack)) is not None:
        raise InputError(f"gpus: a part of a GPU asked for, and the policy is {stack.spec}: {reason}")
    needed = least_gpus(request.asked_gpus, request.least_gpus, stack)
    wanted = f"{needed} GPU{'s' * (needed > 1)}"
    if needed > cluster.gpus:
        raise InputError(f"gpus: {wanted} asked for, and this cluster is {cluster.describe()}", hint="ask for fewer")
    memory_mib = request.memory_mib or catalogue.profile(request.profile).memory_mib
    hold_it = most_gpus(memory_mib, cluster)
    if needed > hold_it:
        raise InputError(
            f"memory_mib: {wanted} with {memory_mib:g} MiB each asked for, and {hold_it} of {cluster.describe()} have"
            " that much",
            hint="ask for less memory, or for fewer GPUs",
        )
