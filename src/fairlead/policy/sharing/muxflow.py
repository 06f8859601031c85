"""MuxFlow: best-effort work beside services, matched, with shares that follow the services' load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.model.contention import beside
from fairlead.model.predictor import Predictor, load_predictor
from fairlead.policy.guarding import Backoff
from fairlead.policy.queue import Queue
from fairlead.policy.sharing.beside import Beside
from fairlead.policy.sharing.forecast import Forecast
from fairlead.policy.sharing.matching import match
from fairlead.policy.stages import option
from fairlead.policy.view import Fleet, JobState, View

Floats = NDArray[np.float64]
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9


@dataclass
class Muxflow(Beside):
    """At most one offline job beside one service, matched every quarter of an hour (MuxFlow, arXiv 2303.13803).

    Offline jobs are matched with the services: the weight of a pair is the job's predicted throughput beside that
    service, 0 where the memory does not hold both or the guard does not let offline work on that GPU, and the matching
    with the largest sum is taken. Every `interval_s` seconds running jobs are matched anew as well: a pair stays unless
    another is better by `keep`, since a move costs a restart. In between, GPUs that become open get the first waiting
    jobs. The offline job may use the SMs that the service
    is expected to leave in the next interval, 10 to 90 %; that holds until it starts again. Services never move. The
    guard on each GPU evicts offline work when the service is in need; a job that was evicted waits, longer each time.

    Throughputs are predicted by the model in `predictor` (a file of `fairlead predictor train`), or else by the
    simulator's own rule with what is known of the two alone.

    When not to use it: where services keep their GPUs busy, or without MPS.
    """

    interval_s: float = option(900.0, "seconds between matchings")
    dynamic: bool = option(True, "shares follow the services' load; false gives every job `share`")
    share: float = option(0.5, "the part of the SMs that jobs get when it is not dynamic")
    matched: bool = option(True, "pairs by matching; false gives the next job the first GPU that holds it")
    keep: float = option(0.1, "how much better another pair must be for a running one to be broken up")
    predictor: str = option("", "file of a trained predictor")
    guarded: ClassVar[bool] = True
    _due_s: float = field(default=0.0, init=False, repr=False)
    _forecast: Forecast = field(default_factory=Forecast, init=False, repr=False)
    _backoff: Backoff = field(default_factory=Backoff, init=False, repr=False)
    _model: Predictor | None = field(default=None, init=False, repr=False)
    _shares: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    """By service, as of the last matching."""
    _matching: Fleet | None = field(default=None, init=False, repr=False)
    """The fleet as it was when running jobs were matched anew; waiting ones are not yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval_s <= 0 or not 0.0 < self.share <= 1.0 or self.keep < 0:
            raise ValueError("interval_s above 0, share in (0, 1], keep 0 or more")
        self._model = load_predictor(self.predictor) if self.predictor else None

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Note who was evicted; at every interval everything may be paired anew."""
        for state in view.changes.returned:
            if state.job.kind != "service":
                self._backoff.evicted(state.job.id, view.now_s)
        for state in view.changes.ended:
            self._backoff.forget(state.job.id)
        if view.meter is None or view.now_s < self._due_s or self._matching is not None:
            return [], self._matching is not None
        self._due_s = view.now_s + self.interval_s
        fleet = view.meter.fleet()
        self._shares = self._shares_of(fleet, view.now_s)
        self._matching = fleet
        return (self._movers(fleet, view) if self.matched else []), True

    def wake_s(self, view: View) -> float | None:
        """The next interval."""
        return self._due_s if view.meter is not None else None

    def assign(self, queue: Queue, view: View) -> None:
        """Waiting jobs to the GPUs that are open now; between matchings these are the few that became so."""
        assert view.meter is not None
        fleet = self._matching if self._matching is not None else view.meter.fleet()
        settled = {gpu for gpu, _ in self._assigned.values()}
        places = [p for p in self.open_gpus(fleet).tolist() if int(fleet.gpu[p]) not in settled]
        places = [p for p in places if len(view.on_gpu[int(fleet.gpu[p])]) == 1]
        self._matching = None
        if not places:
            return
        ready = [s for s in self.candidates(queue, 2 * len(places) + 16) if self._is_ready(s, view)]
        shares = np.array([self._share_of(int(j), view) for j in fleet.service])
        if not self.matched:
            self.first_fit(ready, fleet, places, shares.tolist(), view)
        elif ready:
            at = np.array(places)
            weights = self._weights(_part(fleet, at), ready, shares[at], view)
            for place, column in zip(places, match(weights).partner.tolist(), strict=True):
                if column >= 0:
                    self._assigned[ready[column].job.id] = (int(fleet.gpu[place]), float(shares[place]))

    def _shares_of(self, fleet: Fleet, now_s: float) -> dict[int, float]:
        """What services are expected to leave in the next interval."""
        left = np.clip(1.0 - self._forecast.p95(fleet, now_s), _LEAST_SHARE, _MOST_SHARE)
        return dict(zip(fleet.service.tolist(), left.tolist(), strict=True))

    def _share_of(self, service: int, view: View) -> float:
        return self._shares.get(service, self.share) if self.dynamic else self.share

    def _movers(self, fleet: Fleet, view: View) -> list[JobState]:
        """Running jobs that another service would suit clearly better: they leave and go there.

        Running jobs are matched among the GPUs that they have and those that are open; GPUs that do not take offline
        work keep what they have.
        """
        self._assigned.clear()
        takes = np.flatnonzero(fleet.accepts)
        running = [int(j) for j in fleet.offline[takes] if j >= 0]
        if not running:
            return []
        jobs = [view.running[j] for j in running]
        shares = np.array([self._share_of(int(j), view) for j in fleet.service])[takes]
        column = {j: c for c, j in enumerate(running)}
        keep = np.array([column.get(int(j), -1) for j in fleet.offline[takes]])
        partner = match(self._weights(_part(fleet, takes), jobs, shares, view), keep=keep, bonus=self.keep).partner
        leaving = []
        for at, (c, had) in enumerate(zip(partner.tolist(), keep.tolist(), strict=True)):
            if c >= 0 and c != had:
                self._assigned[running[c]] = (int(fleet.gpu[takes[at]]), float(shares[at]))
                leaving.append(jobs[c])
        return leaving

    def _is_ready(self, state: JobState, view: View) -> bool:
        offline = state.job.kind != "service" and state.job.gpus == 1
        return offline and self._backoff.ready_s(state.job.id) <= view.now_s

    def _weights(self, fleet: Fleet, jobs: Sequence[JobState], shares: Floats, view: View) -> Floats:
        """Predicted throughput of every job beside every service; 0 where it does not fit."""
        memory = np.array([self.job_memory_frac(s, view) for s in jobs])
        fits = fleet.memory_frac[:, None] + memory[None, :] <= self.memory
        if self._model is not None:
            services, offline = self._service_columns(fleet, view), self._offline_columns(jobs)
            found = self._model.predict(services, offline, shares).throughput_frac.astype(np.float64)
        else:
            found = self._by_rule(fleet, jobs, shares)
        return np.where(fits, np.maximum(found, 1e-3), 0.0)

    def _by_rule(self, fleet: Fleet, jobs: Sequence[JobState], shares: Floats) -> Floats:
        """Bandwidth is not measured: it is taken to be like SM activity."""
        sm = np.array([s.job.profile.solo.sm_activity_frac if s.job.profile.solo else 0.5 for s in jobs])
        busy = np.array([s.job.profile.solo.utilisation_frac if s.job.profile.solo else 0.95 for s in jobs])
        fill = np.array([s.job.profile.solo.occupancy_frac if s.job.profile.solo else 0.6 for s in jobs])
        service = tuple(x[:, None] for x in (fleet.utilisation_frac, fleet.sm_activity_frac, fleet.sm_activity_frac))
        offline = tuple(x[None, :] for x in (busy, sm, sm, fill))
        return beside("mps", (*service, 1.0), offline, shares[:, None])[0]

    def _service_columns(self, fleet: Fleet, view: View) -> Mapping[str, Any]:
        solos = [view.running[int(j)].job.profile.solo for j in fleet.service]
        return {
            "utilisation_frac": fleet.utilisation_frac,
            "sm_activity_frac": fleet.sm_activity_frac,
            "occupancy_frac": [s.occupancy_frac if s else np.nan for s in solos],
            "memory_frac": fleet.memory_frac,
            "request_s": [s.time_s if s else np.nan for s in solos],
        }

    def _offline_columns(self, jobs: Sequence[JobState]) -> Mapping[str, Any]:
        solos = [s.job.profile.solo for s in jobs]
        names = ("utilisation_frac", "sm_activity_frac", "occupancy_frac", "memory_frac")
        columns = {n: [getattr(s, n) if s else np.nan for s in solos] for n in names}
        return {**columns, "iteration_s": [s.time_s if s else np.nan for s in solos]}


def _part(fleet: Fleet, at: NDArray[np.int64]) -> Fleet:
    """Some of the fleet."""
    return Fleet(*(getattr(fleet, f.name)[at] for f in fields(Fleet)))
