"""Engines with real agents and jobs on fake GPUs, all of which are gone after the test."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.engines.engine import AttemptStatus, Poll
from fairlead.live.engines.local import LocalEngine
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import command_line, processes, send
from tests.patience import PATIENCE_S


class Bench:
    """Makes engines on one folder and waits for what they should tell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[LocalEngine] = []
        self.changed = threading.Event()

    def engine(self, **about: Any) -> LocalEngine:
        made = LocalEngine(self.folder, **{"fake_gpus": 2, **about})
        made.watch(self.changed.set)
        self.engines.append(made)
        return made

    def until(self, true: Callable[[Poll], object], within_s: float = PATIENCE_S) -> Poll:
        until_s = time.monotonic() + within_s
        while not true(poll := self.engines[-1].poll()):
            assert time.monotonic() < until_s, poll
            self.changed.wait(0.2)
            self.changed.clear()
        return poll

    def over(self, one: AttemptId, within_s: float = PATIENCE_S) -> AttemptStatus:
        return self.until(lambda poll: one in poll.attempts and poll.attempts[one].is_over, within_s).attempts[one]

    def said(self, one: AttemptId, words: str) -> None:
        self.until(lambda poll: words.encode() in self.engines[-1].read_log(one, "stdout", 0, 10_000))

    def agent_pids(self) -> list[int]:
        return [one.pid for one in self._agents()]

    def kill_agents(self) -> None:
        for one in self._agents():
            send(one.pid, one.start_ticks, signal.SIGKILL)

    def end(self) -> None:
        for engine in self.engines:
            with contextlib.suppress(Exception):
                engine.close()
        until_s = time.monotonic() + 10.0
        while self._agents() and time.monotonic() < until_s:
            self.kill_agents()
            time.sleep(0.02)
        for jobs in self.folder.glob("node-*/jobs"):
            launcher = Launcher(jobs)
            for launch in launcher.launches():
                launcher.kill(launch)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _agents(self) -> list[Any]:
        mine = [one for one in processes() if not one.has_ended]
        return [one for one in mine if _is_agent_of(command_line(one.pid), self.folder)]


def _is_agent_of(line: list[str], folder: Path) -> bool:
    return "fairlead.node.http.server" in line and any(word.startswith(f"{folder}/") for word in line)


Start = tuple[Order, Placement]
ONE, TWO = AttemptId(1, 1), AttemptId(2, 1)


def start(program: str, one: AttemptId = ONE, gpus: Placement = (0,), **about: Any) -> Start:
    """A Python program as a job, and where."""
    return Order(one, **{"argv": (sys.executable, "-c", program), **about}), gpus


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(Path(tempfile.mkdtemp(prefix="fe", dir="/tmp")))  # short: sockets have short paths
    yield made
    made.end()
