"""A job's processes: their environment, their reports, and scripts that run beside the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.job import place, reports, stopping
from tests.patience import PATIENCE_S

_OURS = ("FAIRLEAD_", "RANK", "LOCAL_RANK", "NODE_RANK", "CUDA_VISIBLE_DEVICES")


def outside() -> dict[str, str]:
    """An environment without Fairlead."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what another one, or the machine, has set; warnings come anew."""
    for name in set(os.environ) - set(outside()):
        monkeypatch.delenv(name)
    monkeypatch.setattr(reports, "_warned", set())


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "report.jsonl"
    monkeypatch.setenv(place.REPORT, str(path))
    return path


@pytest.fixture
def stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Asks this process to stop, by the file; its handler of SIGTERM is put back afterwards."""
    path = tmp_path / "stop"
    monkeypatch.setenv(place.STOP, str(path))
    monkeypatch.setattr(stopping, "_request", stopping.StopRequest())
    monkeypatch.setattr(stopping, "_LOOK_EVERY_S", 0.0)
    earlier = signal.getsignal(signal.SIGTERM)
    yield path.touch
    signal.signal(signal.SIGTERM, earlier)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Script:
    """Python code in a process of its own, that tells where it is by the lines it prints."""

    def __init__(self, *words: str, cwd: Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env={**outside(), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )
        self._watchdog = threading.Timer(PATIENCE_S, self._kill)
        self._watchdog.start()

    def wait_for(self, text: str) -> str:
        """The next line that holds it."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:  # ends when the process does
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {seen}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def terminate_until_ended(self) -> int:
        until_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until_s:
            self.terminate()
            time.sleep(0.1)
        return self.process.wait(PATIENCE_S)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self._watchdog.cancel()
        self._watchdog.join()
        self._kill()
        self.process.communicate()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files of scripts."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture
def start(tmp_path: Path, temporary: Path) -> Iterator[Callable[..., Script]]:
    """Runs code, or a file with arguments; the keywords are its environment."""
    started: list[Script] = []

    def run(*words: str, **env: str) -> Script:
        started.append(Script(*words, cwd=tmp_path, TMPDIR=str(temporary), **env))
        return started[-1]

    yield run
    for script in started:
        script.close()
