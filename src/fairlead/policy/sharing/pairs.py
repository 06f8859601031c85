"""Partners for a pair: jobs that are alone on GPUs of the right number."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.policy.view import JobState, View


def can_wake(width: int, free: int, view: View) -> bool:
    """Whether nodes that sleep or are waking would hold the job: then the cluster is not full, and it waits."""
    coming = view.usable_gpus(view.asleep | view.waking)
    return free + coming >= width and coming > 0


def single_jobs(state: JobState, width: int, memory_frac: float, view: View) -> Iterator[JobState]:
    """Running jobs of equal width that share with nobody yet and whose memory leaves room, in order of submission."""
    for group, gpus in sorted(view.groups.items()):
        if len(group) != 1 or len(gpus) != width or not view.drained.isdisjoint(gpus):
            continue
        partner = view.running[group[0]]
        room_mib = memory_frac * view.cluster.gpu_model(partner.gpus[0]).memory_mib
        if partner.gpus and state.job.memory_mib + partner.job.memory_mib <= room_mib and len(partner.gpus) == width:
            yield partner
