"""The agent with everything around it made up but the processes: a fake GPU, a fake MPS, real jobs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.job.service import Reporter
from fairlead.node.agent import Agent
from fairlead.node.agent_config import AgentConfig
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.mps import survey
from fairlead.node.mps.recovery import RecoveryConfig
from fairlead.node.order import Order
from fairlead.policy.guarding import EvictionConfig, GuardConfig, State
from tests.node.mps import fake_mps
from tests.patience import PATIENCE_S

GPU, OTHER = "FAKE-GPU-0000", "FAKE-GPU-0001"
SERVE, TRAIN = AttemptId(1, 1), AttemptId(2, 1)
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
QUIET = "import time; print('up', flush=True); time.sleep(60)"
QUICK = EvictionConfig(freeze_s=0.1, term_grace_s=0.3, client_grace_s=3.0, kill_grace_s=2.0, backoff_s=0.1)
CONFIG = GuardConfig(eviction=QUICK)


class World:
    """An agent on made-up hardware, driven by the test's own hand."""

    def __init__(
        self, folder: Path, guard: GuardConfig = CONFIG, mps_recovery: RecoveryConfig | None = None, gpus: int = 1,
        library: Path | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.meter = FakeMeter(gpus)
        self.binary = fake_mps.install(folder / "bin")
        self.config = AgentConfig(guard, mps_recovery or RecoveryConfig(), True, str(self.binary), 2.0)
        self.agent = Agent(folder / "run", self.meter, config=self.config, library=library)

    def until(self, true: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        until_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < until_s, [(e.what, e.attempt, e.about) for e in self.agent.events]
            self.agent.tick()
            time.sleep(0.02)

    def happened(self, *what: str) -> list[str]:
        return [event.what for event in self.agent.events if event.what in what]

    def output(self, attempt: AttemptId, launch: int = 0) -> str:
        return self.agent._running_jobs.launcher.status(LaunchId(attempt, launch)).stdout.read_text()

    def connect(self, *jobs: AttemptId) -> int:
        """A server with these jobs' main processes as its clients."""
        mps = self.agent.node_gpu(GPU).mps
        assert mps is not None
        servers = mps.servers() or (int(mps.command("start_server")),)
        pids = [self.pid(job) for job in jobs]
        fake_mps.change(mps.pipe_folder, servers[0], clients=pids)
        return servers[0]

    def pid(self, job: AttemptId) -> int:
        found = self.agent._running_jobs.launcher.status(self.agent.node_gpu(GPU).running_jobs[job].launch).pid
        assert found is not None
        return found

    def reporter(self, job: AttemptId) -> Reporter:
        """As the job itself has it."""
        secret = self.agent._running_jobs.launcher.secret(self.agent.node_gpu(GPU).running_jobs[job].launch)
        return Reporter(str(self.folder / "run" / "latency.sock"), secret)

    def end(self) -> None:
        for launch in self.agent._running_jobs.launcher.launches():
            self.agent._running_jobs.launcher.kill(launch)
        mps = self.agent.node_gpu(GPU).mps
        assert mps is not None
        self.agent.close()
        mps.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: sockets have short paths. The supervisor of a job that was killed may still write its last word there.
    with tempfile.TemporaryDirectory(prefix="ag", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    yield made
    made.end()


def offline(code: str = QUIET, job: AttemptId = TRAIN) -> Order:
    return Order(job, (sys.executable, "-c", code), shared=True, gpus=(GPU,), grace_s=QUICK.term_grace_s)


def service(code: str = QUIET, slo_s: float | None = 0.1) -> Order:
    return Order(SERVE, (sys.executable, "-c", code), "service", shared=True, slo_s=slo_s, gpus=(GPU,))


def test_a_stubborn_job_leaves_in_the_safe_order(world: World) -> None:
    world.agent.start(offline(STUBBORN))
    world.until(lambda: "up" in world.output(TRAIN))
    server = world.connect(TRAIN)
    world.agent.evict(TRAIN, "for the test")
    world.until(lambda: world.happened("ended"))
    assert world.happened("freeze", "sigterm", "terminate-client", "sigkill", "ended") == [
        "freeze", "sigterm", "terminate-client", "sigkill", "ended",
    ]  # fmt: skip
    mps = world.agent.node_gpu(GPU).mps
    assert mps is not None
    assert mps.clients(server) == (), "MPS had let go of it before it was killed"
    status = world.agent._running_jobs.launcher.status(LaunchId(TRAIN))
    assert (status.signal, status.was_stopped) == (signal.SIGKILL, True)


def test_a_polite_job_is_never_killed(world: World) -> None:
    world.agent.start(offline())
    world.until(lambda: "up" in world.output(TRAIN))
    world.agent.evict(TRAIN, "for the test")
    world.until(lambda: world.happened("ended"))
    assert world.happened("sigterm", "terminate-client", "sigkill") == ["sigterm"]


def test_a_job_on_two_gpus_sits_on_both_without_mps_and_leaves_both(folder: Path) -> None:
    world = World(folder, gpus=2)
    try:
        has_mps = "'CUDA_MPS_PIPE_DIRECTORY' in os.environ"
        code = f"import os, time; print(os.environ['FAIRLEAD_GPUS'], {has_mps}, flush=True); time.sleep(60)"
        world.agent.start(replace(offline(code), gpus=(GPU, OTHER)))
        world.until(lambda: f"{GPU},{OTHER} False" in world.output(TRAIN))
        node_gpus = world.agent.node_gpus
        assert [set(node_gpu.running_jobs) for node_gpu in node_gpus] == [{TRAIN}, {TRAIN}]
        world.until(lambda: all(node_gpu.sample and node_gpu.sample.utilisation_frac == 1.0 for node_gpu in node_gpus))
        world.agent.evict(TRAIN, "for the test")
        world.until(lambda: world.happened("ended"))
        assert world.happened("sigterm", "ended") == ["sigterm", "ended"]
        assert [set(node_gpu.running_jobs) for node_gpu in node_gpus] == [set(), set()]
        kept = world.agent.energy[LaunchId(TRAIN)].known_mj
        assert kept > 0
        assert sum(node_gpu.energy.metered.known_mj for node_gpu in node_gpus) == kept + sum(
            s.energy.idle.known_mj for s in node_gpus
        )
    finally:
        world.end()


def test_a_job_on_a_gpu_that_is_not_here_or_twice_on_one_is_refused(world: World) -> None:
    with pytest.raises(InputError, match="no GPU FAKE-GPU-0001"):
        world.agent.start(replace(offline(), gpus=(GPU, OTHER)))
    with pytest.raises(InputError, match="each once"):
        replace(offline(), gpus=(GPU, GPU))


def test_it_is_in_a_hurry_only_where_a_service_has_a_neighbour_or_somebody_leaves(world: World) -> None:
    rate, guard = world.config.guard.rate, world.config.guard
    assert guard.sample_s < world.agent._period_s() < guard.gap_s
    world.agent.start(service())
    assert world.agent._period_s() == guard.sample_s
    world.agent.start(offline())
    assert world.agent._period_s() == rate.period_s
    world.agent.stop(SERVE)
    world.until(lambda: SERVE not in world.agent.node_gpu(GPU).running_jobs)
    assert world.agent._period_s() == guard.sample_s
    world.agent.stop(TRAIN)
    assert world.agent._period_s() == rate.period_s


def test_an_attempt_is_started_once(world: World) -> None:
    for _ in range(3):
        world.agent.start(offline("print('once', flush=True)"))
    world.until(lambda: world.happened("ended"))
    world.agent.start(offline("print('once', flush=True)"))
    assert world.output(TRAIN) == "once\n"
    assert not world.agent.holds(TRAIN)


def test_a_burst_brings_the_rate_to_the_floor_and_it_recovers(world: World) -> None:
    """How soon, in periods, is the keeper's own test; here the reports are real, and so are their ways."""
    world.agent.start(service())
    guarded = world.agent.node_gpu(GPU).guarded
    reporter = world.reporter(SERVE)

    def say(latency_s: float, until: Callable[[], object]) -> None:
        world.until(lambda: reporter.report(latency_s) and until())

    floor_frac, ticks = world.config.guard.rate.floor_frac, itertools.count()
    guarded.rate.rate_frac = 1.0
    say(0.05, lambda: next(ticks) == 5)
    assert guarded.rate.rate_frac == 1.0, "half of the SLO is no reason"
    say(0.2, lambda: guarded.rate.rate_frac == floor_frac)
    say(0.05, lambda: guarded.rate.rate_frac > floor_frac)
    reporter.close()


def test_an_slo_that_stays_broken_evicts_the_offline_job(folder: Path) -> None:
    quick = GuardConfig(sample_s=0.2, window_s=1.0, gap_s=1.0, slo_windows=2, eviction=QUICK)
    world = World(folder, quick)
    try:
        world.agent.start(service())
        world.agent.start(offline())
        reporter = world.reporter(SERVE)
        world.until(lambda: (reporter.report(0.2), world.happened("ended"))[1])
        assert world.agent.node_gpu(GPU).guarded.guard.state is State.OVERLIMIT
        assert world.happened("sigkill") == []
        assert SERVE in world.agent.node_gpu(GPU).running_jobs
        reporter.close()
    finally:
        world.end()


def test_nobody_but_the_service_can_speak_for_it(folder: Path) -> None:
    quick = GuardConfig(sample_s=0.2, window_s=1.0, gap_s=1.0, slo_windows=2, eviction=QUICK)
    world = World(folder, quick)
    try:
        world.agent.start(service())
        world.agent.start(offline())
        guarded, at = world.agent.node_gpu(GPU).guarded, str(folder / "run" / "latency.sock")
        neighbour = world.reporter(TRAIN)  # with a key of its own, which is no service's
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as anybody:
            for _ in range(100):
                neighbour.report(9.0)
                for forged in (
                    {"service": str(SERVE)},
                    {"key": str(SERVE)},
                    {"key": ""},
                    {"service": str(SERVE), "key": None},
                ):
                    anybody.sendto(json.dumps({**forged, "latency_s": 9.0}).encode(), at)
        mine = world.reporter(SERVE)
        world.until(lambda: mine.report(0.01))  # once there is room for it again
        world.until(lambda: guarded.latency_s(time.monotonic()) is not None)
        assert guarded.latency_s(time.monotonic()) == 0.01
        for one in (neighbour, mine):
            one.close()
        assert world.happened("evicting") == []
    finally:
        world.end()


def test_workers_that_a_service_forks_and_those_that_an_agent_takes_over_are_heard(folder: Path) -> None:
    program = """
import os, time
from fairlead import job
os.fork(); os.setsid() if os.getpid() % 2 else None
while True:
    job.latency(0.03)
    time.sleep(0.01)
"""
    world = World(folder)
    try:
        world.agent.start(service(program))
        world.until(lambda: world.agent.node_gpu(GPU).guarded.latency_s(time.monotonic()) == pytest.approx(0.03))
        world.agent.close()
        world.agent = Agent(folder / "run", world.meter, config=world.config)
        world.until(lambda: world.agent.node_gpu(GPU).guarded.latency_s(time.monotonic()) == pytest.approx(0.03))
    finally:
        world.end()


def test_after_a_fault_mps_and_the_service_come_back_by_themselves(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline())
    world.until(lambda: "up" in world.output(SERVE) and "up" in world.output(TRAIN))
    server = world.connect(SERVE, TRAIN)
    mps = world.agent.node_gpu(GPU).mps
    assert mps is not None
    before, first = mps.status().pid, world.pid(SERVE)
    fake_mps.change(mps.pipe_folder, server, state="FAULT")
    world.until(lambda: world.happened("mps-restarted"))
    world.until(lambda: SERVE in world.agent.node_gpu(GPU).running_jobs)
    assert mps.status().pid != before
    assert world.pid(SERVE) != first
    assert TRAIN not in world.agent.node_gpu(GPU).running_jobs, "it is not the agent's to bring back"
    assert world.agent.node_gpu(GPU).guarded.guard.state is State.INIT


def test_a_daemon_that_died_is_started_again(world: World) -> None:
    world.agent.start(service())
    world.until(lambda: "up" in world.output(SERVE))
    world.connect(SERVE)
    mps = world.agent.node_gpu(GPU).mps
    assert mps is not None
    mps.kill()
    world.until(lambda: world.happened("mps-restarted"))
    assert mps.status().is_running


def test_a_service_that_fails_alone_is_restarted_alone(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline())
    world.until(lambda: "up" in world.output(SERVE))
    world.connect(SERVE, TRAIN)
    time.sleep(1.1)
    world.agent.tick()
    world.until(lambda: world.agent.node_gpu(GPU).mps_recovery._services[SERVE].client_s is not None)
    world.agent._running_jobs.launcher.kill(LaunchId(SERVE))
    world.until(lambda: world.happened("started")[2:])
    assert world.happened("mps-restart") == []
    assert TRAIN in world.agent.node_gpu(GPU).running_jobs


def test_a_service_that_does_not_come_up_has_mps_restarted(folder: Path) -> None:
    world = World(folder, mps_recovery=RecoveryConfig(ready_s=1.0))
    try:
        world.agent.start(service())
        world.until(lambda: world.happened("mps-restart"))
        assert "no client of MPS" in next(e.about for e in world.agent.events if e.what == "mps-restart")
    finally:
        world.end()


def test_joules_of_all_jobs_add_up_to_the_counter(world: World) -> None:
    world.agent.start(replace(service(), activity_frac=0.2))
    world.agent.start(replace(offline(), activity_frac=0.6))
    energy = world.agent.node_gpu(GPU).energy
    alone_mj = energy.jobs[SERVE].known_mj
    world.until(lambda: TRAIN in energy.jobs and energy.jobs[TRAIN].known_mj > 200_000)
    world.agent.evict(TRAIN, "for the test")
    world.until(lambda: world.happened("ended"))
    kept = world.agent.energy[LaunchId(TRAIN)]
    assert energy.metered.known_mj == kept.known_mj + energy.idle.known_mj + energy.jobs[SERVE].known_mj
    assert kept.known_mj > 1.5 * (energy.jobs[SERVE].known_mj - alone_mj)


def test_a_restarted_agent_takes_its_jobs_over(world: World) -> None:
    world.agent.start(service())
    world.agent.start(offline())
    world.until(lambda: "up" in world.output(TRAIN))
    pid = world.pid(TRAIN)
    world.agent.close()
    world.agent = Agent(world.folder / "run", FakeMeter(1), config=world.config)
    assert set(world.agent.node_gpu(GPU).running_jobs) == {SERVE, TRAIN}
    assert world.pid(TRAIN) == pid
    world.agent.stop(TRAIN)
    world.until(lambda: world.happened("ended"))


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
    until_s = time.monotonic() + PATIENCE_S
    while not world.happened("agent-error") or world.agent.node_gpu(GPU).accounted_s == float("-inf"):
        assert time.monotonic() < until_s, world.agent.events
        time.sleep(0.02)
    stopping.set()
    thread.join()


@pytest.mark.parametrize(("uid", "is_for_all"), [(0, True), (1000, False)])
def test_under_root_one_mps_server_is_for_the_jobs_of_all_users(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uid: int, is_for_all: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    world = World(folder)
    try:
        mps = world.agent.node_gpu(GPU).mps
        assert mps is not None
        assert mps.multiuser is is_for_all
    finally:
        world.agent.close()


def test_a_gpu_that_its_guard_has_disabled_is_enabled_by_hand(world: World) -> None:
    guard = world.agent.node_gpu(GPU).guarded.guard
    guard.disable(time.monotonic(), "for the test")
    assert guard.state is State.DISABLED
    assert world.agent.enable(GPU)
    assert guard.state is State.INIT
    assert not world.agent.enable(GPU)
    assert [event.about for event in world.agent.events if event.what == "state"] == [
        "disabled to init: enabled by the operator"
    ]
    saved = json.loads((world.folder / "run" / "guards.json").read_text())
    assert saved[GPU]["state"] == "init"
    with pytest.raises(InputError, match="no GPU"):
        world.agent.enable("GPU-elsewhere")


def obeyed(world: World) -> set[str]:
    page = world.agent.node_gpu(GPU).running_jobs[TRAIN].page
    assert page is not None
    return {name.value.decode() for name in page._layout.services} - {""}


def test_an_offline_job_obeys_the_services_on_its_gpu_while_they_are_there(folder: Path) -> None:
    world = World(folder, library=folder / "shim.so")  # nothing to preload: the jobs here launch nothing
    try:
        world.agent.start(offline())
        world.until(lambda: "up" in world.output(TRAIN))
        assert obeyed(world) == set()
        world.agent.start(service("import os; print(os.environ['FAIRLEAD_SHIM_BUSY'], flush=True); " + QUIET))
        world.until(lambda: "up" in world.output(SERVE))
        busy = Path(world.output(SERVE).split()[0])
        world.until(lambda: obeyed(world) == {busy.name})
        world.agent.close()
        world.agent = Agent(world.folder / "run", FakeMeter(1), config=world.config, library=folder / "shim.so")
        world.agent.tick()
        assert obeyed(world) == {busy.name}, "an agent that comes after one that crashed goes on"
        world.agent.stop(SERVE)
        world.until(lambda: SERVE not in world.agent.node_gpu(GPU).running_jobs)
        world.agent.tick()
        assert (obeyed(world), busy.exists()) == (set(), False)
    finally:
        world.end()
