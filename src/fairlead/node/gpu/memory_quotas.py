"""How much of a GPU's memory each job may hold, and who holds more.

A job that declared its memory has that. One that did not, and starts beside others, gets its part of what they leave,
fixed when it starts: programs size themselves once. One that is alone has no quota until somebody joins; then it keeps
what it has had at its peak, and its part of what is left. That only shrinks while the neighbours need more, never below
its peak, and is lifted when it is alone again.

The shim keeps honest programs within it. Whoever gets round the shim is seen here, by what the driver tells of every
process, and is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.node.gpu.gpus import NodeGpu, NodeGpus
from fairlead.node.mps.survey import Survey
from fairlead.node.order import Order
from fairlead.node.running_jobs import RunningJob

CONTEXT_MIB = 640.0
"""What a process holds on a GPU before it allocates anything: the driver's context and the libraries' code. The shim
does not count it, the driver does."""
MOST_CONTEXTS = 4
"""So many processes of a job are allowed a context beside the quota; more must fit into it."""
LEAST_MIB = 256.0
_MARGIN = 1.05
LOOKS = 2
"""Over the quota in so many looks, a second apart, is no moment between two numbers."""


@dataclass(frozen=True, slots=True)
class Resident:
    """One job as the others must reckon with it."""

    peak_mib: float
    declared_mib: float | None = None

    @property
    def claim_mib(self) -> float:
        """What is certainly its own."""
        return max(self.peak_mib, self.declared_mib or 0.0)


def part_mib(total_mib: float, residents: Iterable[Resident]) -> float:
    """What each who declared nothing may have beside its claim: an equal part of what is left."""
    everybody = list(residents)
    open_ended = sum(one.declared_mib is None for one in everybody)
    left_mib = total_mib - sum(one.claim_mib + CONTEXT_MIB for one in everybody)
    return max(left_mib, 0.0) / max(open_ended, 1)


def at_start(node_gpus: NodeGpus, order: Order) -> float | None:
    """The quota of a job that is about to start; None: none yet, it will be alone."""
    if order.is_service or not order.shared or order.quota_mib is not None:
        return order.quota_mib
    found = []
    for node_gpu in node_gpus.of(order):
        total_mib = node_gpu.guarded.info.memory_total_mib
        others = [
            _resident(node_gpu, running_job)
            for running_job in node_gpu.running_jobs.values()
            if running_job.eviction is None
        ]
        if others and total_mib:
            found.append(max(part_mib(total_mib, [*others, Resident(0.0)]), LEAST_MIB))
    return min(found, default=None)


def note_peaks(node_gpu: NodeGpu, found: Survey) -> None:
    """Remember what everybody held at most: by the shim's count, which a quota is in, else by the driver's.

    The shim's count is on a page that the job can write, and a peak is a claim: no more counts than the driver sees.
    """
    for name, running_job in node_gpu.running_jobs.items():
        words = (found.held_mib.get(name, {}).get(node_gpu.uuid), used_mib(node_gpu, running_job))
        held_mib = min((word for word in words if word is not None), default=0.0)
        running_job.peak_mib[node_gpu.uuid] = max(running_job.peak_mib.get(node_gpu.uuid, 0.0), held_mib)


def renew(node_gpu: NodeGpu) -> None:
    """Set, shrink or lift the quotas of those that began alone."""
    total_mib = node_gpu.guarded.info.memory_total_mib
    if not total_mib:
        return
    open_ended = [
        running_job
        for running_job in node_gpu.running_jobs.values()
        if running_job.page is not None and _is_open(running_job)
    ]
    part = part_mib(total_mib, [_resident(node_gpu, running_job) for running_job in node_gpu.running_jobs.values()])
    for running_job in open_ended:
        if len(node_gpu.running_jobs) == 1:
            running_job.set_quota(None, node_gpu.uuid)
            continue
        peak_mib, before_mib = running_job.peak_mib.get(node_gpu.uuid, 0.0), running_job.quota_mib(node_gpu.uuid)
        wanted_mib = max(_MARGIN * peak_mib, peak_mib + part, LEAST_MIB)
        if before_mib is not None:
            wanted_mib = min(max(wanted_mib, _MARGIN * peak_mib), before_mib)
        running_job.set_quota(wanted_mib, node_gpu.uuid)


def used_mib(node_gpu: NodeGpu, running_job: RunningJob) -> float | None:
    """What the driver says that its processes hold; None: it does not say."""
    processes = () if node_gpu.sample is None else node_gpu.sample.processes or ()
    known = [one.memory_mib for one in processes if one.pid in running_job.pids and one.memory_mib is not None]
    return sum(known) if known else None


def limit_mib(running_job: RunningJob) -> float | None:
    """What MPS holds a job to from its start: a little more than its quota, or nothing."""
    return None if running_job.start_quota_mib is None else allowed_mib(running_job.start_quota_mib, 1)


def allowed_mib(quota_mib: float, processes: int) -> float:
    """Up to where nobody is over it, as the driver counts."""
    return _MARGIN * quota_mib + CONTEXT_MIB * min(max(processes, 1), MOST_CONTEXTS)


def over(node_gpu: NodeGpu) -> list[tuple[RunningJob, str]]:
    """Who has held more than it may for long enough, and by how much."""
    found = []
    for running_job in node_gpu.running_jobs.values():
        quota_mib, held_mib = running_job.quota_mib(node_gpu.uuid), used_mib(node_gpu, running_job)
        most_mib = None if quota_mib is None else allowed_mib(quota_mib, len(running_job.pids))
        if most_mib is None or held_mib is None or held_mib <= most_mib:
            running_job.looks_over.pop(node_gpu.uuid, None)
            continue
        looks = running_job.looks_over[node_gpu.uuid] = running_job.looks_over.get(node_gpu.uuid, 0) + 1
        if looks >= LOOKS:
            found.append(
                (running_job, f"holds {held_mib:.0f} MiB of {node_gpu.uuid}, its quota is {quota_mib:.0f} MiB")
            )
    return found


def _is_open(running_job: RunningJob) -> bool:
    return not running_job.order.is_service and running_job.start_quota_mib is None


def _resident(node_gpu: NodeGpu, running_job: RunningJob) -> Resident:
    order = running_job.order
    declared_mib = (order.memory_mib or None) if order.is_service else running_job.start_quota_mib
    return Resident(running_job.peak_mib.get(node_gpu.uuid, 0.0), declared_mib)
