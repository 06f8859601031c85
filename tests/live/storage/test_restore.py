"""A database that is put back while the nodes went on: nothing crosses users, runs twice or blocks a GPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.client import Client
from fairlead.live.connection import NotFoundError
from fairlead.node.process.processes import is_running, process
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parents[3] / "src"
OTHER = "nobody"
"""A second user, who has an account on any machine: under root jobs run as their submitters."""


class Cluster:
    """A controller on three fake GPUs, by its commands, and two users of it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.marks, self.copy = folder / "home", folder / "marks", folder / "copy.db"
        self.marks.mkdir()
        self.marks.chmod(0o777)
        self.clients: list[Client] = []

    def fairlead(self, *words: object, code: int = 0) -> str:
        line = [sys.executable, "-c", "from fairlead.cli.main import run; run()", *map(str, words)]
        env = {**os.environ, "PYTHONPATH": str(SOURCES), "FAIRLEAD_HOME": str(self.home)}
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def up(self) -> None:
        self.fairlead("up", "--fake-gpus", 3, "--port", 0, "--policy", "fifo-greedy", "--detach")
        self.admin = self._client((self.home / "url").read_text().strip(), (self.home / "token").read_text().strip())

    def user(self, name: str) -> Client:
        return self._client(self.admin.url, self.admin.make_token(name, "user")["token"])

    def _client(self, url: str, token: str) -> Client:
        self.clients.append(Client(url, token))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.fairlead("down", "--kill-jobs")

    def kill(self) -> None:
        held = json.loads((self.home / "lock").read_text())
        os.kill(held["pid"], signal.SIGKILL)
        until(lambda: not is_running(held["pid"], held["start_ticks"]))

    def submit(self, who: Client, name: str, **asked: Any) -> int:
        """A job that says its name and its user's secret, and is through when there is a file of its name."""
        script = f"echo $$ >> {self.marks}/{name}.pid; echo secret-{name}; "
        script += f"while [ ! -e {self.marks}/{name} ]; do sleep 0.05; done; echo through"
        made = who.submit({"command": ["sh", "-c", script], "cwd": "/", "name": name, "grace_s": 5, **asked})
        return int(made["id"])

    def running(self, who: Client, job_id: int) -> None:
        until(lambda: who.job(job_id)["state"] == "running" and self.log(who, job_id))

    def finished(self, who: Client, job_id: int) -> dict[str, Any]:
        (self.marks / who.job(job_id)["name"]).touch()
        until(lambda: who.job(job_id)["state"] == "finished")
        return who.job(job_id)

    def log(self, who: Client, job_id: int) -> str:
        return b"".join(who.log(job_id)).decode()

    def alive(self, name: str) -> int:
        """How many processes of a job run."""
        pids = (self.marks / f"{name}.pid").read_text().split()
        return sum((found := process(int(pid))) is not None and not found.has_ended for pid in pids)


def until(holds: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="fairlead-"))  # short: sockets are made in it
    folder.chmod(0o755)
    made = Cluster(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def by_command(cluster: Cluster) -> None:
    cluster.fairlead("restore", cluster.copy)


def on_a_new_disk(cluster: Cluster) -> None:
    for path in cluster.home.glob("fairlead.db*"):
        path.unlink()
    cluster.fairlead("restore", cluster.copy)


def by_hand(cluster: Cluster) -> None:
    for path in cluster.home.glob("fairlead.db*"):
        path.unlink()
    shutil.copy(cluster.copy, cluster.home / "fairlead.db")


@pytest.mark.parametrize("put_back", [by_command, on_a_new_disk, by_hand])
def test_after_a_restore_nothing_crosses_users_runs_twice_or_blocks_a_gpu(
    cluster: Cluster, put_back: Callable[[Cluster], None]
) -> None:
    cluster.up()
    ann, bob = cluster.admin, cluster.user(OTHER)
    stays, ends = cluster.submit(ann, "stays"), cluster.submit(ann, "ends")
    held = cluster.submit(bob, "held", hold=True)
    cluster.running(ann, stays)
    cluster.running(ann, ends)
    with sqlite3.connect(cluster.home / "fairlead.db") as source, sqlite3.connect(cluster.copy) as copy:
        source.backup(copy)  # as operators did by hand, and as `fairlead backup` does
    copy.close()
    source.close()

    ended = cluster.finished(ann, ends)
    bob.release(held)
    cluster.running(bob, held)
    lost = cluster.submit(ann, "lost")
    cluster.running(ann, lost)
    unseen = cluster.submit(bob, "unseen")
    cluster.kill()
    put_back(cluster)
    cluster.up()
    ann, bob = cluster.admin, cluster.user(OTHER)

    # What runs since before the backup goes on, what ended since is known to have, and neither ran again.
    assert cluster.finished(ann, stays)["attempt"] == 1
    assert cluster.log(ann, stays) == "secret-stays\nthrough\n"
    until(lambda: ann.job(ends)["state"] == "finished")
    assert (ann.job(ends)["attempt"], ann.job(ends)["ended_at_s"]) == (1, ended["ended_at_s"])
    # What the backup does not know of leaves, and nobody gets to see it.
    until(lambda: cluster.alive("lost") == cluster.alive("held") == 0)
    for job_id in (lost, unseen):
        with pytest.raises(NotFoundError, match="no job"):
            ann.job(job_id)
    assert bob.job(held)["state"] == "held"
    assert cluster.log(bob, held) == ""
    # The next jobs get new numbers, their own output, and all GPUs.
    fresh = cluster.submit(bob, "fresh", gpus=3)
    assert fresh > (unseen if put_back is by_command else lost)
    cluster.running(bob, fresh)
    assert cluster.log(bob, fresh) == "secret-fresh\n"
    cluster.finished(bob, fresh)
    bob.release(held)
    cluster.running(bob, held)
    assert (cluster.alive("held"), cluster.log(bob, held)) == (1, "secret-held\n")
    assert cluster.finished(bob, held)["attempt"] == 1
