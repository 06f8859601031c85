"""SIGTERM is a request to those who ask, and the end of all others."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import job
from tests.job.conftest import Script, lines

HEAD = """
import os, signal, sys, time
from fairlead import job
def say(text): print(text, flush=True)
"""


@pytest.fixture
def run(start: Callable[..., Script]) -> Callable[..., Script]:
    def code(text: str, **env: str) -> Script:
        return start("-c", HEAD + text, **env)

    return code


LOOP = """
job.should_stop()
say("ready")
while not job.should_stop(): time.sleep(0.01)
say("saved")
"""


def test_sigterm_is_a_request_to_who_asks(run: Callable[..., Script]) -> None:
    script = run(LOOP)
    script.wait_for("ready")
    script.terminate()
    script.wait_for("saved")
    assert script.wait() == 0


def test_sigterm_ends_who_only_reports(run: Callable[..., Script], tmp_path: Path) -> None:
    script = run("job.epoch(1); job.finished(); job.latency(0.1); say('ready')\nwhile True: time.sleep(1)")
    script.wait_for("ready")
    script.terminate()
    assert script.wait() == -signal.SIGTERM


def test_a_second_sigterm_ends_it(run: Callable[..., Script]) -> None:
    script = run("job.should_stop(); say('ready')\nwhile True: time.sleep(0.01)")
    script.wait_for("ready")
    assert script.terminate_until_ended() == -signal.SIGTERM


def test_two_that_come_together_are_one_request(run: Callable[..., Script]) -> None:
    # As from a launcher that passes on what went to the whole process group.
    script = run(
        "job.stopping._SAME_REQUEST_S = 1e9\n"  # however slow this machine is
        "job.should_stop()\n"
        "for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)\n"
        "say(job.should_stop())"
    )
    script.wait_for("True")
    assert script.wait() == 0


def test_an_earlier_handler_is_called_each_time(run: Callable[..., Script]) -> None:
    script = run(
        "signal.signal(signal.SIGTERM, lambda *_: say('earlier'))\n"
        "job.should_stop()\n"
        "for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)\n"
        "say(job.should_stop())"
    )
    for text in ("earlier", "earlier", "True"):
        script.wait_for(text)
    assert script.wait() == 0


def test_a_forked_helper_ends_as_usual(run: Callable[..., Script]) -> None:
    # Else a data loader's workers could not be terminated.
    script = run(
        "job.should_stop()\n"
        "runs, tell = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.write(tell, b'.')\n"
        "    while True: time.sleep(1)\n"
        "os.read(runs, 1)\n"  # Python forgets signals that come while it forks
        "os.kill(child, signal.SIGTERM)\n"
        "say(f'ended by {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}, {job.should_stop()}')"
    )
    assert "ended by -15, False" in script.wait_for("ended")


def test_a_forked_process_that_asks_is_asked(run: Callable[..., Script]) -> None:
    script = run(
        "job.should_stop()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    job.should_stop(); os.kill(os.getpid(), signal.SIGTERM); os._exit(7 if job.should_stop() else 1)\n"
        "say(f'ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}')"
    )
    assert "ended with 7" in script.wait_for("ended")


def test_a_signal_is_reported_once_with_who_got_it(run: Callable[..., Script], tmp_path: Path) -> None:
    script = run(
        "job.stopping._SAME_REQUEST_S = 1e9\njob.should_stop()\n"
        "for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)\nsay(os.getpid())",
        FAIRLEAD_REPORT=str(tmp_path / "r"),
        LOCAL_WORLD_SIZE="4",
    )
    assert script.wait() == 0
    (found,) = lines(tmp_path / "r")
    assert (found["asked_to_stop"], found["processes"]) == (True, 4)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_who_handles_signals_itself_is_seen_to_have_got_one(
    run: Callable[..., Script], tmp_path: Path, name: str
) -> None:
    script = run(
        f"signal.signal(signal.{name}, lambda *_: say('mine'))\n"
        f"job.epoch(1)\nos.kill(os.getpid(), signal.{name})\njob.epoch(2)",
        FAIRLEAD_REPORT=str(tmp_path / "r"),
    )
    script.wait_for("mine")
    assert script.wait() == 0
    assert [line.get("epoch") or line["asked_to_stop"] for line in lines(tmp_path / "r")] == [1, True, 2]


def test_an_interrupt_ends_as_usual_who_only_reports(run: Callable[..., Script], tmp_path: Path) -> None:
    script = run("job.epoch(1)\nos.kill(os.getpid(), signal.SIGINT)", FAIRLEAD_REPORT=str(tmp_path / "r"))
    assert script.wait() == -signal.SIGINT


def test_helpers_that_are_ended_by_their_parent_do_not_say_that_the_job_was(
    run: Callable[..., Script], tmp_path: Path
) -> None:
    script = run(
        "job.should_stop()\n"
        "runs, tell = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.write(tell, b'.')\n"
        "    while True: time.sleep(1)\n"
        "os.read(runs, 1)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "os.waitpid(child, 0)",
        FAIRLEAD_REPORT=str(tmp_path / "r"),
    )
    assert script.wait() == 0
    assert not (tmp_path / "r").exists()


def test_the_file_is_a_request_too(stop: Callable[[], None]) -> None:
    assert not job.should_stop()
    stop()
    assert job.should_stop()
    assert job.all_should_stop()


def test_the_file_is_looked_for_twice_a_second_at_most(
    stop: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    now_s = 0.0

    def look(path: str) -> bool:
        looks.append(path)
        return False

    monkeypatch.setattr("fairlead.job.stopping._LOOK_EVERY_S", 0.5)
    monkeypatch.setattr("fairlead.job.stopping.time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr("fairlead.job.stopping.os.path.exists", look)
    for _ in range(100):
        job.should_stop()
        now_s += 0.01
    assert len(looks) == 2


def test_another_thread_may_ask_first(stop: Callable[[], None]) -> None:
    earlier = signal.getsignal(signal.SIGTERM)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(job.should_stop()))
    thread.start()
    thread.join()
    assert answers == [False]
    assert signal.getsignal(signal.SIGTERM) is earlier, "only the main thread can set it"
    job.should_stop()
    assert signal.getsignal(signal.SIGTERM) is not earlier


def torch_of_two(other_votes: int, is_initialized: bool = True) -> Any:
    """What `all_should_stop` needs of PyTorch, with a second process that votes so."""

    class Votes(list[int]):
        def item(self) -> int:
            return self[0]

    def all_reduce(votes: Votes, op: str) -> None:
        assert op == "max"
        votes[0] = max(votes[0], other_votes)

    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: is_initialized,
        get_backend=lambda: "gloo",
        all_reduce=all_reduce,
        ReduceOp=SimpleNamespace(MAX="max"),
    )
    return SimpleNamespace(distributed=distributed, tensor=lambda values, device: Votes(values))


@pytest.mark.parametrize(("mine", "other", "stops"), [(0, 0, False), (0, 1, True), (1, 0, True), (1, 1, True)])
def test_where_one_process_is_asked_all_stop(
    mine: int, other: int, stops: bool, stop: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of_two(other))
    if mine:
        stop()
    assert job.all_should_stop() is stops


def test_a_single_process_has_nobody_to_ask(stop: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of_two(1, is_initialized=False))
    assert not job.all_should_stop()
