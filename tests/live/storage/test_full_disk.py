"""A full disk: jobs cannot fill it, and where others do the database still has room."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.live.storage.database import Database
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchRules, LaunchState
from fairlead.node.process.launcher import Launcher
from tests.patience import PATIENCE_S


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_job_cannot_fill_the_databases_disk(small_disk: Path) -> None:
    database = Database(small_disk / "fairlead.db")
    database.write(lambda c: c.execute("CREATE TABLE t (x)") and None).result()
    launcher = Launcher(small_disk / "jobs", rules=LaunchRules(output_mib=1e6))
    program = "import os\nfor _ in range(2000): os.write(1, b'x' * 50_000)"
    job, other = LaunchId(AttemptId(1, 1)), LaunchId(AttemptId(2, 1))
    launcher.start(job, Order(job.attempt, (sys.executable, "-I", "-S", "-c", program)))
    for _ in range(20):
        database.write(_insert).result()
    done = launcher.wait(job, PATIENCE_S)
    assert (done.state, done.exit_code) == (LaunchState.ENDED, 0), "it goes on, whatever becomes of its output"
    assert b"disk is nearly full" in done.stdout.read_bytes()
    launcher.start(other, Order(other.attempt, ("echo", "hello")))
    assert launcher.wait(other, PATIENCE_S).stdout.read_text() == "hello\n", "and took no room from others"
    for _ in range(50):
        database.write(_insert).result()
    assert os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize > 1 << 20
    database.close()


def test_room_is_kept_for_the_database_when_others_have_filled_its_disk(small_disk: Path) -> None:
    database = Database(small_disk / "fairlead.db", spare_bytes=2 << 20)
    database.write(lambda c: c.execute("CREATE TABLE t (x)") and None).result()
    assert (small_disk / "fairlead.db.spare").stat().st_blocks * 512 >= 1 << 20
    with (small_disk / "others").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    for _ in range(40):
        database.write(_insert).result()
    assert not (small_disk / "fairlead.db.spare").exists()
    database.close()


def _insert(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO t VALUES (?)", ("y" * 10_000,))
