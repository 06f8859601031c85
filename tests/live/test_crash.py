"""A controller that is killed again and again, at any moment, under load: nothing is lost and nothing runs twice."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import FairleadError
from fairlead.live.client import Client
from tests.live.rig import agents_in

ROOT = Path(__file__).parents[2]
KILLS = 200
AGENT_KILLS = 8
GPUS = 4
PATIENCE_S = 300.0

# Holds a lock for as long as it runs, so that a second one of the same job would be noticed.
JOB = """
import fcntl, os, sys, time
folder, seconds, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
name = os.path.join(folder, os.environ["FAIRLEAD_JOB_ID"])
lock = open(name + ".lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(name + ".twice", "w").close()
with open(name + ".runs", "a") as runs:
    runs.write(os.environ["FAIRLEAD_ATTEMPT"] + "\\n")
for i in range(5):
    print("line", i, flush=True)
    time.sleep(seconds / 5)
print("through", flush=True)
with open(name + ".runs", "a") as runs:
    runs.write("through\\n")
sys.exit(code)
"""


class ForkServer:
    """Where controllers come from."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = [f"engine.fake_gpus={GPUS}", f"server.port={self.port}", "policy.stack=fifo-greedy"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.fork_server", str(home), *options],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.controller = 0

    def fork(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("one\n")
        self._process.stdin.flush()
        self.controller = int(self._process.stdout.readline())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.controller, signal.SIGKILL)
        while Path(f"/proc/{self.controller}").exists():
            time.sleep(0.002)

    def kill_agent(self) -> None:
        for pid in agents_in(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def client(self) -> Client:
        end_s = time.monotonic() + 60.0
        while not (token := _read(self.home / "token")):
            assert time.monotonic() < end_s, _read(self.home / "controller.log")
            time.sleep(0.02)
        return Client(f"http://127.0.0.1:{self.port}", token)

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()
        self.kill_agent()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    home = Path(tempfile.mkdtemp(prefix="fairlead-"))
    made = ForkServer(home)
    yield made
    made.close()
    shutil.rmtree(home)


class Users(threading.Thread):
    """Submit, cancel, hold and release as long as they may, and remember what they were promised."""

    def __init__(self, fork_server: ForkServer, folder: Path, seed: int) -> None:
        super().__init__()
        self._fork_server, self._folder, self._rng = fork_server, folder, random.Random(seed)
        self.leaving = threading.Event()
        self.codes: dict[int, int] = {}
        """Of each job that was acknowledged, the exit code that it will have."""
        self.cancelled: set[int] = set()
        self.held: set[int] = set()

    def run(self) -> None:
        with self._fork_server.client() as client:
            while not self.leaving.is_set():
                self._submit(client)
                with contextlib.suppress(FairleadError):  # of these a lost answer leaves it open whether it was done
                    self._meddle(client)
                time.sleep(self._rng.uniform(0.1, 0.5))

    def _submit(self, client: Client) -> None:
        seconds, code = self._rng.uniform(0.0, 0.6), self._rng.choice((0, 0, 0, 7))
        words = [sys.executable, "-c", JOB, str(self._folder), f"{seconds:.3f}", str(code)]
        asked = {"command": words, "gpus": self._rng.choice((1, 1, 2)), "retries": 0}
        key = f"{self._rng.random()}"
        while True:
            try:
                done = client.submit(asked, key=key, retry_s=PATIENCE_S)
                break
            except FairleadError:  # there is none at this moment
                time.sleep(0.05)
        self.codes[int(done["id"])] = code

    def _meddle(self, client: Client) -> None:
        chance, job_id = self._rng.random(), self._rng.choice(list(self.codes))
        if chance < 0.1:
            self.cancelled.add(job_id)  # before: if the answer is lost, it may be cancelled or not
            client.cancel(job_id)
        elif chance < 0.2:
            self.held.add(job_id)
            client.hold(job_id)


def test_two_hundred_kills_lose_nothing_and_run_nothing_twice(fork_server: ForkServer, tmp_path: Path) -> None:
    rng = random.Random(7)
    folder = tmp_path / "jobs"
    folder.mkdir()
    fork_server.fork()
    users = [Users(fork_server, folder, seed) for seed in range(2)]
    for user in users:
        user.start()
    watcher = fork_server.client()
    try:
        for number in range(KILLS):
            if rng.random() < 0.5:  # when it answers, or while it finds its feet
                _answers(watcher)
            time.sleep(rng.uniform(0.0, 0.4))
            fork_server.kill()
            if number % (KILLS // AGENT_KILLS) == 5:
                fork_server.kill_agent()
            fork_server.fork()
    finally:
        watcher.close()
        for user in users:
            user.leaving.set()
        for user in users:
            user.join(PATIENCE_S)
    codes = {job_id: code for user in users for job_id, code in user.codes.items()}
    cancelled, held = (set().union(*(getattr(user, name) for user in users)) for name in ("cancelled", "held"))
    with fork_server.client() as client:
        _answers(client)
        jobs = _all_over(client)
        assert set(codes) <= set(jobs), "an acknowledged job is lost"
        assert set(jobs) == set(codes), "a job that nobody submitted, or one that was submitted twice"
        assert not list(folder.glob("*.twice")), "a job ran twice at once"
        for job_id, code in codes.items():
            _check(client, jobs[job_id], code, job_id in cancelled, job_id in held, folder)
    assert len(codes) > KILLS / 4


def _answers(client: Client) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.health()
            return
        except FairleadError:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def _all_over(client: Client) -> dict[int, dict[str, Any]]:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        jobs = {job["id"]: job for job in client.jobs()}
        for job in jobs.values():
            if job["state"] == "held":
                client.release(job["id"])
        left = [job for job in jobs.values() if job["state"] not in ("finished", "parked", "cancelled") or job["phase"]]
        if not left:
            return jobs
        assert time.monotonic() < end_s, left[:5]
        time.sleep(0.5)


def _check(
    client: Client, job: dict[str, Any], code: int, may_be_cancelled: bool, was_held: bool, folder: Path
) -> None:
    runs = _read(folder / f"{job['id']}.runs").split()
    if job["state"] == "cancelled":
        assert may_be_cancelled
        return
    assert job["state"] == ("finished" if code == 0 else "parked"), job
    assert job["exit_code"] == code
    # Who is told to leave in its last moment may have been through, and is run again when it is released.
    assert runs.count("through") == 1 or was_held, f"it went through {runs.count('through')} times"
    assert runs[-1] == "through"
    written = b"".join(client.log(job["id"]))
    assert written == b"".join(b"line %d\n" % i for i in range(5)) + b"through\n", "its log is not complete"
