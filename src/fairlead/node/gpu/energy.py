"""Joules per job on GPUs that jobs share, adding up to the device's counter to the millijoule.

The rule is the simulator's: a GPU that somebody is on belongs to its jobs, idle power included, in proportion to their
activity; a GPU that nobody is on is idle energy. Activity is the SM utilisation that the driver tells per process.
Where it tells none of these jobs' (or all of them are still), the jobs that have a process on the GPU share equally.

A process that belongs to no job is not told apart: while a job is on the GPU, its energy goes to the jobs; while none
is, to idle. Without a counter the power readings are integrated and the result is marked as estimated; without these
too, the energy of whoever was there is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fairlead.node.gpu.meter import GpuSample
from fairlead.node.identity import AttemptId

_WRAP_MJ = 2**32
_MOST_W = 3000.0
"""No GPU draws more; what would need more between two readings is no wrap but a counter that was set back."""


@dataclass(frozen=True, slots=True)
class Energy:
    """What somebody used, or as much of it as is known."""

    known_mj: int = 0
    is_complete: bool = True
    """False: for a part of the time nothing was known."""
    is_estimated: bool = False
    """Some of it comes from power readings, not from a counter."""

    @property
    def energy_j(self) -> float | None:
        """Joules in all; None where a part of them is unknown."""
        return self.known_mj / 1000.0 if self.is_complete else None

    @property
    def at_least_j(self) -> float:
        """What is known of it."""
        return self.known_mj / 1000.0

    def __add__(self, other: Energy) -> Energy:
        return Energy(
            self.known_mj + other.known_mj,
            self.is_complete and other.is_complete,
            self.is_estimated or other.is_estimated,
        )


_NONE = Energy()


class GpuEnergy:
    """One GPU's energy, split. `advance` at every reading, and before anything changes on the GPU."""

    def __init__(self) -> None:
        self.jobs: dict[AttemptId, Energy] = {}
        self.idle = _NONE
        self.metered = _NONE
        """All that this GPU used: jobs and idle together."""
        self.resets = 0
        """How often the counter went back; what it counted between the reading before and then is lost."""
        self._last: GpuSample | None = None
        self._left_mj = 0.0

    def advance(self, sample: GpuSample, jobs: Mapping[AttemptId, Collection[int]]) -> None:
        """Give out what was used since the reading before to the jobs that were on the GPU, with their processes."""
        last, self._last = self._last, sample
        if last is None:
            return
        used = self._used(last, sample)
        self.metered += used
        if not jobs:
            self.idle += used
            return
        names = sorted(jobs)
        parts = split_mj(used.known_mj, activity(sample, [jobs[name] for name in names]))
        for name, part in zip(names, parts, strict=True):
            mine = Energy(part, used.is_complete, used.is_estimated)
            self.jobs[name] = self.jobs.get(name, _NONE) + mine

    def forget(self, job: AttemptId) -> Energy:
        """A job has ended; its part of this GPU, which is no longer kept here."""
        return self.jobs.pop(job, _NONE)

    def _used(self, last: GpuSample, now: GpuSample) -> Energy:
        dt_s = max(now.at_s - last.at_s, 0.0)
        if last.energy_mj is not None and now.energy_mj is not None:
            return self._counted(last.energy_mj, now.energy_mj, dt_s)
        if last.power_w is not None and now.power_w is not None:
            # Whole millijoules only, so that parts add up; the rest waits for the next reading.
            exact_mj = 1000.0 * 0.5 * (last.power_w + now.power_w) * dt_s + self._left_mj
            self._left_mj = exact_mj - int(exact_mj)
            return Energy(int(exact_mj), is_estimated=True)
        return Energy(is_complete=dt_s <= 0.0)

    def _counted(self, last_mj: int, now_mj: int, dt_s: float) -> Energy:
        most_mj = 1000.0 * _MOST_W * (dt_s + 1.0)
        if now_mj >= last_mj:
            return Energy(now_mj - last_mj)
        if _WRAP_MJ // 2 <= last_mj < _WRAP_MJ and now_mj + _WRAP_MJ - last_mj <= most_mj:
            return Energy(now_mj + _WRAP_MJ - last_mj)
        self.resets += 1
        return Energy(now_mj if now_mj <= most_mj else 0, is_complete=False)


def activity(sample: GpuSample, jobs: Sequence[Collection[int]]) -> list[float]:
    """How much each job, given by its processes, did on the GPU; only the proportions count."""
    sm = {p.pid: p.sm_frac for p in sample.processes or () if p.sm_frac is not None}
    busy = [sum(sm.get(pid, 0.0) for pid in set(pids)) for pids in jobs]
    if sum(busy) > 0.0:
        return busy
    present = [1.0 if sample.pids.intersection(pids) else 0.0 for pids in jobs]
    return present if any(present) else [1.0] * len(jobs)


def split_mj(total_mj: int, weights: Sequence[float]) -> list[int]:
    """Whole millijoules in proportion to the weights that add up to the total exactly (largest remainders first)."""
    whole = sum(weights)
    exact = [total_mj * (weight / whole) for weight in weights]
    parts = [int(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    missing = total_mj - sum(parts)
    if not 0 <= missing <= len(parts):  # floats end at 2**53; then the largest part takes up what is left
        parts[max(range(len(parts)), key=lambda i: weights[i])] += missing
        return parts
    for i in by_remainder[:missing]:
        parts[i] += 1
    return parts
