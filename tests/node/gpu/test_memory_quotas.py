"""Quotas on shared GPUs: what each job may hold by default, and what becomes of one that holds more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.live.engines.engine import AttemptState, AttemptStatus
from fairlead.live.jobs.outcome import Verdict, judge
from fairlead.live.storage.store import Attempt
from fairlead.node import shim
from fairlead.node.agent import Agent
from fairlead.node.gpu import memory_quotas
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.memory_quotas import CONTEXT_MIB, Resident
from fairlead.node.gpu.nvml import NvmlMeter
from fairlead.node.guard.control_page import ControlPage
from fairlead.node.identity import AttemptId
from fairlead.node.mps.survey import Survey
from fairlead.node.order import Order
from fairlead.node.stopping import OVER_QUOTA
from tests.node.gpu.fake_nvml import FakeNvml
from tests.node.test_agent import GPU, SERVE, TRAIN, World, folder, offline, service

__all__ = ["folder"]
FIRST, SECOND = AttemptId(11, 1), AttemptId(12, 1)
TOTAL_MIB = FakeMeter(1).gpus[0].memory_total_mib or 0.0
ENV = "import json, os, time; print(json.dumps(dict(os.environ)), flush=True); time.sleep(60)"


@pytest.fixture
def shared(folder: Path) -> Iterator[World]:
    """An agent with the shim."""
    if shim.find_compiler() is None:
        pytest.skip("no C compiler: the shim can't be built")
    world = World(folder)
    world.agent.close()
    world.agent = Agent(folder / "run", world.meter, config=world.config, library=shim.build())
    yield world
    world.end()


def begin(world: World, order: Order) -> None:
    world.agent.start(order)


def quota_mib(world: World, job: AttemptId) -> float | None:
    return world.agent.node_gpu(GPU).running_jobs[job].quota_mib(GPU)


def holds(world: World, job: AttemptId, mib: float) -> None:
    """So much, as the driver tells it."""
    world.meter.set_load(0, world.pid(job), 0.1, mib)


def test_what_is_left_is_split_between_those_who_declared_nothing() -> None:
    free = 100_000.0 - 3 * CONTEXT_MIB
    declared, grown, fresh = Resident(2_000.0, 30_000.0), Resident(10_000.0), Resident(0.0)
    assert memory_quotas.part_mib(100_000.0, [declared, grown, fresh]) == pytest.approx((free - 40_000.0) / 2)
    assert memory_quotas.part_mib(20_000.0, [declared, grown, fresh]) == 0.0


def test_a_job_beside_a_service_has_a_quota_without_asking_for_one(shared: World) -> None:
    begin(shared, replace(service(), memory_mib=40_000.0))
    begin(shared, offline(ENV))
    found = quota_mib(shared, TRAIN)
    assert found == pytest.approx(TOTAL_MIB - 40_000.0 - 2 * CONTEXT_MIB)
    shared.until(lambda: shared.output(TRAIN).endswith("}\n"))
    env = json.loads(shared.output(TRAIN))
    assert int(env["FAIRLEAD_SHIM_QUOTA"]) == int(found * 1024 * 1024), "for one whose page is taken away"
    limit = env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert limit == f"0={int(memory_quotas.allowed_mib(found, 1))}M", "MPS holds it too, a little later than the shim"


def test_trainings_beside_each_other_have_quotas_too(shared: World) -> None:
    begin(shared, offline(job=FIRST))
    assert quota_mib(shared, FIRST) is None, "alone it may have everything"
    shared.agent.node_gpu(GPU).running_jobs[FIRST].peak_mib[GPU] = 60_000.0
    begin(shared, offline(job=SECOND))
    left = TOTAL_MIB - 60_000.0 - 2 * CONTEXT_MIB
    assert quota_mib(shared, SECOND) == pytest.approx(left / 2)
    assert quota_mib(shared, FIRST) == pytest.approx(60_000.0 + left / 2, abs=1.0)
    first = shared.agent.node_gpu(GPU).running_jobs[FIRST]
    assert first.page is not None
    with ControlPage.open(first.page.path) as page:
        assert page.quota_bytes() > 60_000 * 1024 * 1024, "and its shim is told, while it runs"
    shared.agent.stop(SECOND, 0.1)
    shared.until(lambda: quota_mib(shared, FIRST) is None)


def test_who_was_there_first_keeps_its_peak_when_a_service_comes(shared: World) -> None:
    begin(shared, offline())
    running_job = shared.agent.node_gpu(GPU).running_jobs[TRAIN]
    running_job.peak_mib[GPU] = 100_000.0
    begin(shared, replace(service(), memory_mib=60_000.0))  # more than there is
    assert quota_mib(shared, TRAIN) == pytest.approx(105_000.0, abs=1.0)


def test_a_quota_shrinks_as_the_service_grows_and_never_under_the_peak(shared: World) -> None:
    begin(shared, offline())
    running_job = shared.agent.node_gpu(GPU).running_jobs[TRAIN]
    running_job.peak_mib[GPU] = 20_000.0
    begin(shared, service())
    before = quota_mib(shared, TRAIN)
    assert before is not None
    shared.until(lambda: shared.pid(SERVE))
    holds(shared, SERVE, 90_000.0)
    shared.until(lambda: (quota_mib(shared, TRAIN) or 0.0) < before - 10_000.0)
    holds(shared, SERVE, 2_000.0)
    after = quota_mib(shared, TRAIN)
    shared.until(lambda: shared.agent.node_gpu(GPU).accounted_s)
    assert quota_mib(shared, TRAIN) == after, "what was taken back is not handed out again while they are together"
    holds(shared, SERVE, 140_000.0)
    shared.until(lambda: (quota_mib(shared, TRAIN) or 0.0) == pytest.approx(21_000.0, abs=1.0))


@pytest.mark.parametrize(("told_mib", "peak_mib"), [(1e9, 3_000.0), (2_000.0, 2_000.0), (None, 3_000.0)])
def test_a_job_that_claims_more_than_the_driver_sees_gains_nothing_by_it(
    shared: World, told_mib: float | None, peak_mib: float
) -> None:
    """Its usage page is its own to write, and whatever it held at its peak it may keep."""
    begin(shared, offline())
    shared.until(lambda: "up" in shared.output(TRAIN))
    holds(shared, TRAIN, 3_000.0)
    node_gpu = shared.agent.node_gpu(GPU)
    shared.until(lambda: memory_quotas.used_mib(node_gpu, node_gpu.running_jobs[TRAIN]) == 3_000.0)
    with shared.agent.lock:
        memory_quotas.note_peaks(node_gpu, Survey(held_mib={} if told_mib is None else {TRAIN: {GPU: told_mib}}))
        assert node_gpu.running_jobs[TRAIN].peak_mib[GPU] == peak_mib


def test_a_restarted_agent_keeps_the_quotas(shared: World) -> None:
    begin(shared, offline(job=FIRST))
    begin(shared, offline(job=SECOND))
    before = {job: quota_mib(shared, job) for job in (FIRST, SECOND)}
    shared.agent.close()
    shared.agent = Agent(shared.folder / "run", FakeMeter(1), config=shared.config, library=shim.build())
    assert {job: quota_mib(shared, job) for job in (FIRST, SECOND)} == before


@pytest.mark.parametrize("is_declared", [True, False])
def test_one_that_gets_round_its_quota_has_to_leave_and_its_neighbour_stays(shared: World, is_declared: bool) -> None:
    begin(shared, replace(service(), memory_mib=40_000.0))
    begin(shared, replace(offline(), memory_mib=10_000.0 if is_declared else 0.0))
    shared.until(lambda: "up" in shared.output(TRAIN))
    quota = quota_mib(shared, TRAIN)
    assert quota is not None
    holds(shared, TRAIN, memory_quotas.allowed_mib(quota, 1))  # a context beside it, as everybody has
    shared.until(
        lambda: shared.agent.node_gpu(GPU).running_jobs[TRAIN].looks_over == {} and shared.happened("started")[1:]
    )
    assert not shared.happened(OVER_QUOTA)
    holds(shared, TRAIN, memory_quotas.allowed_mib(quota, 1) + 1_000.0)
    shared.until(lambda: shared.happened("ended"))
    assert shared.happened(OVER_QUOTA, "evicting", "ended") == [OVER_QUOTA, "evicting", "ended"]
    told = next(event for event in shared.agent.events if event.what == OVER_QUOTA)
    assert "its quota is" in told.about
    assert next(event.about for event in shared.agent.events if event.what == "evicting") == OVER_QUOTA
    assert set(shared.agent.node_gpu(GPU).running_jobs) == {SERVE}


def test_contexts_of_a_crowd_of_processes_must_fit_into_the_quota() -> None:
    assert memory_quotas.allowed_mib(1_000.0, 200) == memory_quotas.allowed_mib(1_000.0, memory_quotas.MOST_CONTEXTS)


def test_whoever_was_over_its_quota_has_failed_and_does_not_come_back_at_once() -> None:
    attempt = Attempt(AttemptId(1, 1), (0,), True, 1.0)
    left: dict[str, Any] = {"exit_code": 143, "reason": "signalled", "stop_requested_at_s": 1.0, "ended_at_s": 2.0}
    told = AttemptStatus(attempt.id, AttemptState.ENDED, evicted=OVER_QUOTA, **left)
    assert (judge(attempt, told).verdict, judge(attempt, told).reason) == (Verdict.FAILED, OVER_QUOTA)
    told = AttemptStatus(attempt.id, AttemptState.ENDED, evicted="overlimit", **left)
    assert judge(attempt, told).verdict is Verdict.RETURNED


def test_the_meter_tells_the_memory_of_mps_clients_too() -> None:
    clients = [SimpleNamespace(pid=4711, usedGpuMemory=3 << 30)]
    sample = NvmlMeter(FakeNvml(nvmlDeviceGetMPSComputeRunningProcesses=clients)).read()[0]
    assert {p.pid: p.memory_mib for p in sample.processes or ()}[4711] == pytest.approx(3072.0)
