"""A controller takes over what 0.1.0 left: its database, its jobs, its tokens."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.storage.schema import STEPS
from tests.patience import PATIENCE_S

OLD = Path(__file__).parents[1] / "live" / "storage" / "databases" / "0.1.0.sql"
TOKEN = "fl_b-JdB4IwaJeWBVHOU4onc3_G2Bmf-dOAmjTVP1Z-hKs"
"""ana's, in that database; of no use elsewhere."""
Process = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(process: Process) -> Iterator[Path]:
    """The folder of a controller of 0.1.0 whose machine has been off since."""
    made = Path(tempfile.mkdtemp(prefix="fairlead-"))
    connection = sqlite3.connect(made / "fairlead.db")
    connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    yield made
    process("down", "--kill-jobs", "--grace", "0s", "--home", str(made))
    shutil.rmtree(made, ignore_errors=True)


def jobs(process: Process, home: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(process("jobs", "--all", "--json", "--home", str(home)).stdout)
    return {job["name"]: job for job in found["jobs"]}


def test_a_database_of_0_1_0_is_brought_forward_and_its_jobs_go_on(
    process: Process, home: Path, environment: dict[str, str]
) -> None:
    up = process("up", "--fake-gpus", "2", "--port", "0", "--policy", "fifo-greedy", "--detach", "--home", str(home))
    assert up.returncode == 0, up.stderr
    until_s = time.monotonic() + PATIENCE_S
    while process("events", "--home", str(home)).stdout.count(" started ") < 6:  # four in the old log
        assert time.monotonic() < until_s
        time.sleep(0.2)
    found = jobs(process, home)
    states = {name: job["state"] for name, job in found.items()}
    assert states == {
        "done": "finished", "bad": "parked", "held": "held", "served": "running", "runs": "running",
        "waits": "waiting", "gone": "cancelled",
    }  # fmt: skip
    assert {name: job["failures"] for name, job in found.items() if job["failures"]} == {"bad": 1}
    assert process("submit", "--home", str(home), "--", "true").stdout.strip() == "8", "numbers go on"
    tokens = json.loads(process("token", "list", "--json", "--home", str(home)).stdout)["tokens"]
    assert [(one["user"], one["role"], one["revoked_at_s"] is None) for one in tokens][:3] == [
        ("root", "admin", True), ("ana", "user", True), ("ben", "operator", False),
    ]  # fmt: skip
    environment |= {"FAIRLEAD_TOKEN": TOKEN, "FAIRLEAD_URL": (home / "url").read_text().strip()}
    assert process("jobs", "--all", "--json").returncode == 0, "her token still lets ana in"
    connection = sqlite3.connect(home / "fairlead.db")
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(STEPS)
    connection.close()
