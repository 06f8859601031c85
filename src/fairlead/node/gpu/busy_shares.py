"""Who was how busy on a shared GPU, from what little can be known.

The driver tells the utilisation of each process when they take turns, roughly: four equal trainings got between 0.19
and 0.30 of it on an H200. Under MPS it tells one number, the server's, for all clients together. The shim knows better:
it charges offline jobs the GPU time of what they launch. So where every job has a shim, that counts; else what the
driver says, then the shim, and what is left of the utilisation is the others'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from fairlead.node.gpu.meter import GpuSample, ProcessSample
from fairlead.node.identity import AttemptId

Shares = Mapping[AttemptId, float | None]
"""By job; None: not known."""


def shares(
    sample: GpuSample, jobs: Mapping[AttemptId, Collection[int]], charged_frac: Mapping[AttemptId, float]
) -> Shares:
    """The part of the time that each job kept the GPU busy.

    `jobs` has the processes of each, `charged_frac` what the shim has charged in the same time, for those that have
    one. A job that neither knows gets an equal part of what is left; None where not even the whole is known.
    """
    if jobs and all(name in charged_frac for name in jobs):
        return {name: min(max(charged_frac[name], 0.0), 1.0) for name in jobs}
    sm = {p.pid: p.sm_frac for p in sample.processes or () if p.sm_frac is not None}
    found: dict[AttemptId, float | None] = {}
    for name, pids in jobs.items():
        told = [sm[pid] for pid in pids if pid in sm]
        if told:
            found[name] = min(sum(told), 1.0)
        elif name in charged_frac:
            found[name] = min(max(charged_frac[name], 0.0), 1.0)
        else:
            found[name] = None
    silent = [name for name, part in found.items() if part is None]
    if silent and sample.utilisation_frac is not None:
        left = max(sample.utilisation_frac - sum(part for part in found.values() if part is not None), 0.0)
        found.update(dict.fromkeys(silent, left / len(silent)))
    return found


def with_shares(sample: GpuSample, jobs: Mapping[AttemptId, Collection[int]], known: Shares) -> GpuSample:
    """The sample with each job's share on one of its processes, so that its energy is split by it."""
    others = {p.pid: p for p in sample.processes or ()}
    for name, pids in jobs.items():
        part, mine = known.get(name), [pid for pid in pids if pid in others] or list(pids)[:1]
        for i, pid in enumerate(mine):
            before = others.get(pid, ProcessSample(pid))
            others[pid] = replace(before, sm_frac=part if i == 0 else None)
    return replace(sample, processes=tuple(others[pid] for pid in sorted(others)))
