"""MuxFlow: best-effort work beside services, matched, with shares that follow the services' load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.model.contention import beside
from fairlead.model.predictor import Predictor, parse_predictor
from fairlead.policy.guarding import Backoff
from fairlead.policy.ranking import Ranking
from fairlead.policy.saved_state import finite, or_infinite, reading
from fairlead.policy.sharing.forecast import MARGIN, Forecast
from fairlead.policy.sharing.matching import match
from fairlead.policy.sharing.with_services import WithServices
from fairlead.policy.sources import Fleet
from fairlead.policy.stages import file_option, option
from fairlead.policy.view import JobState, View

Floats = NDArray[np.float64]
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.9
_RETRY_S = 60.0
"""GPUs that do not accept offline work are asked for again after this."""
_NEVER = float("inf")
_COLUMNS = fields(Fleet)
_TYPES = {"accepts": np.bool_, "gpu": np.int64, "service": np.int64, "offline": np.int64}
"""Of the columns; the others are fractions."""


@dataclass
class Muxflow(WithServices):
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
    share: float = option(0.5, "the part of the SMs that jobs get when it is not dynamic, or nothing is known")
    matched: bool = option(True, "pairs by matching; false gives the next job the first GPU that holds it")
    keep: float = option(0.1, "how much better another pair must be for a running one to be broken up")
    predictor: Predictor | None = file_option(None, parse_predictor, "file of a trained predictor")
    guarded: ClassVar[bool] = True
    _due_s: float = field(default=0.0, init=False, repr=False)
    _retry_s: float = field(default=_NEVER, init=False, repr=False)
    _forecast: Forecast = field(default_factory=Forecast, init=False, repr=False)
    _backoff: Backoff = field(default_factory=Backoff, init=False, repr=False)
    _shares: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    """By service, as of the last matching."""
    _matching: Fleet | None = field(default=None, init=False, repr=False)
    """The fleet as it was when running jobs were matched anew; waiting ones are not yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval_s <= 0 or not 0.0 < self.share <= 1.0 or self.keep < 0:
            raise ValueError("interval_s above 0, share in (0, 1], keep 0 or more")

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Note who was evicted; at every interval everything may be paired anew."""
        for state in view.changes.returned:
            if state.job.kind != "service":
                self._backoff.evicted(state.job.id, view.now_s)
        for state in view.changes.ended:
            self._backoff.forget(state.job.id)
        for state in (*view.changes.ended, *view.changes.withdrawn):
            self._assigned.pop(state.job.id, None)
        if view.meter is None or self._matching is not None:
            return [], self._matching is not None
        _, hosted = super().review(view)
        if view.now_s < self._due_s and not hosted:
            return [], view.now_s >= self._retry_s
        self._due_s = view.now_s + self.interval_s
        fleet = view.meter.fleet()
        self._shares = self._shares_of(fleet, view.now_s)
        self._matching = fleet
        return (self._movers(fleet, view) if self.matched else []), True

    def wake_s(self, view: View) -> float | None:
        """The next interval, or sooner where a closed GPU may open or a job may come back."""
        if view.meter is None or not (view.waiting or view.running):
            return None
        at_once_s = super().wake_s(view)
        return min(self._due_s, self._retry_s) if at_once_s is None else at_once_s

    def assign(self, ranking: Ranking, view: View) -> None:
        """Waiting jobs to the GPUs that are open now; between matchings these are the few that became so."""
        assert view.meter is not None
        fleet = self._matching if self._matching is not None else view.meter.fleet()
        self._matching = None
        closed = bool((~fleet.accepts & (fleet.offline < 0)).any())
        self._retry_s = view.now_s + _RETRY_S if len(ranking) and closed else _NEVER
        settled = {gpu for gpu, _ in self._assigned.values()}
        gpus = fleet.gpu.tolist()
        places = [p for p in self.open_gpus(fleet).tolist() if gpus[p] not in settled]
        places = [p for p in places if len(view.on_gpu[gpus[p]]) == 1]
        if not places or not len(ranking):
            return
        waiting = self.candidates(ranking, 2 * len(places) + 16)
        ready = [s for s in waiting if self._is_ready(s, view)]
        back_s = [at_s for s in waiting if (at_s := self._backoff.ready_s(s.job.id)) > view.now_s]
        self._retry_s = min([self._retry_s, *back_s])
        if not ready:
            return
        open_now = self.part(fleet, np.array(places))
        shares = self._shares_for(open_now)
        if not self.matched:
            self.first_fit(ready, open_now, shares.tolist(), view)
            return
        weights = self._weights(open_now, ready, shares, view)
        for place, column in enumerate(match(weights).partner.tolist()):
            if column >= 0:
                self._assigned[ready[column].job.id] = (int(open_now.gpu[place]), float(shares[place]))

    def knowledge(self) -> dict[str, Any]:
        """Past loads, shares, back-offs, promises, and when it looks next."""
        matching = self._matching
        return {
            **super().knowledge(),
            "due_s": self._due_s,
            "retry_s": finite(self._retry_s),
            "forecast": self._forecast.to_dict(),
            "backoff": self._backoff.to_dict(),
            "shares": [[service, share] for service, share in self._shares.items()],
            "matching": None if matching is None else _saved(matching),
        }

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here; a matching under way only if its services are where they were."""
        own = ("due_s", "retry_s", "forecast", "backoff", "shares", "matching")
        with reading("muxflow", saved, "assigned", "hosted", *own):
            super().recall({name: saved[name] for name in ("assigned", "hosted")}, view)
            self._due_s, self._retry_s = float(saved["due_s"]), or_infinite(saved["retry_s"])
            self._forecast = Forecast.from_dict(saved["forecast"])
            self._backoff = Backoff.from_dict(saved["backoff"])
            self._shares = {int(j): float(share) for j, share in saved["shares"] if view.here(int(j))}
            self._matching = _fleet(saved["matching"], view) if saved["matching"] is not None else None
        self._backoff.keep(lambda job: isinstance(job, int) and view.here(job))

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """Also that it stays away after an eviction."""
        if self._backoff.ready_s(state.job.id) > view.now_s:
            return "evicted-back-off", []
        return super().why_waits(state, width, view)

    def _shares_of(self, fleet: Fleet, now_s: float) -> dict[int, float]:
        """What services are expected to leave in the next interval; those that were not metered yet are left out."""
        left = np.clip(1.0 - self._forecast.p95(fleet, now_s), _LEAST_SHARE, _MOST_SHARE)
        found = zip(fleet.service.tolist(), left.tolist(), strict=True)
        return {service: share for service, share in found if not math.isnan(share)}

    def _shares_for(self, fleet: Fleet) -> Floats:
        """As expected at the last matching; of services that could not be metered then, what they leave now."""
        if not self.dynamic:
            return np.full(len(fleet.gpu), self.share)
        now = np.clip(1.0 - MARGIN - fleet.sm_activity_frac, _LEAST_SHARE, _MOST_SHARE)
        now = np.where(np.isnan(now), self.share, now)
        both = zip(fleet.service.tolist(), now.tolist(), strict=True)
        return np.array([self._shares.get(j, share) for j, share in both])

    def _movers(self, fleet: Fleet, view: View) -> list[JobState]:
        """Running jobs that another service would suit clearly better: they leave and go there.

        Running jobs are matched among the GPUs that they have and those that are open; GPUs that do not take offline
        work keep what they have.
        """
        self._assigned.clear()
        takes = self.part(fleet, np.flatnonzero(fleet.accepts))
        running = takes.offline[takes.offline >= 0].tolist()
        if not running:
            return []
        jobs = [view.running[j] for j in running]
        shares = self._shares_for(takes)
        column = {j: c for c, j in enumerate(running)}
        keep = np.array([column.get(j, -1) for j in takes.offline.tolist()])
        partner = match(self._weights(takes, jobs, shares, view), keep=keep, bonus=self.keep).partner
        leaving = {}
        for at, (c, had) in enumerate(zip(partner.tolist(), keep.tolist(), strict=True)):
            if c >= 0 and c != had:
                self._assigned[running[c]] = (int(takes.gpu[at]), float(shares[at]))
                leaving[c] = jobs[c]
                if had >= 0:  # whose GPU goes to another leaves as well, wherever it goes itself
                    leaving[had] = jobs[had]
        return list(leaving.values())

    def _is_ready(self, state: JobState, view: View) -> bool:
        return self._backoff.ready_s(state.job.id) <= view.now_s

    def _weights(self, fleet: Fleet, jobs: Sequence[JobState], shares: Floats, view: View) -> Floats:
        """Predicted throughput of every job beside every service; 0 where it does not fit."""
        memory = np.array([self.job_memory_frac(s, view) for s in jobs])
        fits = fleet.memory_frac[:, None] + memory[None, :] <= self.memory
        if self.predictor is not None:
            services, offline = self._service_columns(fleet, view), self._offline_columns(jobs)
            found = self.predictor.predict(services, offline, shares).throughput_frac.astype(np.float64)
        else:
            found = self._by_rule(fleet, jobs, shares)
        if view.scores is not None:  # of two places that leave it as much, a job does better on the faster GPU
            classes = {s.job.profile.app_class for s in jobs}
            slowness = {c: np.asarray(view.scores.of_class(c))[fleet.gpu] for c in classes}
            found = found / np.array([slowness[s.job.profile.app_class] for s in jobs]).T
        return np.where(fits, np.maximum(found, 1e-3), 0.0)

    def _by_rule(self, fleet: Fleet, jobs: Sequence[JobState], shares: Floats) -> Floats:
        """Bandwidth is not measured: it is taken to be like SM activity."""
        sm = np.array([s.job.profile.solo.sm_activity_frac if s.job.profile.solo else 0.5 for s in jobs])
        busy = np.array([s.job.profile.solo.utilisation_frac if s.job.profile.solo else 0.95 for s in jobs])
        fill = np.array([s.job.profile.solo.occupancy_frac if s.job.profile.solo else 0.6 for s in jobs])
        active = np.where(np.isnan(fleet.sm_activity_frac), 0.5, fleet.sm_activity_frac)
        service = tuple(x[:, None] for x in (fleet.utilisation_frac, active, active))
        offline = tuple(x[None, :] for x in (busy, sm, sm, fill))
        return beside("mps", (*service, 1.0), offline, shares[:, None])[0]

    def _service_columns(self, fleet: Fleet, view: View) -> Mapping[str, Any]:
        solos = [view.running[j].job.profile.solo for j in fleet.service.tolist()]
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


def _saved(fleet: Fleet) -> dict[str, Any]:
    columns = {f.name: getattr(fleet, f.name).tolist() for f in _COLUMNS}
    return {**columns, "sm_activity_frac": [finite(x) for x in columns["sm_activity_frac"]]}


def _fleet(saved: Mapping[str, Any], view: View) -> Fleet | None:
    """A saved fleet, if its services are where they were."""
    fleet = Fleet(*(np.array(saved[f.name], dtype=_TYPES.get(f.name, np.float64)) for f in _COLUMNS))
    hosted = zip(fleet.gpu.tolist(), fleet.service.tolist(), strict=True)
    there = all(gpu < view.cluster.gpus and service in view.on_gpu[gpu] for gpu, service in hosted)
    return fleet if there else None
