"""The command line in this process and in another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli.main import app
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"


def assert_a_clear_error(done: Result, named: str) -> None:
    """A user's mistake: status 2, nothing on stdout, an `error:` that names what is wrong, no traceback."""
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def fairlead() -> Callable[..., Result]:
    """Run a command in this process."""
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args], prog_name="fairlead")


@pytest.fixture
def command() -> Callable[..., list[str]]:
    """The same command as the words of a process of its own."""
    program = "from fairlead.cli.main import run; run()"
    return lambda *args: [sys.executable, "-W", "error", "-c", program, *map(str, args)]


@pytest.fixture
def environment() -> dict[str, str]:
    """Where a process of its own finds the sources, installed or not."""
    return {**os.environ, "PYTHONPATH": str(SOURCES), "COLUMNS": "120"}


@pytest.fixture
def process(
    command: Callable[..., list[str]], environment: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own, where stdout and stderr are really apart."""
    return lambda *args: subprocess.run(
        command(*args), capture_output=True, text=True, env=environment, timeout=PATIENCE_S
    )


@pytest.fixture(scope="session")
def controller() -> Iterator[Path]:
    """The home folder of a controller that runs for all tests that want one: eight made-up GPUs on two nodes."""
    home = Path(tempfile.mkdtemp(prefix="fairlead-"))  # short: sockets are made in it
    words = ["up", "--fake-gpus", "4", "--fake-nodes", "2", "--port", "0", "--detach"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "FAIRLEAD_ENGINE_WAKE_S": "0"}
    program = "from fairlead.cli.main import run; run()"
    line = [sys.executable, "-c", program]
    done = subprocess.run([*line, *words, "--home", str(home)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield home
    done = subprocess.run([*line, "down", "--kill-jobs", "--home", str(home)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(home)


@pytest.fixture
def live(controller: Path, fairlead: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, for that controller."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(controller))
    for name in ("FAIRLEAD_URL", "FAIRLEAD_TOKEN", "FAIRLEAD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return fairlead


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """Four jobs on at most four GPUs."""
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,4,100\nb,10,2,50\nc,20,4,30\nd,30,1,10\n")
    return path
