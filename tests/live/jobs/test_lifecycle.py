"""Jobs that are stopped before they are through: by us, by the machine, by anybody. They go on, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.engines.local import LocalEngine
from fairlead.live.home import Home
from fairlead.live.jobs.states import State
from fairlead.live.shutdown import stop_agents
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import is_running, process, send
from tests.live.rig import EXAMPLES, Rig, agents_in
from tests.patience import PATIENCE_S

ENV = {"PYTHONPATH": str(EXAMPLES.parent / "src")}
SLOW_TO_LEAVE = """
import os, signal, sys, time
def leave(*about):
    time.sleep(3.0)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
time.sleep(600)
"""
OWN_HANDLER = """
import os, signal, sys, time
from fairlead import job
HANDLER
job.epoch(job.attempt, of=50)
print("up", job.attempt, flush=True)
while job.attempt < 2: time.sleep(0.01)
job.finished()
"""
ON_TERM = "signal.signal(signal.SIGTERM, lambda *about: sys.exit(0))"


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig("fifo", fake_gpus=6)
    yield made
    made.close()


def down(rig: Rig, grace_s: float | None = None) -> Any:
    """`fairlead down --kill-jobs`."""
    rig.stop()
    rig.engine.close()
    return stop_agents(Home(rig.home), kill_jobs=True, grace_s=grace_s)


def up(rig: Rig) -> None:
    """`fairlead up` on what is there."""
    rig.engine = LocalEngine(rig.home / "nodes", fake_gpus=6, knows=rig.store.knows)
    rig.start()


def running(rig: Rig, job_id: int, attempt: int = 1) -> dict[str, Any]:
    """What its node has written down of an attempt, whatever its epoch."""
    (path,) = (rig.home / "nodes" / "node-0" / "jobs").glob(f"{job_id}.{attempt}.*@0/running.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main_process(rig: Rig, job_id: int, attempt: int = 1) -> tuple[int, int]:
    """The job's own: its number, and when it was started."""
    found = running(rig, job_id, attempt)
    return found["pid"], found["start_ticks"]


def supervisor(rig: Rig, job_id: int) -> tuple[int, int]:
    found = running(rig, job_id)
    return found["supervisor_pid"], found["supervisor_start_ticks"]


def goes_on(rig: Rig, job_id: int) -> None:
    """It has a second attempt, and the first counts as no failure."""
    rig.until(lambda: rig.job(job_id)["attempt"] == 2, f"job {job_id} to go on")
    assert rig.job(job_id)["failures"] == 0
    assert "backing-off" not in rig.events(job_id)


def test_whoever_is_killed_with_the_controller_goes_on_when_it_is_back(rig: Rig) -> None:
    training = rig.train(20, 0.1, retries=0)
    service = rig.submit(sys.executable, EXAMPLES / "service.py", env=ENV, kind="service", retries=0)
    plain = rig.submit("sleep", "600", retries=0)
    stubborn = rig.submit(
        sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)",
        retries=0, grace_s=0.2,
    )  # fmt: skip
    slow = rig.submit(sys.executable, "-c", SLOW_TO_LEAVE, retries=0, grace_s=20.0)
    for job_id, word in ((training, "epoch 2 of"), (service, "serving"), (stubborn, "up"), (slow, "up")):
        rig.until(lambda job_id=job_id, word=word: word in rig.log(job_id), f"job {job_id} to run")  # type: ignore[misc]
    rig.until(lambda: rig.job(plain)["started_at_s"] is not None, "the plain one to run")
    left = down(rig)
    assert (left.running, left.killed, left.silent) == (set(), {training, service, plain, stubborn, slow}, [])
    up(rig)
    for job_id in (training, service, plain, stubborn, slow):
        goes_on(rig, job_id)
    assert rig.log(slow, attempt=1) == "up\nsaved\n", "it had all of its grace"
    rig.until_state(training, State.FINISHED)
    assert rig.log(training).count(" of 20, loss") == 20, "every epoch once"
    assert rig.job(service)["state"] == "running"


def test_a_grace_that_is_given_counts_for_all(rig: Rig) -> None:
    job_id = rig.submit(sys.executable, "-c", SLOW_TO_LEAVE, grace_s=600.0)
    rig.until(lambda: "up" in rig.log(job_id), "it to run")
    down(rig, grace_s=0.2)
    up(rig)
    goes_on(rig, job_id)
    assert rig.log(job_id, attempt=1) == "up\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_runs_on_is_told_where_an_agent_does_not_answer(
    rig: Rig, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.live.engines.agent_client._ANSWER_S", 0.3)
    job_id = rig.submit("sleep", "600")
    rig.until(lambda: rig.job(job_id)["started_at_s"] is not None, "it to run")
    rig.stop()
    rig.engine.close()
    (agent,) = agents_in(rig.home)
    found = process(agent)
    assert found is not None
    send(agent, found.start_ticks, number)
    left = stop_agents(Home(rig.home), kill_jobs=True)
    assert (left.running, left.killed, [folder.name for folder in left.silent]) == ({job_id}, set(), ["node-0"])
    assert is_running(*main_process(rig, job_id))
    send(agent, found.start_ticks, signal.SIGKILL)
    rig.until(lambda: not is_running(agent, found.start_ticks), "the agent to be gone")
    up(rig)
    assert [status.state for status in rig.engine.poll().attempts.values()] == ["running"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_training_that_somebody_signals_goes_on_from_there(rig: Rig, number: signal.Signals) -> None:
    job_id = rig.train(12, 0.2, retries=0)
    rig.until(lambda: "epoch 2 of" in rig.log(job_id), "two epochs")
    os.kill(main_process(rig, job_id)[0], number)
    goes_on(rig, job_id)
    rig.until_state(job_id, State.FINISHED)
    assert json.loads(rig.job(job_id)["progress"])["epochs_done"] == 12
    assert rig.reasons(job_id).count("interrupted") == 1


@pytest.mark.parametrize(
    ("handler", "number"),
    [
        (ON_TERM, signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *about: sys.exit(5))", signal.SIGTERM),
        ("signal.signal(signal.SIGINT, lambda *about: sys.exit(0))", signal.SIGINT),
        ("", signal.SIGHUP),
    ],
)
def test_so_does_one_with_a_handler_of_its_own_or_none(rig: Rig, handler: str, number: signal.Signals) -> None:
    program = OWN_HANDLER.replace("HANDLER", handler).replace("of=50", "")
    job_id = rig.submit(sys.executable, "-c", program, env=ENV, retries=0)
    rig.until(lambda: "up 1" in rig.log(job_id), "it to run")
    os.kill(main_process(rig, job_id)[0], number)
    goes_on(rig, job_id)
    rig.until_state(job_id, State.FINISHED)


def test_so_does_one_in_a_shell_whose_child_is_signalled(rig: Rig) -> None:
    script = f"sleep 600 & echo $! > {rig.home}/child; [ $FAIRLEAD_ATTEMPT = 2 ] && exit 0; wait $!; exit $?"
    job_id = rig.submit("sh", "-c", script, retries=0)
    child = rig.home / "child"
    rig.until(lambda: child.exists() and child.read_text().strip(), "the child")
    os.kill(int(child.read_text()), signal.SIGTERM)
    goes_on(rig, job_id)
    rig.until_state(job_id, State.FINISHED)


def test_a_job_that_fails_is_not_taken_for_one_that_was_stopped(rig: Rig) -> None:
    killed = rig.submit("sleep", "600", retries=0)
    rig.until(lambda: rig.job(killed)["started_at_s"] is not None, "it to run")
    os.kill(main_process(rig, killed)[0], signal.SIGKILL)  # as the kernel does to who takes too much memory
    failed = rig.submit("sh", "-c", "exit 3", retries=0)
    rig.until_state(killed, State.PARKED)
    rig.until_state(failed, State.PARKED)
    assert (rig.job(killed)["exit_code"], rig.job(killed)["reason"]) == (137, "signalled")


def test_a_session_that_is_ended_takes_no_job_with_it(rig: Rig) -> None:
    """As a shutdown does: every process gets SIGTERM, those that see jobs end as well."""
    program = f"import signal, sys, time\n{ON_TERM}\nprint('up', flush=True)\ntime.sleep(600)"
    job_id = rig.submit(sys.executable, "-c", program, retries=0)
    rig.until(lambda: "up" in rig.log(job_id), "it to run")
    os.kill(supervisor(rig, job_id)[0], signal.SIGTERM)
    os.kill(main_process(rig, job_id)[0], signal.SIGTERM)
    goes_on(rig, job_id)
    assert rig.reasons(job_id).count("machine-stopped") == 1


def test_after_a_reboot_jobs_go_on(rig: Rig) -> None:
    training, service = rig.train(20, 0.1, retries=0), rig.submit("sleep", "600", kind="service", retries=0)
    rig.until(lambda: "epoch 2 of" in rig.log(training), "two epochs")
    rig.until(lambda: rig.job(service)["started_at_s"] is not None, "the service to run")
    rig.stop()
    rig.engine.close()
    reboot(rig.home / "nodes" / "node-0", agents_in(rig.home))
    up(rig)
    goes_on(rig, training)
    assert "machine-restarted" in rig.reasons(training)
    rig.until_state(training, State.FINISHED)
    assert json.loads(rig.job(training)["progress"])["epochs_done"] == 20
    launcher = Launcher(rig.home / "nodes" / "node-0" / "jobs")
    first = rig.store.attempts_of(service)[0].id
    rig.until(lambda: len(launcher.launches_of(first)) == 2, "the agent to start the service again")
    assert rig.job(service)["state"] == "running"


def reboot(folder: Path, agents: list[int]) -> None:
    """All processes are gone at once, and what they wrote of themselves is of another boot."""
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    launcher = Launcher(folder / "jobs")
    for path in folder.glob("jobs/*/running.json"):
        found = json.loads(path.read_text())
        os.kill(found["supervisor_pid"], signal.SIGKILL)
        os.killpg(found["pid"], signal.SIGKILL)
        until_s = time.monotonic() + PATIENCE_S
        while is_running(found["pid"], found["start_ticks"]) and time.monotonic() < until_s:
            time.sleep(0.01)
        path.write_text(json.dumps({**found, "boot_id": "another"}))
    assert all(launcher.status(launch).state == "lost" for launch in launcher.launches())


def test_events_of_agents_are_written_once_however_often_the_controller_starts(rig: Rig) -> None:
    job_id = rig.submit("sh", "-c", f"while [ ! -e {rig.home}/go ]; do sleep 0.05; done")
    rig.until(lambda: "started" in rig.events(job_id), "its start to be told")
    for _ in range(3):
        rig.stop()
        rig.engine.close()
        up(rig)
        rig.controller.ask(lambda: None).result(timeout=PATIENCE_S)
    other = rig.submit("true")
    rig.until_state(other, State.FINISHED)
    (rig.home / "go").touch()
    rig.until_state(job_id, State.FINISHED)
    rig.until(lambda: "ended" in rig.events(job_id), "its end to be told")
    assert [word for word in rig.events(job_id) if word in ("started", "ended")] == ["started", "ended"]
    rows = rig.store.database.read("SELECT at_s FROM events WHERE node != '' ORDER BY id")
    assert [row["at_s"] for row in rows] == sorted(row["at_s"] for row in rows)
