"""`fairlead whatif`, as a command of a group of its own until the main one has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fairlead.cli.main import Group
from fairlead.cli.whatif import whatif
from fairlead.model.cluster import parse_shape
from fairlead.model.snapshot import Snapshot, SnapshotJob
from tests.cli.conftest import assert_a_clear_error

app = typer.Typer(cls=Group, pretty_exceptions_enable=False)
app.command("whatif")(whatif)
app.command("other")(lambda: None)


@pytest.fixture
def run() -> Callable[..., Result]:
    return lambda *args: CliRunner().invoke(app, ["whatif", *map(str, args)], prog_name="fairlead")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    runs = SnapshotJob(1, "a", "ann", 0.0, 4, 4, 4, state="running", placement=(0, 1, 2, 3), starts=1, left_s=100.0)
    jobs = (runs, SnapshotJob(2, "b", "bob", 1.0, 8, 8, 8, left_s=50.0), SnapshotJob(3, "c", "bob", 2.0, 1, 1, 1))
    path = tmp_path / "state.json"
    path.write_text(json.dumps(Snapshot(100.0, "fifo", parse_shape("2x4"), jobs).to_dict()))
    return path


def test_without_a_change_it_predicts(run: Callable[..., Result], state: Path) -> None:
    done = run("--snapshot", state)
    assert done.exit_code == 0, done.stderr
    assert "b (2)" in done.stdout
    assert "run time unknown, guessed from jobs of the same profile and user: c" in done.stderr
    told = json.loads(run("--snapshot", state, "--json").stdout)
    assert [job["end_s"] for job in told["jobs"]] == [200.0, 250.0, 300.0]


def test_a_change_is_compared_with_how_it_is(run: Callable[..., Result], state: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "mine"\ngpus = 8\nduration_s = 30\n[[job]]\nduration_s = 5.5\n')
    options = ("--snapshot", state, "--policy", "fifo-greedy", "--nodes", "+1", "--job", "gpus=2,duration_s=9")
    told = json.loads(run(*options, "--job", jobs, "--json").stdout)
    assert told["changed"] == ["policy fifo-greedy", "1 node more", "3 jobs more"]
    assert [job["name"] for job in told["what_if"]["jobs"]] == ["a", "b", "c", "new-1", "mine", "new-3"]
    done = run(*options)
    assert "what if: policy fifo-greedy" in done.stdout
    assert json.loads(run("--snapshot", state, "--nodes", "-1", "--json").stdout)["changed"] == ["1 node fewer"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--job", "gpus"), "'gpus' is not FIELD=VALUE"),
        (("--job", "gpus=1,gpus=2"), "gives gpus twice"),
        (("--job", "gpus=many"), "job 1 to add: gpus"),
        (("--job", "gpu=1"), "gpu"),
        (("--job", "absent.toml"), "absent.toml: no such file"),
        (("--policy", "nosuch"), "nosuch"),
        (("--nodes", "-2"), "leaves none"),
    ],
)
def test_a_mistake_is_named(run: Callable[..., Result], state: Path, args: tuple[str, ...], named: str) -> None:
    assert_a_clear_error(run("--snapshot", state, *args), named)


@pytest.mark.parametrize("text", ["job = 3", "[[jobs]]\ngpus = 1", "", "[[job]]\ngpus = 1\n[other]\n", "= 3"])
def test_a_file_without_jobs_is_named(run: Callable[..., Result], state: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    assert_a_clear_error(run("--snapshot", state, "--job", path), "jobs.toml")


def test_a_bad_snapshot_is_named(run: Callable[..., Result], tmp_path: Path) -> None:
    assert_a_clear_error(run("--snapshot", tmp_path / "absent.json"), "absent.json: no such file")
    bad = tmp_path / "bad.json"
    bad.write_text('{"version": 7}')
    assert_a_clear_error(run("--snapshot", bad), "version is 7, expected 1")
