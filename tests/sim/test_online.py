"""Services in the simulator: sums by hand, and a brute-force oracle that steps every second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.contention import Mode, Solo, beside
from fairlead.model.profile import Profile
from fairlead.model.service import Burst, DailyLoad, Service, TableLoad, latencies, miss_frac
from fairlead.policy.guarding import GpuGuard, GuardConfig, Sample, State
from fairlead.sim.online import Online
from fairlead.sim.result import Result
from fairlead.sim.run import Run
from fairlead.sim.simjob import SimJob
from fairlead.sim.world import World
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

HEAVY = Solo(0.95, 0.6, 0.6, 0.5, 0.15, 0.2)
AT_FULL = Solo(1.0, 0.6, 0.5, 0.5, 0.4, 0.01)
GREEDY = "ordering=fifo:backfill=greedy,sharing="


def service_of(mean: float, *, slo_s: float = 0.04, amplitude: float = 0.0, bursts: tuple[Burst, ...] = ()) -> Service:
    return Service(DailyLoad(mean, amplitude, 12.0, bursts), AT_FULL, slo_s)


def trace_of(services: Sequence[Service], jobs: Sequence[tuple[float, float]], hours: float = 1.0) -> Trace:
    """Services for so many hours, and offline jobs of (submission, duration)."""
    profiles = {f"s{i}": Profile(f"s{i}", solo=s.solo, service=s) for i, s in enumerate(services)}
    profiles["heavy"] = Profile("heavy", restart_s=30.0, solo=HEAVY)
    frame = pl.DataFrame(
        {
            "job_id": [*profiles][: len(services)] + [f"job-{i}" for i in range(len(jobs))],
            "submit_s": [0.0] * len(services) + [float(at) for at, _ in jobs],
            "gpus": [1] * (len(services) + len(jobs)),
            "duration_s": [hours * 3600.0] * len(services) + [float(lasts) for _, lasts in jobs],
            "profile": [*profiles][: len(services)] + ["heavy"] * len(jobs),
            "kind": ["service"] * len(services) + ["training"] * len(jobs),
        }
    )
    return Trace.from_columns(frame, profiles=profiles)


def sim_jobs(trace: Trace) -> list[SimJob]:
    return [SimJob(job, duration_s) for job, duration_s in trace.arrivals()]


def run(trace: Trace, sharing: str = "muxflow", cluster: str = "1x1:T4") -> Result:
    return Run(trace, parse_shape(cluster), GREEDY + sharing).result()


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_a_constant_load_alone_has_the_latency_and_use_of_the_formulas() -> None:
    found = run(trace_of([service_of(0.5)], []), "online-only").summary
    assert found["fleet_utilisation_frac"] == pytest.approx(0.5)
    assert found["fleet_sm_activity_frac"] == pytest.approx(0.3)
    assert found["fleet_memory_frac"] == pytest.approx(0.4)
    assert found["fleet_oversold_frac"] == 0.0
    assert found["service_slowdown"] == found["service_p99_slowdown"] == 1.0
    # r = 0.5, t = 10 ms, SLO 40 ms: exp(-2 * 0.5 * 30 / (0.5 * 10)) = exp(-6)
    assert found["slo_miss_frac"] == pytest.approx(np.exp(-6.0))
    assert found["slo_miss_frac"] == found["slo_miss_alone_frac"]


def test_a_neighbour_counts_for_as_long_as_it_is_there() -> None:
    """Time slices: throughput 0.95 * 0.5, slowdown 1 + 0.25 * 0.95; 475 s of work take 1,000 s."""
    found = run(trace_of([service_of(0.5)], [(0.0, 475.0)]), "time-sharing")
    slow = 1.0 + 0.25 * 0.95
    (job,) = found.jobs.filter(pl.col("kind") == "training").iter_rows(named=True)
    assert job["jct_s"] == pytest.approx(1000.0)
    beside_it = 1000.0 / 3600.0
    alone, slowed = (float(latencies(np.array(0.5), np.array(0.01), np.array(s))[0]) for s in (1.0, slow))
    assert found.summary["service_slowdown"] == pytest.approx(1.0 + beside_it * (slowed / alone - 1.0))
    assert found.summary["fleet_oversold_frac"] == pytest.approx(beside_it * 0.475)
    assert found.summary["fleet_memory_frac"] == pytest.approx(0.4 + beside_it * 0.15)
    both = 1.0 - (1.0 - 0.5 * slow) * (1.0 - 0.95)
    assert found.summary["fleet_utilisation_frac"] == pytest.approx(beside_it * both + (1.0 - beside_it) * 0.5)


def test_the_timeline_adds_up_to_the_summary() -> None:
    found = run(service_fleet(16, 3.0, seed=4), "muxflow", "2x8:T4")
    fleet = found.fleet
    assert fleet is not None
    weight = fleet["services"] * (fleet["end_s"] - fleet["start_s"])
    for name in ("utilisation_frac", "sm_activity_frac", "memory_frac", "oversold_frac"):
        assert (fleet[name] * weight).sum() / weight.sum() == pytest.approx(found.summary[f"fleet_{name}"], rel=1e-9)
    assert fleet["end_s"].to_numpy().max() <= 3 * 3600.0 + 60.0


def test_a_measured_load_is_followed() -> None:
    curve = TableLoad((0.0, 1800.0, 3600.0), (0.2, 0.6, 0.2))
    found = run(trace_of([Service(curve, AT_FULL, 0.5)], []), "online-only").summary
    assert found["fleet_utilisation_frac"] == pytest.approx(0.4, abs=0.002)  # ticks of a minute


# -- the guard --------------------------------------------------------------------------------------------------------


def test_a_burst_is_answered_within_two_windows_and_nothing_is_lost() -> None:
    burst = Burst(3600.0, 5400.0, 5.0)
    services = [service_of(0.18, bursts=(burst,)), service_of(0.18)]
    jobs = [(60.0, 9000.0), (60.0, 9000.0)]
    with_it = run(trace_of(services, jobs, hours=4.0), cluster="1x2:T4")
    without = run(trace_of([service_of(0.18)] * 2, jobs, hours=4.0), cluster="1x2:T4")
    assert with_it.evictions is not None
    (evicted,) = with_it.evictions.iter_rows(named=True)
    assert evicted["time_s"] == 3600.0 + 2 * 5.0  # the guard's windows
    assert evicted["cause"] == "slo-broken"
    assert evicted["p99_s"] > evicted["p99_after_s"] == evicted["p99_alone_s"]
    ended = with_it.jobs.filter(pl.col("kind") == "training")
    assert (ended["finish_s"] > 0.0).all()
    later = with_it.summary["offline_makespan_s"] - without.summary["offline_makespan_s"]
    assert 0.0 < later < 3600.0 + 900.0 + 120.0  # the burst, the hold, the next matching and a restart
    added = with_it.summary["slo_miss_frac"] - with_it.summary["slo_miss_alone_frac"]
    assert 0.0 < added < 0.001
    assert with_it.summary["evictions"] == with_it.summary["overlimits"] == 1


def test_an_evicted_job_keeps_its_progress() -> None:
    """Beside a service of no load it runs as alone: 3,600 s before the burst, so 1,400 s and a restart are left."""
    burst = Burst(3660.0, 4260.0, 1e6)
    light = Service(DailyLoad(1e-6, 0.0, 0.0, (burst,)), replace(AT_FULL, memory_frac=0.3), 0.04)
    found = run(trace_of([light], [(60.0, 5000.0)], hours=4.0), "muxflow:dynamic=false:share=1.0")
    (job,) = found.jobs.filter(pl.col("kind") == "training").iter_rows(named=True)
    assert found.evictions is not None
    (evicted,) = found.evictions.iter_rows(named=True)
    assert job["preemptions"] == 1
    ran_s = evicted["time_s"] - job["first_start_s"]
    again_s = job["finish_s"] - (5000.0 - ran_s) - 30.0
    # Six windows after the burst its GPU is Healthy, which is asked for every minute; in the burst it was slower.
    assert 4260.0 + 30.0 <= again_s <= 4260.0 + 30.0 + 60.0 + 10.0


def test_a_gpu_that_is_over_the_limits_again_and_again_is_disabled_and_its_overlimits_are_counted() -> None:
    """A service that always breaks its SLO beside a job: 5 Overlimits within the hour, with holds of 1, 2, 4, 8 min."""
    tight = Service(DailyLoad(0.6, 0.0), AT_FULL, 0.05)
    found = run(trace_of([tight], [(0.0, 5000.0)] * 6, hours=6.0), "muxflow:interval_s=30")
    assert found.summary["overlimits"] == found.summary["evictions"] == 5
    assert found.summary["gpus_disabled"] == 1
    assert found.evictions is not None
    gaps = np.diff(found.evictions["time_s"].to_numpy())
    assert all(gap >= hold for gap, hold in zip(gaps, (60.0, 120.0, 240.0, 480.0), strict=True))
    assert found.evictions["cause"].to_list() == ["slo-broken"] * 4 + ["too-often-overlimit"]
    offline = found.jobs.filter(pl.col("kind") == "training")
    assert (offline["finish_s"] > 6 * 3600.0).all(), "they end when the service has gone"


# -- brute force ------------------------------------------------------------------------------------------------------


@dataclass
class Brute:
    """The same world, second by second, every guard fed with every sample."""

    services: Sequence[Service]
    mode: Mode
    tick_s: int = 60
    sums: np.ndarray[tuple[int], np.dtype[np.float64]] = field(default_factory=lambda: np.zeros(9))
    evicted: list[tuple[float, int]] = field(default_factory=list)

    def run(self, script: Sequence[tuple[int, int, SimJob | None]], end_s: int) -> list[State]:
        """`script`: at a second an offline job comes to a GPU, if that accepts any, or leaves it (None)."""
        guards = [GpuGuard(GuardConfig(), 0.0) for _ in self.services]
        there: list[SimJob | None] = [None] * len(self.services)
        rho = [0.0] * len(self.services)
        edges = {t for s in self.services for b in s.load.bursts for t in (b.start_s, b.end_s)}  # type: ignore[attr-defined]
        tick_s = 0.0
        for now in range(end_s):
            if now == tick_s or now in edges:
                rho = [s.load.at(now) for s in self.services]
                tick_s = now + self.tick_s
            for gpu, guard in enumerate(guards):
                guard.advance(now)
                if guard.must_evict and there[gpu] is not None:
                    there[gpu] = None
                    self.evicted.append((float(now), gpu))
            for _, gpu, job in (entry for entry in script if entry[0] == now):
                there[gpu] = job if guards[gpu].accepts_offline else None
            for gpu, guard in enumerate(guards):
                guard.observe(self._second(self.services[gpu], rho[gpu], there[gpu], now))
        return [guard.state for guard in guards]

    def _second(self, service: Service, rho: float, job: SimJob | None, now: int) -> Sample:
        solo, busy = service.solo, min(rho, 1.0)
        u, a, b = busy * solo.utilisation_frac, busy * solo.sm_activity_frac, busy * solo.bandwidth_frac
        kept, slow, o = 0.0, 1.0, Solo(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        if job is not None:
            o = job.job.profile.solo or o
            offline = (o.utilisation_frac, o.sm_activity_frac, o.bandwidth_frac, o.occupancy_frac)
            kept, slow = (float(x) for x in beside(self.mode, (u, a, b, 1.0), offline, job.sm_share))
        args = (np.array(rho), np.array(solo.time_s))
        mean, p99 = (float(x) for x in latencies(*args, np.array(slow)))
        requests = rho / solo.time_s
        missed = float(miss_frac(*args, np.array(slow), np.array(service.slo_s)))
        activity, memory = min(1.0, a + o.sm_activity_frac * kept), min(1.0, solo.memory_frac + o.memory_frac)
        online = min(1.0, u * slow)
        used = 1.0 - (1.0 - online) * (1.0 - o.utilisation_frac)
        self.sums += (used, activity, memory, kept, slow, requests, mean * requests, missed * requests, p99)
        return Sample(
            float(now),
            clock_frac=1.0 - 0.2 * max(0.0, activity - 0.7),
            memory_frac=memory,
            online_util_frac=online,
            online_sm_activity_frac=a,
            slo_broken=p99 > service.slo_s,
        )


@pytest.mark.parametrize("seed", range(8))
def test_stretches_give_what_stepping_every_second_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    end_s, count = 5400, 3
    services = []
    for _ in range(count):
        start_s = float(rng.integers(600, 3000))
        burst = Burst(start_s, start_s + float(rng.integers(60, 1500)), float(rng.uniform(2.0, 6.0)))
        solo = replace(AT_FULL, memory_frac=float(rng.uniform(0.2, 0.8)), sm_activity_frac=float(rng.uniform(0.4, 1.0)))
        services.append(Service(DailyLoad(float(rng.uniform(0.1, 0.6)), 0.5, 1.0, (burst,)), solo, 0.06))
    moments = np.sort(rng.choice(np.arange(5, end_s), size=40, replace=False)).tolist()
    trace = trace_of(services, [(0.0, 1e6)] * len(moments), hours=10.0)
    jobs = sim_jobs(trace)
    script: list[tuple[int, int, SimJob | None]] = []
    for number, at in enumerate(moments):
        job = jobs[count + number]
        job.sm_share = float(rng.uniform(0.1, 0.9))
        script.append((at, int(rng.integers(count)), job if rng.random() < 0.7 else None))
    brute = Brute(services, "mps")
    states = brute.run(script, end_s)
    online = Online(parse_shape("1x3:T4"), "mps", guard=GuardConfig(), retime=lambda job, until_s: None)
    for gpu, job in enumerate(jobs[:count]):
        job.gpus, job.shared = (gpu,), True
        online.started(job, 0.0)
    evicted = drive(online, script, float(end_s))
    assert evicted == brute.evicted
    online.settle(float(end_s))
    names = ("utilisation_frac", "sm_activity_frac", "memory_frac", "oversold_frac", "slowdown", "requests")
    ours = dict(zip(online_rates(), online._sums.tolist(), strict=True))
    assert [ours[n] for n in (*names, "latency", "missed", "p99")] == pytest.approx(brute.sums.tolist(), rel=1e-9)
    assert online._guards is not None
    online._guards.refresh(float(end_s - 1), online._offline)
    for gpu, state in enumerate(states):
        assert online._guards.state(gpu) is state


def online_rates() -> tuple[str, ...]:
    from fairlead.sim import online

    return online._RATES


def drive(online: Online, script: Sequence[tuple[int, int, SimJob | None]], end_s: float) -> list[tuple[float, int]]:
    """What the simulator does: looks first, then what happens to jobs."""
    there: dict[int, SimJob] = {}
    evicted = []

    def leave(gpu: int, now_s: float) -> None:
        if gpu in there:
            online.left(there.pop(gpu), (gpu,), now_s)

    for at, gpu, job in [*script, (int(end_s), -1, None)]:
        while online.next_s <= at and online.next_s < end_s:
            now_s = online.next_s
            for gone in online.advance(now_s):
                evicted.append((now_s, gone.gpus[0]))
                leave(gone.gpus[0], now_s)
        leave(gpu, float(at))
        if job is not None and online.fleet(float(at)).accepts[gpu]:
            job.gpus, job.shared = (gpu,), True
            there[gpu] = job
            online.started(job, float(at))
    return evicted


@pytest.mark.parametrize("sharing", ["muxflow", "time-sharing"])
def test_gpus_are_drained_while_no_service_is_there(sharing: str) -> None:
    trace = trace_of([service_of(0.2)], [(5400.0, 600.0)])  # the service ends after an hour
    found = Run(trace, parse_shape("1x3:T4"), GREEDY + sharing, World(drained=(2,))).result()
    assert found.jobs["finish_s"].is_finite().all()
