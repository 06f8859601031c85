"""Starts take as long as they take, and nobody waits for those of others; restarts do not look at what is only kept."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import RunError
from fairlead.node import running_jobs
from fairlead.node.agent_config import AgentConfig
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.host import Host
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchRules, LaunchState
from fairlead.node.process.launcher import Launcher
from tests.node.hung import hung_mount
from tests.patience import PATIENCE_S

GPUS = ("FAKE-GPU-0000", "FAKE-GPU-0001")


class Node:
    """A host whose loop runs in a thread."""

    def __init__(self, folder: Path, start_s: float = 60.0) -> None:
        self.folder = folder
        config = AgentConfig(uses_mps=False, rules=LaunchRules(start_s=start_s))
        self.host = Host(folder, FakeMeter(2), config=config)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.host.run, args=(self._stopping,))
        self._thread.start()

    def order(
        self, job_id: int, gpu: int = 0, cwd: Path = Path("/"), program: str = "import time; time.sleep(60)"
    ) -> Order:
        return Order(AttemptId(job_id, 1), (sys.executable, "-c", program), cwd=str(cwd), gpus=(GPUS[gpu],))

    def attempt(self, job_id: int) -> dict[str, Any]:
        return next((one for one in self.host.status()["attempts"] if one["id"] == f"{job_id}.1"), {"state": "unknown"})

    def until(self, true: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        until_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < until_s, self.host.status()
            time.sleep(0.01)

    def close(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self.host.wake_up()
            self._thread.join()
            self.host.close()

    def end(self) -> None:
        self.close()
        launcher = Launcher(self.folder / "jobs")
        for launch in [one for one in launcher.launches() if one.attempt.job_id in (1, 2)]:
            launcher.kill(launch)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="st", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def one(**about: Any) -> Node:
        made.append(Node(folder / "node", **about))
        return made[-1]

    yield one
    for node in made:
        node.end()


def test_a_folder_that_does_not_answer_holds_up_nobody_else_and_can_be_cancelled(
    make: Callable[..., Node], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_jobs, "_EXECUTE_S", 0.2)
    node = make()
    with hung_mount(folder / "hung") as hung:
        node.host.start(node.order(1, cwd=hung))
        assert node.attempt(1)["state"] == "starting"
        node.host.start(node.order(2, gpu=1, program="print('ran')"))
        node.until(lambda: node.attempt(2)["state"] == "ended")
        assert node.attempt(1)["state"] == "starting"
        node.host.stop(AttemptId(1, 1), 0.0)
        node.until(lambda: node.attempt(1)["state"] == "ended")
        assert node.attempt(1)["reason"] == "signalled"


def test_a_folder_that_never_answers_is_a_failure_that_says_so(
    make: Callable[..., Node], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_jobs, "_EXECUTE_S", 0.1)
    node = make(start_s=0.5)
    with hung_mount(folder / "hung") as hung:
        node.host.start(node.order(1, cwd=hung))
        node.until(lambda: node.attempt(1)["state"] == "ended")
    found = node.attempt(1)
    assert (found["exit_code"], found["reason"]) == (126, "start-timed-out")
    assert str(hung) in found["detail"]
    assert "0.5 s" in found["detail"]


def test_while_one_is_being_started_others_are_and_it_can_be_cancelled_itself(
    make: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the disk, MPS or a directory service take over it."""
    reached, go_on = threading.Event(), threading.Event()
    true = running_jobs.RunningJobs.start

    def slow(
        self: running_jobs.RunningJobs, mps: Any, running_job: running_jobs.RunningJob, most_mib: float | None = None
    ) -> None:
        if running_job.id == AttemptId(1, 1):
            reached.set()
            assert go_on.wait(PATIENCE_S)
        true(self, mps, running_job, most_mib)

    monkeypatch.setattr(running_jobs.RunningJobs, "start", slow)
    node = make()
    thread = threading.Thread(target=node.host.start, args=(node.order(1),))
    thread.start()
    try:
        assert reached.wait(PATIENCE_S)
        node.host.start(node.order(1))  # told again meanwhile: once is enough
        node.host.start(node.order(2, gpu=1))
        assert node.attempt(2)["state"] == "running"
        assert node.attempt(1)["state"] == "starting", "nobody else may take its GPU"
        node.host.stop(AttemptId(1, 1), 0.0)
        assert node.attempt(1)["state"] == "starting"
        assert not node.host.status()["barred"]
        with pytest.raises(RunError, match="not over"):
            node.host.forget(AttemptId(1, 1))
    finally:
        go_on.set()
        thread.join()
    node.until(lambda: node.attempt(1)["state"] == "ended")
    assert node.attempt(1)["stop_requested_at_s"] is not None
    assert node.attempt(2)["state"] == "running"


def test_one_that_is_stopped_just_before_it_starts_is_not_started_behind_the_stop(
    make: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is let go of between the two halves of a start: whoever comes in between finds it there."""
    node = make()
    true, began = node.host._launch, []

    def stopped_first(running_job: running_jobs.RunningJob) -> None:
        node.host.stop(AttemptId(1, 1), 0.0)
        began.append(node.host.status())
        true(running_job)

    monkeypatch.setattr(node.host, "_launch", stopped_first)
    node.host.start(node.order(1))
    assert [one["state"] for one in began[0]["attempts"]] == ["starting"]
    node.until(lambda: node.attempt(1)["state"] == "ended")
    assert node.attempt(1)["stopped_by"] == "fairlead"


def test_a_signal_between_the_fork_and_the_command_is_not_lost(folder: Path) -> None:
    """A stop that is sent as soon as the process is known ends it, and is not taken by the handlers of its parent."""
    launcher, one = Launcher(folder / "jobs"), LaunchId(AttemptId(1, 1))
    launcher.start(one, Order(one.attempt, ("true",)))
    launcher.wait(one, PATIENCE_S)
    made = folder / "jobs" / "1.1@0"
    for name in ("running.json", "exit.json", "executed"):
        (made / name).unlink(missing_ok=True)
    program = f"""
import os, signal
from fairlead.node.process import supervisor
true = supervisor.write_json
def write(path, record):
    true(path, record)
    if path.endswith("running.json"):
        os.kill(record["pid"], signal.SIGTERM)
supervisor.write_json = write
supervisor.supervise({str(made)!r}, -1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
    assert json.loads((made / "exit.json").read_text())["signal"] == signal.SIGTERM


_looked_at: list[str] | None = None


def _watch(event: str, about: tuple[Any, ...]) -> None:
    if _looked_at is not None and event in ("open", "os.listdir", "os.scandir") and isinstance(about[0], str):
        _looked_at.append(about[0])


sys.addaudithook(_watch)  # for good, but it costs nothing while nobody counts


def kept(folder: Path, number: int) -> None:
    """Jobs that ended long ago, as they are kept for their logs."""
    for i in range(number):
        one = folder / "jobs" / f"{1000 + i}.1@0"
        one.mkdir(parents=True)
        (one / "job.json").write_text(json.dumps({"order": {}, "notes": [], "cgroup": None}))
        (one / "exit.json").write_text(json.dumps({"exit_code": 0, "reason": "exited", "is_swept": True}))


def looked_at_by_a_restart(folder: Path) -> list[str]:
    global _looked_at
    _looked_at = []
    try:
        host = Host(folder, FakeMeter(2), config=AgentConfig(uses_mps=False))
        host.close()
        return [path for path in _looked_at if path.startswith(str(folder))]
    finally:
        _looked_at = None


def test_a_restart_looks_at_the_jobs_that_run_and_at_none_that_are_kept(
    make: Callable[..., Node], folder: Path
) -> None:
    node = make()
    node.host.start(node.order(1))
    node.close()
    kept(folder / "node", 30)
    few = looked_at_by_a_restart(folder / "node")
    for i in range(1000):
        (folder / "node" / "jobs" / f"{100_000 + i}.1@0").mkdir()
    many = looked_at_by_a_restart(folder / "node")
    assert any("1.1@0" in path for path in few), "the one that runs is taken over"
    assert not [path for path in many if ("/jobs/1" in path and "/jobs/1.1@0" not in path) or path.endswith("/jobs")]
    assert len(many) == len(few)


def test_a_status_of_a_job_does_not_look_at_other_jobs_either(folder: Path) -> None:
    global _looked_at
    kept(folder, 20)
    launcher = Launcher(folder / "jobs")
    _looked_at = []
    try:
        one = LaunchId(AttemptId(1003, 1))
        assert launcher.launches_of(one.attempt) == [one]
        assert launcher.status(one).state is LaunchState.ENDED
        assert {Path(path).parent.name for path in _looked_at if path.startswith(str(folder))} == {"1003.1@0"}
    finally:
        _looked_at = None


def test_removing_a_job_leaves_no_gap_before_what_is_left(folder: Path) -> None:
    launcher = Launcher(folder / "jobs")
    attempt = AttemptId(7, 1)
    launches = [LaunchId(attempt, number) for number in (0, 1, 2)]
    for launch in launches:
        launcher.start(launch, Order(attempt, ("true",)))
        launcher.wait(launch, PATIENCE_S)
    assert launcher.launches_of(attempt) == launcher.launches() == launches
    launcher.remove(launches[2])
    assert launcher.launches_of(attempt) == launches[:2]
