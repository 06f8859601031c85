"""How often jobs of each kind come and how large they are: first estimates, corrected by what is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.policy.sizing.budget import JobType
from fairlead.policy.sizing.curves import Kind, KindKey
from fairlead.policy.view import JobState

_LEAST_S = 600.0
"""Without a first estimate a rate is that of the arrivals so far over the time so far, and at least over this long."""
_SIZE_S = 3600.0
"""What a job is taken to need on one GPU before anything is known, with the weight of one job."""


@dataclass(slots=True)
class _Count:
    jobs: int = 0
    ended: int = 0
    size_s: float = 0.0
    """Seconds on one GPU of the jobs that ended, together."""
    least: set[int] = field(default_factory=set)
    widest: int = 1


class Arrivals:
    """Estimates arrival rates and sizes of each kind from what has come."""

    def __init__(self, first: Mapping[str, JobType], trust_jobs: float) -> None:
        self._first = first
        self._trust_jobs = trust_jobs
        self._counts: dict[KindKey, _Count] = {}

    def arrived(self, key: KindKey, state: JobState, *, new: bool = True) -> None:
        """One more, or one that is back and was counted before."""
        count = self._counts.setdefault(key, _Count())
        count.jobs += new
        count.least.add(state.job.min_gpus)
        count.widest = max(count.widest, state.job.max_gpus)

    def ended(self, key: KindKey, state: JobState, kind: Kind) -> None:
        """A job that does not report its epochs: its size is what it ran, times its speed on the width it had."""
        if kind.profile.training is not None or not state.first_width:
            return
        count = self._counts[key]
        run_s = state.banked_gpu_s / state.first_width
        count.ended += 1
        count.size_s += run_s * kind.profile.speedup(state.first_width)

    def rate_per_s(self, key: KindKey, now_s: float) -> float:
        """Arrivals a second: at first as estimated, in the long run as counted."""
        jobs, first = self._counts[key].jobs, self._first.get(key[0])
        if first is not None and first.arrival_rate_per_s > 0.0:
            return (self._trust_jobs + jobs) / (self._trust_jobs / first.arrival_rate_per_s + now_s)
        return jobs / max(now_s, _LEAST_S)

    def mean_size_s(self, key: KindKey) -> float:
        """Mean seconds on one GPU, likewise."""
        count, first = self._counts[key], self._first.get(key[0])
        weight, size_s = (self._trust_jobs, first.mean_size_s) if first is not None else (1.0, _SIZE_S)
        return (weight * size_s + count.size_s) / (weight + count.ended)

    def to_list(self) -> list[dict[str, Any]]:
        """The counts, fit for JSON."""
        return [{"kind": list(k), **asdict(c), "least": sorted(c.least)} for k, c in self._counts.items()]

    def recall(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Go on counting from there."""
        for entry in saved:
            name, batch = entry["kind"]
            jobs, ended, size_s = int(entry["jobs"]), int(entry["ended"]), float(entry["size_s"])
            least, widest = {int(k) for k in entry["least"]}, int(entry["widest"])
            self._counts[str(name), int(batch)] = _Count(jobs, ended, size_s, least, widest)

    def bounds(self, key: KindKey) -> tuple[set[int], int]:
        """The least widths of the jobs of a kind, and the widest that some of them can run on."""
        count = self._counts[key]
        return count.least, count.widest
