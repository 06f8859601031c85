"""The truth about the GPUs, where it differs from what policies believe: scores that are wrong, GPUs that grow slow.

What a job's iteration time shows of it reaches the beliefs only through `observe`, as on a real cluster.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from typing import Literal

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.model.speed import locality
from fairlead.model.variability import Variability
from fairlead.sim.simjob import SimJob

Watch = Literal["job", "rank"]
"""What is seen of iteration times: the job's, which its slowest GPU gates, or each rank's own."""
WATCHES: tuple[Watch, ...] = ("job", "rank")


@dataclass(frozen=True, order=True)
class Drift:
    """From that moment on a GPU is slower, for every class, by that factor."""

    at_s: float
    gpu: int
    factor: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.at_s < float("inf") and 0.0 < self.factor < float("inf")):
            raise InputError(
                f"GPU {self.gpu} slower by {self.factor} at {self.at_s} s: a factor above 0, a time from 0 on"
            )


def parse_drift(text: str, cluster: Cluster) -> Drift:
    """`GPU:FACTOR@SECONDS`, the GPU by number or as NODE:INDEX: `35:2.0@86400`, `n8:3:2.0@86400`."""
    match = re.match(r"^(.+):([0-9.eE+-]+)@([0-9.eE+-]+)$", text)
    try:
        if match is None:
            raise ValueError
        return Drift(float(match[3]), cluster.gpu_numbered(match[1]), float(match[2]))
    except ValueError:
        raise InputError(f"{text!r} is not GPU:FACTOR@SECONDS", hint="for example 35:2.0@86400") from None


class Truth:
    """The cluster as it is, whatever is believed of it."""

    def __init__(self, cluster: Cluster, true: Variability | None, drifts: tuple[Drift, ...]) -> None:
        scores = true or cluster.variability
        if scores is None and drifts:
            scores = Variability({"A": [1.0] * cluster.gpus})
        if scores is not None:
            # Lists of our own: they change as GPUs do.
            scores = Variability({name: list(values) for name, values in scores.scores.items()})
        self.cluster = cluster.with_variability(scores)
        self._drifts = sorted(drifts)

    @property
    def next_s(self) -> float:
        """When the next GPU grows slow."""
        return self._drifts[0].at_s if self._drifts else float("inf")

    def drift(self) -> int:
        """Let that happen; tells which GPU it is."""
        drift = heapq.heappop(self._drifts)
        assert self.cluster.variability is not None
        for scores in self.cluster.variability.scores.values():
            scores[drift.gpu] *= drift.factor  # type: ignore[index]
        return drift.gpu

    def of_ranks(self, job: SimJob) -> list[float]:
        """What each rank of a job would time by itself, without the wait for the others."""
        assert self.cluster.variability is not None
        scores = self.cluster.variability.of_class(job.job.profile.app_class)
        return [scores[g] for g in job.gpus]

    def of_job(self, job: SimJob) -> float:
        """What the iteration times of a job that runs alone show, with its penalty for spanning nodes taken out."""
        profile, width = job.job.profile, len(job.gpus)
        scaled = 1.0 if width == job.job.gpus else profile.speedup(width) / profile.speedup(job.job.gpus)
        return scaled / (job.speed * locality(profile, job.gpus, self.cluster))
