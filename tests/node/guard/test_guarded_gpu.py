"""The agent's mind on recorded and made-up samples: no GPU, no clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.node.gpu.busy_shares import shares, with_shares
from fairlead.node.gpu.energy import GpuEnergy
from fairlead.node.gpu.meter import GpuInfo, GpuSample, ProcessSample
from fairlead.node.gpu.recordings import ReplayMeter
from fairlead.node.guard.guarded_gpu import GuardedGpu
from fairlead.node.guard.latency import Report
from fairlead.node.identity import AttemptId
from fairlead.node.mps.daemon import MpsServer, MpsStatus
from fairlead.node.mps.recovery import MpsRecovery, RecoveryConfig
from fairlead.node.order import Order
from fairlead.policy.guarding import GuardConfig, Pressure, Remedy, State

RECORDED = Path(__file__).parents[1] / "data" / "h200-guarded.jsonl"
INFO = GpuInfo(0, "GPU-x", "NVIDIA H200", 143771.0, 1980.0, 1980.0)
SERVE, TRAIN, OTHER = (AttemptId(job_id, 1) for job_id in (1, 2, 3))
SERVICE = Order(SERVE, ("true",), "service", slo_s=0.0125, gpus=("GPU-x",))


def recorded() -> list[GpuSample]:
    return [reading[0] for reading in ReplayMeter(RECORDED).readings()]


def full() -> list[GpuSample]:
    return [sample for sample in recorded() if sample.energy_mj is not None]


def test_the_recording_is_of_a_guarded_training_beside_a_service() -> None:
    meter = ReplayMeter(RECORDED)
    assert meter.gpus[0].model == "H200"
    samples = full()
    assert max(s.utilisation_frac or 0.0 for s in samples) > 0.9
    assert max(s.sm_activity_frac or 0.0 for s in samples) > 0.7
    told = [p for s in samples for p in s.processes or () if p.sm_frac is not None]
    assert len({p.pid for p in told}) == 1, "under MPS the driver tells of the server alone"


def test_the_recorded_gpu_stays_healthy_where_the_load_is_the_neighbours() -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    guarded.join(SERVICE)
    began_s = full()[0].at_s
    for sample in full():
        online = {SERVE: 0.05, TRAIN: min(sample.utilisation_frac or 0.0, 0.95)}
        guarded.second(sample, sample.at_s - began_s, online)
    assert guarded.guard.state is State.HEALTHY


def test_the_same_load_of_the_service_itself_is_too_much() -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    guarded.join(SERVICE)
    for i in range(60):
        sample = replace(full()[0], utilisation_frac=0.99, sm_activity_frac=0.92, sm_clock_mhz=1980.0)
        guarded.second(sample, float(i), {SERVE: 0.99})
    assert guarded.guard.must_evict


def test_without_a_service_offline_jobs_may_have_everything() -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    sample = GpuSample(0.0, 0, "GPU-x", utilisation_frac=1.0, sm_activity_frac=0.95, sm_clock_mhz=1980.0)
    assert guarded.period(sample, 0.0).rate_frac == 1.0
    for i in range(60):
        guarded.second(replace(sample, memory_used_mib=143000.0), float(i), {TRAIN: 1.0})
    assert guarded.guard.state is State.HEALTHY
    guarded.join(SERVICE)
    assert guarded.period(sample, 61.0).rate_frac == pytest.approx(0.05), "from the floor up when a service has come"


def test_an_idle_gpu_that_clocks_down_has_lost_nothing() -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    guarded.join(SERVICE)
    idle = GpuSample(0.0, 0, "GPU-x", utilisation_frac=0.0, sm_clock_mhz=345.0)
    for i in range(100):
        guarded.period(idle, 0.1 * i)
    assert guarded.rate.rate_frac == 1.0


@given(st.lists(st.floats(0.0, 0.05), min_size=1, max_size=60), st.integers(0, 500))
@settings(deadline=None, max_examples=50)
def test_on_recorded_samples_the_rate_keeps_its_bounds_and_pressure_never_raises_it(
    latencies: list[float], start: int
) -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    guarded.join(SERVICE)
    samples = recorded()
    for i, latency_s in enumerate(latencies):
        now_s = 0.1 * i
        guarded.report(Report(SERVE, latency_s, now_s))
        guarded.report(Report(OTHER, 9.0, now_s))
        before = guarded.rate.rate_frac
        order = guarded.period(samples[(start + i) % len(samples)], now_s)
        assert 0.05 <= order.rate_frac <= 1.0
        if guarded.pressure(now_s) in (Pressure.HIGH, Pressure.SEVERE):
            assert order.rate_frac <= before


def test_a_burst_brings_the_rate_to_the_floor_within_a_second_and_it_recovers() -> None:
    config = GuardConfig()
    guarded = GuardedGpu(INFO, config, 0.0)
    guarded.join(SERVICE)
    guarded.rate.rate_frac = 1.0
    calm, period_s = GpuSample(0.0, 0, "GPU-x", utilisation_frac=0.5, sm_clock_mhz=1980.0), config.rate.period_s
    moments = [(number + 1) * period_s for number in range(round(4.0 / period_s))]
    rates = {}
    for now_s in moments:
        assert SERVICE.slo_s is not None
        guarded.report(Report(SERVE, (2.0 if 1.0 < now_s <= 2.0 else 0.5) * SERVICE.slo_s, now_s))
        rates[round(now_s, 6)] = guarded.period(calm, now_s).rate_frac
    assert rates[1.0] == 1.0, "half of the SLO is no reason"
    assert rates[2.0] == config.rate.floor_frac
    assert rates[round(moments[-1], 6)] > config.rate.floor_frac


def test_a_fatal_xid_disables_and_a_clients_own_fault_is_looked_into() -> None:
    guarded = GuardedGpu(INFO, GuardConfig(), 0.0)
    found = guarded.faults([31], ["Server failed to recevie command with status 806, assuming client {PID: 1} exit"])
    assert [f.remedy for f in found] == [Remedy.CHECK_MPS]
    (found_fatal,) = guarded.faults([79], [])
    assert found_fatal.remedy is Remedy.DISABLE
    guarded.second(GpuSample(0.0, 0, "GPU-x", utilisation_frac=0.1), 1.0, {})
    assert guarded.guard.state is State.DISABLED


# ---- who was how busy ----


def sampled(utilisation_frac: float | None, **sm: float) -> GpuSample:
    processes = tuple(ProcessSample(int(pid[1:]), part) for pid, part in sm.items())
    return GpuSample(0.0, 0, "GPU-x", utilisation_frac=utilisation_frac, processes=processes)


def test_shares_come_from_shims_then_the_driver_then_what_is_left() -> None:
    jobs = {"a": {1}, "b": {2}}
    assert shares(sampled(1.0, p1=0.2, p2=0.7), jobs, {"a": 0.4, "b": 0.4}) == {"a": 0.4, "b": 0.4}
    assert shares(sampled(1.0, p1=0.2, p2=0.7), jobs, {}) == {"a": 0.2, "b": 0.7}
    assert shares(sampled(0.9, p7=0.9), jobs, {"a": 0.6}) == {"a": 0.6, "b": pytest.approx(0.3)}
    assert shares(sampled(0.8), jobs, {}) == {"a": 0.4, "b": 0.4}
    assert shares(sampled(None), jobs, {"a": 0.6}) == {"a": 0.6, "b": None}


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=4), st.floats(0.0, 1.0))
@settings(deadline=None, max_examples=30)
def test_joules_on_recorded_samples_add_up_whatever_the_shares(charged: list[float], utilisation_frac: float) -> None:
    energy = GpuEnergy()
    jobs = {f"job{i}": {i + 1} for i in range(len(charged) + 1)}
    known = {f"job{i}": part for i, part in enumerate(charged)}
    samples = full()
    for sample in samples:
        part = shares(replace(sample, utilisation_frac=utilisation_frac), jobs, known)
        energy.advance(with_shares(sample, jobs, part), jobs)
    first, last = samples[0].energy_mj, samples[-1].energy_mj
    assert first is not None
    assert last is not None
    assert sum(one.known_mj for one in energy.jobs.values()) == energy.metered.known_mj == last - first


# ---- when MPS is restarted ----

PIDS = {SERVE: {10}}


def status(state: str = "ACTIVE", clients: tuple[int, ...] = (10,)) -> MpsStatus:
    return MpsStatus(is_running=True, pid=1, servers=(MpsServer(2, state, clients),))


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (MpsStatus(is_running=False), "gone"),
        (MpsStatus(is_running=True, is_hung=True), "does not answer"),
        (status("FAULT"), "FAULT"),
    ],
)
def test_mps_is_restarted_where_it_says_so_itself(seen: MpsStatus, word: str) -> None:
    assert word in (MpsRecovery().look(seen, PIDS, 0.0) or "")


def test_a_healthy_server_is_never_restarted_on_a_suspicion() -> None:
    mps_recovery = MpsRecovery()
    mps_recovery.started(SERVE, 0.0)
    for second in range(100):
        mps_recovery.suspect("a line that speaks of failing", float(second))
        assert mps_recovery.look(status(), PIDS, float(second)) is None


def test_a_service_that_lost_its_server_or_never_found_it_needs_a_new_one() -> None:
    mps_recovery = MpsRecovery(RecoveryConfig(ready_s=20.0, lost_s=2.0))
    mps_recovery.started(SERVE, 0.0)
    assert mps_recovery.look(status(clients=()), PIDS, 19.0) is None
    assert "no client" in (mps_recovery.look(status(clients=()), PIDS, 21.0) or "")
    mps_recovery.look(status(), PIDS, 22.0)
    assert mps_recovery.look(status(clients=()), PIDS, 23.0) is None
    assert "lost" in (mps_recovery.look(status(clients=()), PIDS, 25.0) or "")
    mps_recovery.forget(SERVE)
    assert mps_recovery.look(status(clients=()), PIDS, 99.0) is None


def test_the_end_of_a_service_is_blamed_on_mps_only_after_a_fault_or_a_failed_start() -> None:
    mps_recovery = MpsRecovery()
    mps_recovery.started(SERVE, 0.0)
    mps_recovery.look(status(), PIDS, 5.0)
    assert mps_recovery.ended(SERVE, 100.0) is None
    mps_recovery.started(SERVE, 100.0)
    assert "did not come up" in (mps_recovery.ended(SERVE, 103.0) or "")
    mps_recovery.started(SERVE, 200.0)
    mps_recovery.suspect("Xid 31", 290.0)
    assert "Xid 31" in (mps_recovery.ended(SERVE, 295.0) or "")
