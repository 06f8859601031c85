"""One browser for all tests here, as new for each; a real controller, and worlds that do as the test says."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.live.client import Client
from tests.live.api.serving import Served, served
from tests.live.scripted import World
from tests.web.browser import Browser, started

SHARES = "ordering=priority:preempt=false,sharing=eaco:history=eaco"


@dataclass(frozen=True)
class Live:
    """A controller that schedules real processes on made-up GPUs."""

    home: Path
    url: str
    tokens: dict[str, str]

    def client(self, who: str) -> Client:
        return Client(self.url, self.tokens[who])


@pytest.fixture(scope="session")
def one_browser() -> Iterator[Browser]:
    with started() as made:
        yield made


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    one_browser.forget()
    one_browser.size(1440, 900)
    yield one_browser
    assert one_browser.logs() == []


def command(*words: object) -> str:
    program = "from fairlead.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """Four made-up GPUs on two nodes, and jobs that share."""
    home = Path(tempfile.mkdtemp(prefix="fairlead-"))
    home.chmod(0o755)
    config = home / "fairlead.toml"
    config.write_text('[engine]\nas_submitter = "everyone-is-root"\n[controller]\npoll_s = 1.0\n')
    try:
        gpus = ("--fake-gpus", 2, "--fake-nodes", 2, "--port", 0, "--policy", SHARES, "--config", config)
        command("up", *gpus, "--home", home, "--detach")
        url = (home / "url").read_text().strip()
        admin = (home / "token").read_text().strip()
        with Client(url, admin) as client:
            made = {
                who: client.make_token(who, role)["token"]
                for who, role in (("mia", "user"), ("max", "user"), ("olga", "operator"))
            }
        yield Live(home, url, {**made, "admin": admin})
    finally:
        with contextlib.suppress(AssertionError):
            command("down", "--kill-jobs", "--grace", "1s", "--home", home)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    """FIFO on four GPUs that do as the test says."""
    world = World(tmp_path)
    try:
        with served(world) as made:
            yield made
    finally:
        world.close()
