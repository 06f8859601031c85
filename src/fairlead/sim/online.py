"""Services in the simulated world: their load over time, what offline neighbours cost them, and the guard on each GPU.

Loads are looked at every `tick_s` seconds and hold until the next look. Between two looks everything on a GPU is
constant unless an offline job comes or goes, so sums are exact. A GPU whose guard is not at ease is looked at every few
seconds. The guard is the node agent's own code, fed with what the model says that the agent would measure; as long as
all is well it is fed in one piece, which gives the same states.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.model.cluster import Cluster
from fairlead.model.contention import Mode, Solo, beside
from fairlead.model.service import Service, latencies, miss_frac
from fairlead.policy.guarding import GpuGuard, GuardConfig, Sample, State
from fairlead.policy.view import Fleet
from fairlead.sim.simjob import SimJob

Floats = NDArray[np.float64]
TICK_S = 60.0
_LOOK_S = 5.0
"""How often a GPU whose guard is not at ease is looked at."""
_PLAIN = Solo(0.95, 0.5, 0.6, 0.4, 0.1, 0.2)
"""An offline job of which nothing was measured."""
_NEVER = float("inf")
_FLEET = ("utilisation_frac", "sm_activity_frac", "memory_frac", "oversold_frac")


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
    ) -> None:
        gpus = cluster.gpus
        self._mode = mode
        self._config = guard
        self._retime = retime
        self._tick_s = tick_s
        self._memory_mib = [cluster.gpu_model(g).memory_mib for g in range(gpus)]
        self._services: dict[int, tuple[SimJob, Service]] = {}
        self._offline: dict[int, SimJob] = {}
        self._guards: dict[int, GpuGuard] = {}
        self._fed: dict[int, Sample] = {}
        """The sample that has held since it was taken."""
        self._looks: list[tuple[float, int]] = []
        self.next_s = _NEVER
        self._tick_due_s = _NEVER
        self._since_s = 0.0
        zeros = [np.zeros(gpus) for _ in range(14)]
        (
            self._rho, self._u, self._a, self._b, self._memory, self._request_s, self._slo_s,
            self._ou, self._oa, self._ob, self._oocc, self._omem, self._share, self._throughput,
        ) = zeros  # fmt: skip
        self._slowdown = np.ones(gpus)
        self._at = np.zeros(0, dtype=np.int64)
        """GPUs with a service, in order."""
        # Per service: requests, and sums weighted by them: mean latency, alone, misses, alone; p99 and alone by time.
        self._sums = np.zeros((7, gpus))
        self._fleet = np.zeros(len(_FLEET))
        self._hosted_s = 0.0
        self._rows: list[tuple[float, ...]] = []
        self.evictions = 0
        self.overlimits = 0

    # -- who is where ------------------------------------------------------------------------------------------------

    def started(self, job: SimJob, now_s: float) -> None:
        """A service or an offline job is placed."""
        self.settle(now_s)
        service = job.job.profile.service
        if service is not None:
            self._host(job, service, now_s)
            return
        solo = job.job.profile.solo or _PLAIN
        for gpu in job.gpus:
            self._offline[gpu] = job
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
                self._guards.pop(gpu, None)
                self._fed.pop(gpu, None)
            self._rho[at] = self._u[at] = self._a[at] = self._b[at] = self._memory[at] = 0.0
            self._list_services()
        else:
            for gpu in gpus:
                self._offline.pop(gpu, None)
            self._ou[at] = self._oa[at] = self._ob[at] = self._omem[at] = 0.0
        self._look_at(at, now_s)

    def throughput(self, job: SimJob) -> float:
        """What services leave of an offline job's speed: 1 where there are none."""
        return min((float(self._throughput[g]) for g in job.gpus if g in self._services), default=1.0)

    def fleet(self, now_s: float) -> Fleet:
        """What is metered now."""
        at = self._at
        if self._config is not None:
            for gpu in at.tolist():
                if self._guards[gpu].state is not State.HEALTHY:
                    self._feed(gpu, now_s)
        accepts = [g not in self._guards or self._guards[g].accepts_offline for g in at.tolist()]
        offline = [self._offline[g].job.id if g in self._offline else -1 for g in at.tolist()]
        return Fleet(
            at,
            np.array([self._services[g][0].job.id for g in at.tolist()], dtype=np.int64),
            self._u[at],
            self._a[at],
            self._memory[at],
            np.array(accepts, dtype=bool),
            np.array(offline, dtype=np.int64),
        )

    # -- time --------------------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> list[SimJob]:
        """Look at what is due; gives the offline jobs that the guard wants gone."""
        self.settle(now_s)
        if self._tick_due_s <= now_s:
            self._tick_due_s = now_s + self._tick_s if self._services else _NEVER
            for gpu, (_, service) in self._services.items():
                self._load(gpu, service, now_s)
            self._look_at(self._at, now_s)
            for gpu in self._at.tolist():
                job = self._offline.get(gpu)
                if job is not None and gpu == job.gpus[0]:
                    self._retime(job, self._tick_due_s)
        evicted: dict[int, SimJob] = {}
        while self._looks and self._looks[0][0] <= now_s:
            gpu = heapq.heappop(self._looks)[1]
            if gpu in self._guards:
                self._feed(gpu, now_s)
                job = self._offline.get(gpu)
                if job is not None and self._guards[gpu].must_evict:
                    evicted[job.job.id] = job
                elif self._uneasy(gpu) and job is not None:
                    heapq.heappush(self._looks, (now_s + _LOOK_S, gpu))
        self._set_next()
        self.evictions += len(evicted)
        return list(evicted.values())

    def settle(self, now_s: float) -> None:
        """Add up what has been since the last change."""
        dt_s, at = now_s - self._since_s, self._at
        self._since_s = now_s
        if dt_s <= 0.0 or not len(at):
            return
        rho, request_s, slow, slo_s = self._rho[at], self._request_s[at], self._slowdown[at], self._slo_s[at]
        requests = rho / request_s * dt_s
        alone = np.ones(len(at))
        mean, p99 = latencies(rho, request_s, slow)
        mean_alone, p99_alone = latencies(rho, request_s, alone)
        sums = (
            requests, mean * requests, mean_alone * requests, miss_frac(rho, request_s, slow, slo_s) * requests,
            miss_frac(rho, request_s, alone, slo_s) * requests, p99 * dt_s, p99_alone * dt_s,
        )  # fmt: skip
        for row, value in zip(self._sums, sums, strict=True):
            row[at] += value
        used = self._used()
        self._fleet += np.array([x[at].sum() for x in used]) * dt_s
        self._hosted_s += len(at) * dt_s
        self._rows.append((now_s - dt_s, dt_s, *(float(x[at].mean()) for x in used), float(slow.mean()), len(at)))

    def _used(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Utilisation, SM activity, memory and offline throughput of every GPU, both workloads together."""
        kept = self._throughput * (self._ou > 0.0)
        utilisation = 1.0 - (1.0 - np.minimum(self._u * self._slowdown, 1.0)) * (1.0 - self._ou)
        activity = np.minimum(1.0, self._a + self._oa * kept)
        return utilisation, activity, np.minimum(1.0, self._memory + self._omem), kept

    # -- inside ------------------------------------------------------------------------------------------------------

    def _host(self, job: SimJob, service: Service, now_s: float) -> None:
        (gpu,) = job.gpus
        self._services[gpu] = (job, service)
        self._request_s[gpu], self._slo_s[gpu] = service.solo.time_s, service.slo_s
        memory_mib = job.job.memory_mib
        self._memory[gpu] = memory_mib / self._memory_mib[gpu] if memory_mib else service.solo.memory_frac
        if self._config is not None:
            self._guards[gpu] = GpuGuard(self._config, now_s)
        self._list_services()
        self._load(gpu, service, now_s)
        self._look_at(np.array([gpu]), now_s)
        if self._tick_due_s == _NEVER:
            self._tick_due_s = now_s + self._tick_s
            self._set_next()

    def _list_services(self) -> None:
        self._at = np.array(sorted(self._services), dtype=np.int64)

    def _load(self, gpu: int, service: Service, now_s: float) -> None:
        rho = service.load.at(now_s)
        busy = min(rho, 1.0)
        self._rho[gpu] = rho
        solo = service.solo
        self._u[gpu] = busy * solo.utilisation_frac
        self._a[gpu], self._b[gpu] = busy * solo.sm_activity_frac, busy * solo.bandwidth_frac

    def _look_at(self, gpus: NDArray[np.int64], now_s: float) -> None:
        """What follows from who is there and how loaded it is."""
        if not len(gpus):
            return
        service = (self._u[gpus], self._a[gpus], self._b[gpus], 1.0)
        offline = (self._ou[gpus], self._oa[gpus], self._ob[gpus], self._oocc[gpus])
        kept, slower = beside(self._mode, service, offline, self._share[gpus])
        shared = self._ou[gpus] > 0.0
        self._throughput[gpus] = np.where(shared, kept, 0.0)
        self._slowdown[gpus] = np.where(shared, slower, 1.0)
        if self._config is not None:
            for gpu in gpus.tolist():
                if gpu in self._guards:
                    self._watch(gpu, now_s)
            self._set_next()

    def _watch(self, gpu: int, now_s: float) -> None:
        """Feed the guard where anything but being well has held, or begins."""
        new = self._sample(gpu, now_s)
        old = self._fed.get(gpu)
        if old is None or not (self._is_well(old) and self._is_well(new) and self._guards[gpu].state is State.HEALTHY):
            self._feed(gpu, now_s)
            self._fed[gpu] = new
            if gpu in self._offline and self._uneasy(gpu):
                heapq.heappush(self._looks, (now_s + _LOOK_S, gpu))

    def _uneasy(self, gpu: int) -> bool:
        return self._guards[gpu].state is not State.HEALTHY or not self._is_well(self._fed[gpu])

    def _is_well(self, sample: Sample) -> bool:
        """Whether a sample is one of a Healthy GPU."""
        config = self._config
        assert config is not None
        return (
            not sample.slo_broken
            and (sample.online_util_frac or 0.0) < config.util_healthy_frac
            and (sample.online_sm_activity_frac or 0.0) < config.sm_activity_healthy_frac
            and (sample.clock_frac or 1.0) > config.clock_healthy_frac
            and (sample.memory_frac or 0.0) < config.memory_healthy_frac
        )

    def _feed(self, gpu: int, now_s: float) -> None:
        """Bring a guard up to now with what has held until now."""
        guard, held = self._guards[gpu], self._fed.get(gpu)
        if held is None:
            held = self._fed[gpu] = self._sample(gpu, now_s)
        if now_s > guard.time_s:
            before = guard.state
            moves = guard.observe_constant(replace(held, time_s=max(held.time_s, guard.time_s)), now_s)
            entered = sum(m.after is State.OVERLIMIT for m in moves)
            self.overlimits += entered if before is not State.OVERLIMIT or entered > 1 else 0

    def _sample(self, gpu: int, now_s: float) -> Sample:
        _, p99 = latencies(self._rho[gpu], self._request_s[gpu], self._slowdown[gpu])
        activity = min(1.0, self._a[gpu] + self._oa[gpu] * self._throughput[gpu])
        return Sample(
            now_s,
            util_frac=float(1.0 - (1.0 - self._u[gpu]) * (1.0 - self._ou[gpu])),
            sm_activity_frac=float(activity),
            clock_frac=float(1.0 - 0.2 * max(0.0, activity - 0.7)),
            memory_frac=float(min(1.0, self._memory[gpu] + self._omem[gpu])),
            online_util_frac=float(min(1.0, self._u[gpu] * self._slowdown[gpu])),
            online_sm_activity_frac=float(self._a[gpu]),
            slo_broken=bool(p99 > self._slo_s[gpu]),
        )

    def _set_next(self) -> None:
        self.next_s = min(self._tick_due_s, self._looks[0][0] if self._looks else _NEVER)

    # -- results -----------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, float]:
        """The figures of the services and their GPUs."""
        requests, mean, alone, missed, missed_alone, p99, p99_alone = self._sums.sum(axis=1)
        hosted = max(self._hosted_s, 1e-12)
        fleet = dict(zip((f"fleet_{name}" for name in _FLEET), (self._fleet / hosted).tolist(), strict=True))
        return {
            **fleet,
            "service_slowdown": mean / alone if alone else 1.0,
            "service_p99_slowdown": p99 / p99_alone if p99_alone else 1.0,
            "slo_miss_frac": missed / requests if requests else 0.0,
            "slo_miss_alone_frac": missed_alone / requests if requests else 0.0,
            "evictions": self.evictions,
            "overlimits": self.overlimits,
        }

    def timeline(self) -> pl.DataFrame:
        """Means over all GPUs with services, between any two changes."""
        names = ("start_s", "lasts_s", *_FLEET, "slowdown", "services")
        return pl.DataFrame(self._rows, schema=dict.fromkeys(names, pl.Float64), orient="row")
