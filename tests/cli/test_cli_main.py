from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

Fairlead = Callable[..., Any]


def test_help_loads_no_heavy_module(environment: dict[str, str]) -> None:
    program = "import sys, fairlead.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert not {"polars", "numpy", "matplotlib", "pydantic"} & set(done.stdout.split())


def test_importing_fairlead_loads_nothing_else_of_it(environment: dict[str, str]) -> None:
    program = "import sys, fairlead; print(*(m for m in sys.modules if m.startswith(('fairlead.', 'polars'))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == []


def test_help_and_version_answer(fairlead: Fairlead) -> None:
    assert "simulate" in fairlead("--help").stdout
    assert fairlead("--version").stdout.startswith("fairlead ")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (BrokenPipeError(), 1, ""),
        (
            OSError(28, "No space left on device", "/out/jobs.parquet"),
            1,
            "error: /out/jobs.parquet: No space left on device\n",
        ),
    ],
)
def test_what_ends_a_command_from_outside_is_told_in_a_line(
    raised: BaseException, code: int, said: str, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead import api
    from fairlead.cli import main

    def fail(*args: Any, **options: Any) -> None:
        raise raised

    monkeypatch.setattr(api, "simulate", fail)
    monkeypatch.setattr(main, "_forget_stdout", lambda: None)
    done = fairlead("simulate")
    assert (done.exit_code, done.stderr) == (code, said)


def test_a_reader_that_leaves_early_is_no_error(command: Callable[..., list[str]], environment: dict[str, str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        command("policies"), stdout=write_end, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE_S
    )
    os.close(write_end)
    assert done.stderr == b""


def test_a_terminal_sees_a_progress_bar_and_stdout_does_not(
    command: Callable[..., list[str]], environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    line = command("simulate", "--json")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=theirs, env={**environment, "TERM": "xterm"}) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert running.stdout is not None
        data = running.stdout.read()
    os.close(ours)
    assert b"simulating" in shown
    assert b"1000/1000" in shown
    assert data.startswith(b"{")
    assert data.endswith(b"}\n")


def _processes_in_group(group: int) -> int:
    """Processes of a group that have not ended, from the fields of /proc/PID/stat behind the name."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            found += int(its_group) == group and state != "Z"
    return found


def _wait_until(true: Callable[[], bool], for_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + for_s
    while not true():
        assert time.monotonic() < until, f"not so within {for_s} s"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_an_interrupt_stops_a_comparison_and_its_workers(
    command: Callable[..., list[str]], environment: dict[str, str]
) -> None:
    line = command("compare", "--trace", "synthetic:philly:jobs=300000", "--cluster", "300x8", "--workers", "2")
    with subprocess.Popen(line, stderr=subprocess.PIPE, env=environment, start_new_session=True) as running:
        _wait_until(lambda: _processes_in_group(running.pid) >= 4)  # it, two workers, multiprocessing's tracker
        time.sleep(1.0)
        os.killpg(running.pid, signal.SIGINT)  # what Ctrl-C does: the whole group gets it
        _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert said == b"error: interrupted\n"
    _wait_until(lambda: _processes_in_group(running.pid) == 0)
