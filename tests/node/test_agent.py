"""The agent with everything around it made up but the processes: a fake GPU, a fake MPS, real jobs."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError, RunError
from fairlead.node import survey
from fairlead.node.agent import Agent, AgentConfig
from fairlead.node.fake import FakeMeter
from fairlead.node.latency import Reporter
from fairlead.node.mending import MendingConfig
from fairlead.node.spec import JobSpec, Restart, Role
from fairlead.policy.guarding import EvictionConfig, GuardConfig, State
from tests.node import fake_mps

GPU, OTHER = "FAKE-GPU-0000", "FAKE-GPU-0001"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
QUIET = "import time; print('up', flush=True); time.sleep(60)"
QUICK = EvictionConfig(freeze_s=0.1, term_grace_s=0.3, client_grace_s=3.0, kill_grace_s=2.0, backoff_s=0.1)
CONFIG = GuardConfig(eviction=QUICK)


class World:
    """An agent on made-up hardware, driven by the test's own hand."""

    def __init__(
        self, folder: Path, guard: GuardConfig = CONFIG, mending: MendingConfig | None = None, gpus: int = 1
    ) -> None:
        self.folder = folder
        self.meter = FakeMeter(gpus)
        self.binary = fake_mps.install(folder / "bin")
        self.config = AgentConfig(guard, mending or MendingConfig(), True, str(self.binary), 2.0)
        self.agent = Agent(folder / "run", self.meter, config=self.config)

    def until(self, true: Callable[[], object], within_s: float = 10.0) -> None:
        until_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < until_s, [(e.what, e.job_id, e.about) for e in self.agent.events]
            self.agent.tick()
            time.sleep(0.02)

    def happened(self, *what: str) -> list[str]:
        return [event.what for event in self.agent.events if event.what in what]

    def output(self, job_id: str, attempt: int = 0) -> str:
        return self.agent._tenants.launcher.status(job_id, attempt).stdout.read_text()

    def connect(self, *jobs: str) -> int:
        """A server with these jobs' main processes as its clients."""
        mps = self.agent.seat(GPU).mps
        assert mps is not None
        servers = mps.servers() or (int(mps.command("start_server")),)
        pids = [self.pid(job) for job in jobs]
        fake_mps.change(mps.pipe_folder, servers[0], clients=pids)
        return servers[0]

    def pid(self, job: str) -> int:
        found = self.agent._tenants.launcher.status(*self.agent.seat(GPU).tenants[job].key).pid
        assert found is not None
        return found

    def end(self) -> None:
        for status in self.agent._tenants.launcher.jobs():
            self.agent._tenants.launcher.kill(status.job_id, status.attempt)
        mps = self.agent.seat(GPU).mps
        assert mps is not None
        self.agent.close()
        mps.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ag") as made:  # short: sockets have short paths
        yield Path(made)


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    yield made
    made.end()


def offline(code: str = QUIET, job_id: str = "train", restart: Restart = Restart.NEVER) -> JobSpec:
    return JobSpec(job_id, (sys.executable, "-c", code), (GPU,), Role.OFFLINE, restart)


def service(code: str = QUIET, restart: Restart = Restart.ALWAYS, slo_s: float | None = 0.1) -> JobSpec:
    return JobSpec("serve", (sys.executable, "-c", code), (GPU,), Role.SERVICE, restart, slo_s=slo_s)


def test_a_stubborn_job_leaves_in_the_safe_order(world: World) -> None:
    world.agent.start(offline(STUBBORN), even_if_not_healthy=True)
    world.until(lambda: "up" in world.output("train"))
    server = world.connect("train")
    world.agent.evict("train", "for the test")
    world.until(lambda: world.happened("ended"))
    assert world.happened("freeze", "sigterm", "terminate-client", "sigkill", "ended") == [
        "freeze", "sigterm", "terminate-client", "sigkill", "ended",
    ]  # fmt: skip
    mps = world.agent.seat(GPU).mps
    assert mps is not None
    assert mps.clients(server) == (), "MPS had let go of it before it was killed"
    status = world.agent._tenants.launcher.status("train", 0)
    assert (status.signal, status.stop_requested) == (signal.SIGKILL, True)


def test_a_polite_job_is_never_killed(world: World) -> None:
    world.agent.start(offline(), even_if_not_healthy=True)
    world.until(lambda: "up" in world.output("train"))
    world.agent.evict("train", "for the test")
    world.until(lambda: world.happened("ended"))
    assert world.happened("sigterm", "terminate-client", "sigkill") == ["sigterm"]


def test_a_gpu_that_is_not_healthy_takes_no_offline_job(world: World) -> None:
    with pytest.raises(RunError, match="init and takes no offline job"):
        world.agent.start(offline())
    world.agent.start(service())
    with pytest.raises(InputError, match="already"):
        world.agent.start(service())
    with pytest.raises(InputError, match="no GPU"):
        world.agent.start(JobSpec("other", ("true",), ("GPU-none",)))


def test_a_job_on_two_gpus_sits_on_both_without_mps_and_leaves_both(folder: Path) -> None:
    world = World(folder, gpus=2)
    try:
        has_mps = "'CUDA_MPS_PIPE_DIRECTORY' in os.environ"
        code = f"import os, time; print(os.environ['FAIRLEAD_GPUS'], {has_mps}, flush=True); time.sleep(60)"
        world.agent.start(replace(offline(code), gpus=(GPU, OTHER)), even_if_not_healthy=True)
        world.until(lambda: f"{GPU},{OTHER} False" in world.output("train"))
        seats = world.agent.seats
        assert [set(seat.tenants) for seat in seats] == [{"train"}, {"train"}]
        world.until(lambda: all(seat.sample and seat.sample.utilisation_frac == 1.0 for seat in seats))
        world.agent.evict("train", "for the test")
        world.until(lambda: world.happened("ended"))
        assert world.happened("sigterm", "ended") == ["sigterm", "ended"]
        assert [set(seat.tenants) for seat in seats] == [set(), set()]
        kept = world.agent.energy["train", 0].known_mj
        assert kept > 0
        assert sum(seat.energy.metered.known_mj for seat in seats) == kept + sum(s.energy.idle.known_mj for s in seats)
    finally:
        world.end()


def test_a_job_on_a_gpu_that_is_not_here_or_twice_on_one_is_refused(world: World) -> None:
    with pytest.raises(InputError, match="no GPU FAKE-GPU-0001"):
        world.agent.start(replace(offline(), gpus=(GPU, OTHER)), even_if_not_healthy=True)
    with pytest.raises(InputError, match="each once"):
        replace(offline(), gpus=(GPU, GPU))


def test_it_is_in_a_hurry_only_where_a_service_has_a_neighbour_or_somebody_leaves(world: World) -> None:
    rate, guard = world.config.guard.rate, world.config.guard
    assert guard.sample_s < world.agent._period_s() < guard.gap_s
    world.agent.start(service())
    assert world.agent._period_s() == guard.sample_s
    world.agent.start(offline(), even_if_not_healthy=True)
    assert world.agent._period_s() == rate.period_s
    world.agent.stop("serve")
    world.until(lambda: "serve" not in world.agent.seat(GPU).tenants)
    assert world.agent._period_s() == guard.sample_s
    world.agent.stop("train")
    assert world.agent._period_s() == rate.period_s


def test_a_job_of_one_name_is_started_once(world: World) -> None:
    for _ in range(3):
        world.agent.start_once(offline("print('once', flush=True)"))
    world.until(lambda: world.happened("ended"))
    world.agent.start_once(offline("print('once', flush=True)"))
    assert world.output("train") == "once\n"
    assert not world.agent.holds("train")


def test_a_burst_brings_the_rate_to_the_floor_within_a_second_and_it_recovers(world: World) -> None:
    world.agent.start(service())
    keeper = world.agent.seat(GPU).keeper
    reporter = Reporter(str(world.folder / "run" / "latency.sock"), "serve")

    def say(latency_s: float, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            assert reporter.report(latency_s)
            world.agent.tick()
            time.sleep(world.config.guard.rate.period_s)

    keeper.rate.rate_frac = 1.0
    say(0.05, 0.5)
    assert keeper.rate.rate_frac == 1.0, "half of the SLO is no reason"
    say(0.2, 1.0)
    assert keeper.rate.rate_frac == world.config.guard.rate.floor_frac
    say(0.05, 1.5)
    assert keeper.rate.rate_frac > world.config.guard.rate.floor_frac
    reporter.close()


def test_an_slo_that_stays_broken_evicts_the_offline_job(folder: Path) -> None:
    quick = GuardConfig(sample_s=0.2, window_s=1.0, gap_s=1.0, slo_windows=2, eviction=QUICK)
    world = World(folder, quick)
    try:
        world.agent.start(service())
        world.agent.start(offline(), even_if_not_healthy=True)
        reporter = Reporter(str(folder / "run" / "latency.sock"), "serve")
        world.until(lambda: (reporter.report(0.2), world.happened("ended"))[1])
        assert world.agent.seat(GPU).keeper.guard.state is State.OVERLIMIT
        assert world.happened("sigkill") == []
        assert "serve" in world.agent.seat(GPU).tenants
        reporter.close()
    finally:
        world.end()


def test_after_a_fault_mps_and_the_service_come_back_by_themselves(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline(), even_if_not_healthy=True)
    world.until(lambda: "up" in world.output("serve") and "up" in world.output("train"))
    server = world.connect("serve", "train")
    mps = world.agent.seat(GPU).mps
    assert mps is not None
    before, first = mps.status().pid, world.pid("serve")
    fake_mps.change(mps.pipe_folder, server, state="FAULT")
    world.until(lambda: world.happened("mps-restarted"))
    world.until(lambda: "serve" in world.agent.seat(GPU).tenants)
    assert mps.status().pid != before
    assert world.pid("serve") != first
    assert "train" not in world.agent.seat(GPU).tenants, "it is not the agent's to bring back"
    assert world.agent.seat(GPU).keeper.guard.state is State.INIT


def test_a_daemon_that_died_is_started_again(world: World) -> None:
    world.agent.start(service())
    world.until(lambda: "up" in world.output("serve"))
    world.connect("serve")
    mps = world.agent.seat(GPU).mps
    assert mps is not None
    mps.kill()
    world.until(lambda: world.happened("mps-restarted"))
    assert mps.status().is_running


def test_a_service_that_fails_alone_is_restarted_alone(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline(), even_if_not_healthy=True)
    world.until(lambda: "up" in world.output("serve"))
    world.connect("serve", "train")
    time.sleep(1.1)
    world.agent.tick()
    world.until(lambda: world.agent.seat(GPU).mending._services["serve"].client_s is not None)
    world.agent._tenants.launcher.kill("serve", 0)
    world.until(lambda: world.happened("started")[2:])
    assert world.happened("mps-restart") == []
    assert "train" in world.agent.seat(GPU).tenants


def test_a_service_that_does_not_come_up_has_mps_restarted(folder: Path) -> None:
    world = World(folder, mending=MendingConfig(ready_s=1.0))
    try:
        world.agent.start(service())
        world.until(lambda: world.happened("mps-restart"))
        assert "no client of MPS" in next(e.about for e in world.agent.events if e.what == "mps-restart")
    finally:
        world.end()


def test_joules_of_all_jobs_add_up_to_the_counter(world: World) -> None:
    world.agent.start(replace(service(), activity_frac=0.2))
    world.agent.start(replace(offline(), activity_frac=0.6), even_if_not_healthy=True)
    energy = world.agent.seat(GPU).energy
    alone_mj = energy.jobs["serve"].known_mj
    world.until(lambda: "train" in energy.jobs and energy.jobs["train"].known_mj > 200_000)
    world.agent.evict("train", "for the test")
    world.until(lambda: world.happened("ended"))
    kept = world.agent.energy["train", 0]
    assert energy.metered.known_mj == kept.known_mj + energy.idle.known_mj + energy.jobs["serve"].known_mj
    assert kept.known_mj > 1.5 * (energy.jobs["serve"].known_mj - alone_mj)


def test_a_restarted_agent_takes_its_jobs_over(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline(), even_if_not_healthy=True)
    world.until(lambda: "up" in world.output("train"))
    pid = world.pid("train")
    world.agent.close()
    world.agent = Agent(world.folder / "run", FakeMeter(1), config=world.config)
    assert set(world.agent.seat(GPU).tenants) == {"serve", "train"}
    assert world.pid("train") == pid
    world.agent.stop("train")
    world.until(lambda: world.happened("ended"))


def test_an_evicted_job_that_may_come_back_does_when_the_gpu_is_healthy(folder: Path) -> None:
    healthy_soon = GuardConfig(sample_s=0.2, window_s=1.0, gap_s=1.0, init_s=1.0, eviction=QUICK)
    world = World(folder, healthy_soon)
    try:
        world.agent.start(offline(restart=Restart.ON_FAULT), even_if_not_healthy=True)
        world.until(lambda: "up" in world.output("train"))
        world.agent.evict("train", "for the test")
        world.until(lambda: world.happened("ended"))
        world.until(lambda: world.happened("started")[1:])
        assert world.agent.seat(GPU).tenants["train"].attempt == 1
        world.agent.stop("train")
        world.until(lambda: world.happened("ended")[1:])
        assert not world.agent.holds("train")
    finally:
        world.end()


def test_what_goes_wrong_once_does_not_stop_the_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.agent.start(service())
    take, failures = survey.take, iter([OSError("the disk is full")])

    def failing(*about: Any) -> survey.Survey:
        for error in failures:
            raise error
        return take(*about)

    monkeypatch.setattr(survey, "take", failing)
    stopping = threading.Event()
    thread = threading.Thread(target=world.agent.run, args=(stopping,))
    thread.start()
    until_s = time.monotonic() + 10.0
    while not world.happened("agent-error") or world.agent.seat(GPU).accounted_s == float("-inf"):
        assert time.monotonic() < until_s, world.agent.events
        time.sleep(0.02)
    stopping.set()
    thread.join()


@pytest.mark.parametrize(("uid", "is_for_all"), [(0, True), (1000, False)])
def test_under_root_one_mps_server_is_for_the_jobs_of_all_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, is_for_all: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    world = World(tmp_path)
    try:
        mps = world.agent.seat(GPU).mps
        assert mps is not None
        assert mps.multiuser is is_for_all
    finally:
        world.agent.close()
