"""Who used what of a GPU: for its guard, and in joules."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.node.gpu.busy_shares import shares, with_shares
from fairlead.node.gpu.gpus import NodeGpu, NodeGpus
from fairlead.node.gpu.meter import GpuSample
from fairlead.node.mps.survey import Survey
from fairlead.policy.guarding import Transition


def count(node_gpu: NodeGpu, found: Survey, now_s: float) -> list[Transition]:
    """Since the survey before; what the guard makes of it."""
    sample = node_gpu.sample
    if sample is None:
        return []
    charged = {}
    passed_s, node_gpu.accounted_s = now_s - node_gpu.accounted_s, now_s
    for name, running_job in node_gpu.running_jobs.items():
        running_job.pids = found.pids.get(name) or running_job.pids  # what a job used just before its end is its own
        before, after = running_job.charged_s, found.charged_s.get(name)
        running_job.charged_s = after
        if before is not None and after is not None:
            charged[name] = max(after - before, 0.0) / passed_s
    jobs = {name: running_job.pids for name, running_job in node_gpu.running_jobs.items()}
    known = node_gpu.shares = shares(sample, jobs, charged)
    changes = node_gpu.guarded.second(sample, now_s, known)
    node_gpu.count(with_shares(sample, jobs, known), jobs)
    return changes


def charge_so_far(node_gpus: NodeGpus, samples: Iterable[GpuSample]) -> None:
    """Give everybody who is there what was used until now, by what is known of their parts."""
    for sample in samples:
        node_gpu = node_gpus[sample.uuid]
        node_gpu.take(sample)
        node_gpu.xids += sample.xids or ()
        jobs = {name: running_job.pids for name, running_job in node_gpu.running_jobs.items()}
        known = {**shares(sample, jobs, {}), **node_gpu.shares}
        node_gpu.count(with_shares(sample, jobs, known), jobs)
