"""A whole controller, as a process of its own, under what would have stopped it for good."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.live.client import Client
from fairlead.live.home import Home, read
from fairlead.live.shutdown import stop_agents, stop_controller
from tests.live.scripted import wait_for

PROGRAM = """
import resource, sys
from pathlib import Path
from fairlead.live import daemon
from fairlead.live.config import load
from fairlead.live.home import Home
from fairlead.policy.stack import Stack
{before}
options = {{"engine.fake_gpus": 1, "server.port": 0, "policy.stack": "fifo"}}
daemon.serve(Home(Path(sys.argv[1])), load(None, {{}}, options), on_ready=lambda *_: None, log_to_stderr=False)
"""
LOOPS = """
def decide(self, view):
    while True:
        pass
Stack.decide = decide
daemon._LOOP_ENDS_S = 0.3
"""
FEW = "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))"
Start = Callable[[str], tuple[Home, Client]]


@pytest.fixture
def start() -> Iterator[Start]:
    home = Home(Path(tempfile.mkdtemp(prefix="fairlead-")))
    made: list[subprocess.Popen[bytes]] = []
    clients = contextlib.ExitStack()

    def begin(before: str) -> tuple[Home, Client]:
        line = [sys.executable, "-c", PROGRAM.format(before=before), str(home.path)]
        made.append(subprocess.Popen(line, cwd=Path(__file__).parents[3]))
        wait_for(lambda: read(home.url) or made[0].poll() is not None)
        return home, clients.enter_context(Client(read(home.url), read(home.token)))

    yield begin
    clients.close()
    for one in made:
        one.kill()
        one.wait()
    stop_agents(home, kill_jobs=True)
    shutil.rmtree(home.path)


def test_down_ends_a_controller_whose_policy_loops(start: Start) -> None:
    home, client = start(LOOPS)
    client.submit({"command": ["true"], "cwd": "/"})  # answered while the policy loops
    assert client.job(1)["state"] == "waiting"
    assert stop_controller(home) is not None
    assert home.holder() is None
    assert "the control loop has not ended" in home.log.read_text()


def test_more_half_open_connections_than_descriptors_stop_nothing(start: Start) -> None:
    """The soft limit is raised, and what the store and the agents need is kept from connections."""
    _, client = start(FEW)
    host, _, port = client.url.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        for number in range(400):
            one = stack.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: " if number % 2 else b"")
        job_id = client.submit({"command": ["true"], "cwd": "/"})["id"]
        wait_for(lambda: client.job(job_id)["state"] == "finished")
        assert client.health()["status"] == "ok"
