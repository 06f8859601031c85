"""What sharings of services and offline jobs have in common: a service per GPU, at most one offline job beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.model.placement import Placement
from fairlead.policy.plan import EXPLAINED, NO_FREE_GPU, OVER_MEMORY
from fairlead.policy.pool import Pool
from fairlead.policy.ranking import Ranking
from fairlead.policy.saved_state import reading
from fairlead.policy.sharing.groups import described
from fairlead.policy.sources import Fleet
from fairlead.policy.stages import Sharing, option
from fairlead.policy.view import JobState, View

NO_SERVICE_ACCEPTS = "no-service-accepts"
"""The guard lets no offline work on the GPU."""
_HAS_A_JOB = "has-an-offline-job"
_OTHERS_FIRST = "given-to-others"


@dataclass
class WithServices(Sharing):
    """Services on GPUs of their own, where they stay; offline jobs on empty GPUs, else where they are assigned to.

    Offline jobs of several GPUs, and those whose memory does not fit beside any service, use empty GPUs only.
    """

    memory: float = option(0.85, "the part of a GPU's memory that the service and the job beside it may fill")
    shares: ClassVar[bool] = True
    at_once: ClassVar[bool] = True
    _assigned: dict[int, tuple[int, float]] = field(default_factory=dict, init=False, repr=False)
    """The GPU of a waiting job and the share of SMs that it gets there."""

    _share: float = field(default=1.0, init=False, repr=False)
    """Of the SMs, for the job that offers were made for last."""
    _services: set[int] = field(default_factory=set, init=False, repr=False)
    """Services that wait."""
    _primed: bool = field(default=False, init=False, repr=False)
    _hosted: bool = field(default=False, init=False, repr=False)
    """Whether services were placed: as soon as they are there, others may join them."""

    def __post_init__(self) -> None:
        if not 0.0 < self.memory <= 1.0:
            raise ValueError(f"memory={self.memory:g}: above 0, at most 1")

    def shared(self, state: JobState) -> bool:
        """Everybody: that is what it is for."""
        return True

    def assign(self, ranking: Ranking, view: View) -> None:
        """Give waiting jobs a GPU beside a service, in `_assigned`."""

    def chosen(self, ranking: Ranking, view: View) -> Iterable[int]:
        """Services first; then whoever has a GPU, or may find an empty one."""
        if not self._primed:
            self._primed = True
            came: Iterable[JobState] = view.waiting.values()
        else:
            came = (*view.changes.arrived, *view.changes.returned)
        self._services.update(s.job.id for s in came if s.job.kind == "service")
        services = sorted(j for j in self._services if j in view.waiting)
        self._services = set(services)
        if view.meter is not None:
            self.assign(ranking, view)
        # Who is not assigned tries empty GPUs, as long as there are any.
        free = max(0, view.free.count - len(services))
        rest = [e.state.job.id for e in ranking.first(free)] if free else []
        return (*services, *self._assigned, *(j for j in rest if j not in self._assigned and j not in services))

    def placed(self, state: JobState, gpus: Placement, view: View) -> None:
        """Note that a service was placed: offline jobs may come beside it."""
        self._hosted = self._hosted or state.job.kind == "service"

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Nobody leaves; GPUs are open where services have come."""
        hosted, self._hosted = self._hosted, False
        return [], hosted

    def wake_s(self, view: View) -> float | None:
        """At once where services have come."""
        return view.now_s if self._hosted else None

    def knowledge(self) -> dict[str, Any]:
        """The GPUs promised, and whether services have just been placed."""
        return {"assigned": [[j, gpu, share] for j, (gpu, share) in self._assigned.items()], "hosted": self._hosted}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Promises to jobs that are here, of GPUs that have their service and nobody else."""
        with reading("a sharing with services", saved, "assigned", "hosted"):
            assigned = [(int(j), int(gpu), float(share)) for j, gpu, share in saved["assigned"]]
            self._hosted = bool(saved["hosted"])
            self._assigned = {j: (gpu, share) for j, gpu, share in assigned if view.here(j) and _is_open(gpu, view)}

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """An empty GPU for a service; the assigned GPU for an offline job, else an empty one."""
        assigned = self._assigned.pop(state.job.id, None)
        if assigned is not None and len(view.on_gpu[assigned[0]]) == 1:
            self._share = assigned[1]
            yield (assigned[0],)
            return
        self._share = 1.0
        if pool.count >= width:
            yield pool

    def sm_share(self, state: JobState, gpus: Placement, view: View) -> float:
        """What goes with the assignment."""
        return self._share

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """What speaks against the services that it could be beside."""
        if view.meter is None or state.job.kind == "service" or width != 1:
            return super().why_waits(state, width, view)
        fleet, room = view.meter.fleet(), self.memory - self.job_memory_frac(state, view)
        against = np.select(
            [fleet.offline >= 0, ~fleet.accepts, fleet.memory_frac > room],
            [_HAS_A_JOB, NO_SERVICE_ACCEPTS, OVER_MEMORY],
            _OTHERS_FIRST,
        ).tolist()
        # What is nearest to a yes says most: memory, then the guard.
        near = (r for r in (OVER_MEMORY, NO_SERVICE_ACCEPTS) if r in against)
        reason = NO_FREE_GPU if _OTHERS_FIRST in against else next(near, NO_FREE_GPU)
        rows = zip(fleet.service.tolist(), fleet.gpu.tolist(), against, strict=True)
        found = sorted(((described((s,), (g,)), a) for s, g, a in rows), key=lambda f: f[1] == _HAS_A_JOB)
        return reason, found[:EXPLAINED]

    def open_gpus(self, fleet: Fleet) -> NDArray[np.int64]:
        """Positions in the fleet that may receive an offline job now."""
        return np.flatnonzero(fleet.accepts & (fleet.offline < 0))

    def candidates(self, ranking: Ranking, count: int) -> list[JobState]:
        """The first waiting offline jobs that can run on one GPU."""
        return [e.state for e in ranking.first(count) if e.state.job.kind != "service" and e.least == 1]

    def vacated(self, state: JobState, width: int, leaving: JobState, view: View) -> Placement | None:
        """The place of an offline job beside a service, if the guard lets another one on that GPU."""
        self._share = 1.0
        if view.meter is None or state.job.kind == "service" or len(leaving.gpus) != 1 or state.job.min_gpus > 1:
            return None
        gpu = leaving.gpus[0]
        hosts = [j for j in view.on_gpu[gpu] if j != leaving.job.id]
        if len(hosts) != 1 or view.running[hosts[0]].job.kind != "service":
            return None
        fleet = view.meter.fleet()
        at = int(np.searchsorted(fleet.gpu, gpu))
        room = self.memory - self.job_memory_frac(state, view)
        if not fleet.accepts[at] or fleet.memory_frac[at] > room or width != 1:
            return None
        self._share = leaving.sm_share
        return (gpu,)

    def first_fit(self, waiting: Iterable[JobState], open_now: Fleet, shares: Sequence[float], view: View) -> None:
        """Everybody gets the first of the open places whose memory holds both."""
        places = list(enumerate(open_now.memory_frac.tolist()))
        for state in waiting:
            if not places:
                return
            room = self.memory - self.job_memory_frac(state, view)
            at = next((i for i, (_, used) in enumerate(places) if used <= room), None)
            if at is not None:
                place, _ = places.pop(at)
                self._assigned[state.job.id] = (int(open_now.gpu[place]), float(shares[place]))

    def part(self, fleet: Fleet, at: NDArray[np.int64]) -> Fleet:
        """The fleet at these positions only."""
        return Fleet(*(getattr(fleet, f.name)[at] for f in fields(Fleet)))

    def job_memory_frac(self, state: JobState, view: View) -> float:
        """Of a GPU, as declared."""
        solo = state.job.profile.solo
        if state.job.memory_mib:
            return state.job.memory_mib / view.cluster.least_memory_mib
        return solo.memory_frac if solo is not None else 0.0


def _is_open(gpu: int, view: View) -> bool:
    """Whether a GPU has a service and nobody else; one that holds a part of it is beside others of its kind only."""
    if gpu >= view.cluster.gpus:
        return False
    jobs = [view.running[j].job for j in view.on_gpu[gpu]]
    return [job.kind for job in jobs] == ["service"] and jobs[0].gpu_frac >= 1.0
