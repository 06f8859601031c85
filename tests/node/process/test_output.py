"""What a job writes is kept within bounds, and it never notices."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchRules, LaunchState
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.output import TAIL_BYTES, BoundedLog
from tests.patience import PATIENCE_S

KIB = 1024


def test_of_too_much_the_beginning_and_the_end_are_kept_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = BoundedLog(str(path), 100 * KIB, 0)
    lines = [f"line {i:05}\n".encode() for i in range(60_000)]
    for line in lines:
        log.take(line)
    during = path.read_bytes()
    assert during.startswith(b"".join(lines)[: 100 * KIB])
    assert b"not kept from here on: more than 0.0976562 MiB" in during
    log.close()
    whole = path.read_bytes()
    assert whole.startswith(during), "who follows it reads on where they were"
    assert whole.endswith(b"".join(lines)[-TAIL_BYTES:])
    assert b"bytes of output were left out here" in whole
    assert len(whole) < 100 * KIB + TAIL_BYTES + 300


def test_what_fits_is_kept_as_it_is(tmp_path: Path) -> None:
    log = BoundedLog(str(tmp_path / "log"), 10, 0)
    log.take(b"01234")
    log.take(b"56789")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789"


def test_while_the_disk_is_nearly_full_nothing_is_kept_and_then_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [100 << 20]
    true = os.fstatvfs

    class Disk:
        f_blocks, f_frsize = 1 << 20, KIB

        @property
        def f_bavail(self) -> int:
            return free[0] // KIB

    log = BoundedLog(str(tmp_path / "log"), 1 << 30, 50 << 20)
    long = BoundedLog(str(tmp_path / "long"), 1 << 30, 50 << 20)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: Disk())
    log.take(b"before\n")
    free[0] = 80 << 20
    for _ in range(40):
        long.take(b"y" * (64 << 10))
    assert (1 << 20) <= (tmp_path / "long").stat().st_size < (1 << 20) + 200, "who writes a lot leaves room for others"
    log.take(b"little\n")
    free[0] = 50 << 20
    log.take(b"x" * (TAIL_BYTES + 7) + b"during\n")
    assert (tmp_path / "log").stat().st_size < 200
    free[0] = 100 << 20
    log.take(b"after\n")
    for one in (log, long):
        one.close()
    monkeypatch.setattr(os, "fstatvfs", true)
    text = (tmp_path / "log").read_text()
    assert text.startswith(
        "before\nlittle\n\n[fairlead: output is not kept from here on: the node's disk is nearly full]\n"
    )
    assert "[fairlead: 14 bytes of output were left out here]" in text
    assert text.endswith("xduring\nafter\n")


def test_a_job_that_writes_too_much_goes_on_and_its_last_words_are_kept(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs", rules=LaunchRules(output_mib=0.5))
    program = "import sys; [print('x' * 999) for _ in range(8000)]; print('last', flush=True); sys.exit(3)"
    job = LaunchId(AttemptId(1, 1))
    launcher.start(job, Order(job.attempt, (sys.executable, "-I", "-S", "-c", program)))
    done = launcher.wait(job, PATIENCE_S)
    assert (done.state, done.exit_code) == (LaunchState.ENDED, 3)
    text = done.stdout.read_bytes()
    assert text.endswith(b"last\n")
    assert len(text) < (512 + 64 + 1) * KIB


def test_all_that_was_written_is_there_when_the_job_is_over(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs")
    program = "import os; os.write(1, b'o' * 200_000); os.write(2, b'e' * 200_000); os.write(1, b'end')"
    jobs = [LaunchId(AttemptId(i, 1)) for i in range(5)]
    for job in jobs:
        launcher.start(job, Order(job.attempt, (sys.executable, "-I", "-S", "-c", program)))
    for job in jobs:
        done = launcher.wait(job, PATIENCE_S)
        assert done.stdout.read_bytes() == b"o" * 200_000 + b"end"
        assert done.stderr.read_bytes() == b"e" * 200_000
