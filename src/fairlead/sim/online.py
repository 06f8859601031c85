"""Services in the simulated world: their load over time, what offline neighbours cost them, and the guard on each GPU.

Loads are looked at every `tick_s` seconds, and where a burst begins or ends, and hold until the next look. Between two
looks everything on a GPU is constant unless an offline job comes or goes, so sums are exact: they are kept as the rates
of all GPUs together, of which an event changes those of the GPUs that it touches.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.model.cluster import Cluster
from fairlead.model.contention import UNMEASURED, Mode, beside
from fairlead.model.service import DAY_S, Burst, DailyLoad, Service, burst_factor, latencies, miss_frac
from fairlead.policy.guarding import GuardConfig
from fairlead.policy.sources import Fleet
from fairlead.sim.guards import Guards
from fairlead.sim.simjob import SimJob

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TICK_S = 60.0
_NEVER = float("inf")
_ROWS = 4096
_FLEET = ("utilisation_frac", "sm_activity_frac", "memory_frac", "oversold_frac")
_RATES = (
    *_FLEET, "slowdown", "services",
    "requests", "latency", "latency_alone", "missed", "missed_alone", "p99", "p99_alone",
)  # fmt: skip
"""What is added up over time: per GPU with a service, and from `requests` on per request, p99 per second."""
_EVICTED: dict[str, Any] = {
    "time_s": pl.Float64, "gpu": pl.Int64, "service": pl.String, "job_id": pl.String, "cause": pl.String,
    "reason": pl.String, "p99_s": pl.Float64, "p99_after_s": pl.Float64, "p99_alone_s": pl.Float64, "slo_s": pl.Float64,
}  # fmt: skip


class Online:
    """The GPUs with services, as arrays over all GPUs."""

    def __init__(
        self,
        cluster: Cluster,
        mode: Mode,
        *,
        guard: GuardConfig | None,
        retime: Callable[[SimJob, float], None],
        tick_s: float = TICK_S,
        begin_s: float = 0.0,
        accepting: Collection[int] = (),
    ) -> None:
        gpus = cluster.gpus
        self._begin_s = begin_s
        self._accepting = accepting
        """GPUs whose guard lets offline work on them at the beginning."""
        self._alone: set[int] = set()
        """GPUs whose service was placed so that nobody may join it."""
        self._mode = mode
        self._guards = Guards(guard, gpus) if guard is not None else None
        self._retime = retime
        self._tick_s = tick_s
        self._memory_mib = [cluster.gpu_model(g).memory_mib for g in range(gpus)]
        self._services: dict[int, tuple[SimJob, Service]] = {}
        self._offline: dict[int, SimJob] = {}
        self._curves: dict[int, Service] = {}
        """Services whose load is no plain daily curve."""
        self._bursts: dict[int, tuple[Burst, ...]] = {}
        self._edges_s: list[float] = []
        """Where bursts begin or end."""
        self._tick_due_s = _NEVER
        self._since_s = begin_s
        zeros = [np.zeros(gpus) for _ in range(19)]
        (
            self._mean, self._amplitude, self._peak_h, self._full_a, self._full_b, self._full_u,
            self._rho, self._u, self._a, self._b, self._memory, self._slo_s,
            self._ou, self._oa, self._ob, self._oocc, self._omem, self._share, self._throughput,
        ) = zeros  # fmt: skip
        self._request_s = np.ones(gpus)
        self._slowdown = np.ones(gpus)
        self._service_id = np.full(gpus, -1, dtype=np.int64)
        self._offline_id = np.full(gpus, -1, dtype=np.int64)
        self._at = np.zeros(0, dtype=np.int64)
        """GPUs with a service, in order."""
        self._rates = np.zeros((len(_RATES), gpus))
        self._rate = np.zeros(len(_RATES))
        """Of all GPUs together."""
        self._sums = np.zeros(len(_RATES))
        self._rows: list[tuple[float, Floats]] = [(begin_s, self._sums.copy())]
        self._row_step_s = tick_s
        self._evicted: list[dict[str, Any]] = []
        self._leaving: dict[int, dict[str, Any]] = {}
        """Rows of jobs that are about to leave these GPUs."""

    @property
    def next_s(self) -> float:
        """When it has to be looked at next."""
        return self._tick_due_s if self._guards is None else min(self._tick_due_s, self._guards.next_s)

    # -- who is where ------------------------------------------------------------------------------------------------

    def started(self, job: SimJob, now_s: float) -> None:
        """A service or an offline job is placed."""
        self.settle(now_s)
        service = job.job.profile.service
        if service is not None:
            self._host(job, service, now_s)
            return
        solo = job.job.profile.solo or UNMEASURED
        for gpu in job.gpus:
            self._offline[gpu] = job
            self._offline_id[gpu] = job.job.id
            self._ou[gpu], self._oa[gpu] = solo.utilisation_frac, solo.sm_activity_frac
            self._ob[gpu], self._oocc[gpu] = solo.bandwidth_frac, solo.occupancy_frac
            memory_mib = job.job.memory_mib
            self._omem[gpu] = memory_mib / self._memory_mib[gpu] if memory_mib else solo.memory_frac
            self._share[gpu] = job.sm_share
        self._look_at(np.array(job.gpus), now_s)

    def left(self, job: SimJob, gpus: tuple[int, ...], now_s: float) -> None:
        """A service or an offline job is gone."""
        self.settle(now_s)
        at = np.array(gpus)
        if job.job.profile.service is not None:
            for gpu in gpus:
                del self._services[gpu]
                self._curves.pop(gpu, None)
                self._bursts.pop(gpu, None)
                self._alone.discard(gpu)
                if self._guards is not None:
                    self._guards.remove(gpu)
            self._rho[at] = self._u[at] = self._a[at] = self._b[at] = self._memory[at] = self._mean[at] = 0.0
            self._service_id[at] = -1
            self._at = np.flatnonzero(self._service_id >= 0)
        else:
            for gpu in gpus:
                self._offline.pop(gpu, None)
            self._ou[at] = self._oa[at] = self._ob[at] = self._omem[at] = 0.0
            self._offline_id[at] = -1
        self._look_at(at, now_s)
        for gpu in gpus if self._leaving else ():
            if (row := self._leaving.pop(gpu, None)) is not None:
                row["p99_after_s"] = float(self._rates[-2, gpu])

    def throughput(self, job: SimJob) -> float:
        """What services leave of an offline job's speed: 1 where there are none."""
        return min((float(self._throughput[g]) for g in job.gpus if g in self._services), default=1.0)

    def fleet(self, now_s: float) -> Fleet:
        """The services as they are metered at this moment."""
        at = self._at
        if self._guards is not None:
            self._guards.refresh(now_s, self._offline)
        accepts = np.ones(len(at), dtype=bool) if self._guards is None else self._guards.accepts[at]
        if self._alone:
            accepts &= ~np.isin(at, list(self._alone))
        offline, service = self._offline_id[at], self._service_id[at]
        return Fleet(at, service, self._u[at], self._a[at], self._memory[at], accepts, offline)

    # -- time --------------------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> list[SimJob]:
        """Look at what is due; gives the offline jobs that the guard wants gone."""
        self.settle(now_s)
        if self._tick_due_s <= now_s:
            self._tick_due_s = self._next_tick_s(now_s)
            self._load(self._at, now_s)
            self._look_at(self._at, now_s)
            self._rate = self._rates.sum(axis=1)  # so that rounding does not add up
            self._keep_row(now_s)
            for gpu, job in self._offline.items():
                if gpu in self._services and gpu == job.gpus[0]:
                    self._retime(job, self._tick_due_s)
        if self._guards is None:
            return []
        evicted: dict[int, SimJob] = {}
        for gpu in self._guards.must_evict(now_s, self._offline):
            evicted[self._offline[gpu].job.id] = self._offline[gpu]
            self._note_evicted(gpu, now_s)
        return list(evicted.values())

    def settle(self, now_s: float) -> None:
        """Add up what has been since the last change."""
        if now_s > self._since_s:
            self._sums += self._rate * (now_s - self._since_s)
            self._since_s = now_s

    # -- inside ------------------------------------------------------------------------------------------------------

    def _host(self, job: SimJob, service: Service, now_s: float) -> None:
        (gpu,) = job.gpus
        solo, load = service.solo, service.load
        self._services[gpu] = (job, service)
        self._service_id[gpu] = job.job.id
        self._at = np.flatnonzero(self._service_id >= 0)
        self._request_s[gpu], self._slo_s[gpu] = solo.time_s, service.slo_s
        self._full_u[gpu], self._full_a[gpu] = solo.utilisation_frac, solo.sm_activity_frac
        self._full_b[gpu] = solo.bandwidth_frac
        memory_mib = job.job.memory_mib
        self._memory[gpu] = memory_mib / self._memory_mib[gpu] if memory_mib else solo.memory_frac
        bursts: tuple[Burst, ...] = getattr(load, "bursts", ())
        for edge_s in (t for b in bursts for t in (b.start_s, b.end_s) if t > now_s):
            bisect.insort(self._edges_s, edge_s)
        if isinstance(load, DailyLoad):
            self._mean[gpu], self._amplitude[gpu], self._peak_h[gpu] = load.mean_frac, load.amplitude, load.peak_h
            if bursts:
                self._bursts[gpu] = bursts
        else:
            self._curves[gpu] = service
        if not job.shared:
            self._alone.add(gpu)
        if self._guards is not None:
            self._guards.add(gpu, now_s, accepts=now_s == self._begin_s and gpu in self._accepting)
        self._load(np.array([gpu]), now_s)
        self._look_at(np.array([gpu]), now_s)
        if self._tick_due_s == _NEVER:
            self._tick_due_s = self._next_tick_s(now_s)
        elif self._edges_s:
            self._tick_due_s = min(self._tick_due_s, max(self._edges_s[0], now_s))

    def _next_tick_s(self, now_s: float) -> float:
        if not self._services:
            return _NEVER
        del self._edges_s[: bisect.bisect_right(self._edges_s, now_s)]
        return min((now_s + self._tick_s, *self._edges_s[:1]))

    def _load(self, gpus: Ints, now_s: float) -> None:
        """The load of these services, and what they use at it; daily curves all at once (`DailyLoad.at`)."""
        angle = 2.0 * np.pi * (now_s / DAY_S - self._peak_h[gpus] / 24.0)
        self._rho[gpus] = self._mean[gpus] * (1.0 + self._amplitude[gpus] * np.cos(angle))
        here = gpus.tolist() if len(gpus) == 1 else None
        for gpu in self._bursts if here is None else [g for g in here if g in self._bursts]:
            self._rho[gpu] *= burst_factor(self._bursts[gpu], now_s)
        for gpu in self._curves if here is None else [g for g in here if g in self._curves]:
            self._rho[gpu] = self._curves[gpu].load.at(now_s)
        busy = np.minimum(self._rho[gpus], 1.0)
        self._u[gpus] = busy * self._full_u[gpus]
        self._a[gpus], self._b[gpus] = busy * self._full_a[gpus], busy * self._full_b[gpus]

    def _look_at(self, gpus: Ints, now_s: float) -> None:
        """What follows from who is there and how loaded it is."""
        if not len(gpus):
            return
        u, a, ou, oa = self._u[gpus], self._a[gpus], self._ou[gpus], self._oa[gpus]
        offline = (ou, oa, self._ob[gpus], self._oocc[gpus])
        kept, slower = beside(self._mode, (u, a, self._b[gpus], 1.0), offline, self._share[gpus])
        shared, hosted = ou > 0.0, self._service_id[gpus] >= 0
        kept, slow = np.where(shared, kept, 0.0), np.where(shared & hosted, slower, 1.0)
        self._throughput[gpus], self._slowdown[gpus] = kept, slow
        rho, request_s, slo_s, alone = self._rho[gpus], self._request_s[gpus], self._slo_s[gpus], np.ones(len(gpus))
        mean, p99 = latencies(rho, request_s, slow)
        mean_alone, p99_alone = latencies(rho, request_s, alone)
        requests, activity = rho / request_s, np.minimum(1.0, a + oa * kept)
        memory = np.minimum(1.0, self._memory[gpus] + self._omem[gpus])
        busy = np.minimum(u * slow, 1.0)
        rates = np.array((
            1.0 - (1.0 - busy) * (1.0 - ou), activity, memory, kept, slow, alone,
            requests, mean * requests, mean_alone * requests, miss_frac(rho, request_s, slow, slo_s) * requests,
            miss_frac(rho, request_s, alone, slo_s) * requests, p99, p99_alone,
        )) * hosted  # fmt: skip
        self._rate += (rates - self._rates[:, gpus]).sum(axis=1)
        self._rates[:, gpus] = rates
        if self._guards is not None:
            whole, clock = 1.0 - (1.0 - u) * (1.0 - ou), 1.0 - 0.2 * np.maximum(0.0, activity - 0.7)
            readings = np.array((whole, activity, clock, memory, busy, a, p99 > slo_s), dtype=np.float64)
            self._guards.take(gpus, readings, now_s, self._offline)

    def _note_evicted(self, gpu: int, now_s: float) -> None:
        assert self._guards is not None
        service, job, why = self._services[gpu][0].job.name, self._offline[gpu].job.name, self._guards.last[gpu]
        p99, alone = self._rates[-2:, gpu]
        row = (now_s, gpu, service, job, why.cause, why.reason, float(p99), None, float(alone), float(self._slo_s[gpu]))
        self._leaving[gpu] = dict(zip(_EVICTED, row, strict=True))
        self._evicted.append(self._leaving[gpu])

    def _keep_row(self, now_s: float) -> None:
        """Sums so far, for the timeline; when there are many, every other one goes."""
        if now_s >= self._rows[-1][0] + self._row_step_s:
            self._rows.append((now_s, self._sums.copy()))
            if len(self._rows) > _ROWS:
                self._rows = self._rows[::2]
                self._row_step_s *= 2.0

    # -- results -----------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, float]:
        """The figures of the services and their GPUs."""
        sums = dict(zip(_RATES, self._sums.tolist(), strict=True))
        hosted_s, requests = sums["services"], sums["requests"]
        return {
            **{f"fleet_{name}": sums[name] / hosted_s if hosted_s else 0.0 for name in _FLEET},
            "service_slowdown": sums["latency"] / sums["latency_alone"] if sums["latency_alone"] else 1.0,
            "service_p99_slowdown": sums["p99"] / sums["p99_alone"] if sums["p99_alone"] else 1.0,
            "slo_miss_frac": sums["missed"] / requests if requests else 0.0,
            "slo_miss_alone_frac": sums["missed_alone"] / requests if requests else 0.0,
            "evictions": len(self._evicted),
            "overlimits": self._guards.overlimits if self._guards is not None else 0,
            "gpus_disabled": self._guards.disabled if self._guards is not None else 0,
        }

    def timeline(self) -> pl.DataFrame:
        """Means over all GPUs with services, tick by tick; as many services as there were on average."""
        names = ("start_s", "end_s", *_FLEET, "slowdown", "services")
        ends = self._rows if self._rows[-1][0] == self._since_s else [*self._rows, (self._since_s, self._sums)]
        at_s, sums = np.array([t for t, _ in ends]), np.array([s for _, s in ends])
        lasted_s, had = np.diff(at_s), np.diff(sums[:, : len(_FLEET) + 2], axis=0)
        seen = had[:, -1] > 0.0
        means = had[seen, :-1] / had[seen, -1:]
        columns = [at_s[:-1][seen], at_s[1:][seen], *means.T, had[seen, -1] / lasted_s[seen]]
        return pl.DataFrame(dict(zip(names, columns, strict=True)))

    def evicted(self) -> pl.DataFrame:
        """Every eviction by a guard: why, and the service's p99 latency before, after and alone."""
        return pl.DataFrame(self._evicted, schema=_EVICTED)
