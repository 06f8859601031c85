from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.conftest import assert_a_clear_error
from tests.live.rig import agents_in
from tests.patience import PATIENCE_S

Process = Callable[..., subprocess.CompletedProcess[str]]
FAKE = ("--fake-gpus", "2", "--port", "0")


@pytest.fixture
def home(process: Process) -> Iterator[Path]:
    """A folder with a short path, in which nothing runs on."""
    made = Path(tempfile.mkdtemp(prefix="fairlead-"))
    yield made
    process("down", "--kill-jobs", "--home", made)
    shutil.rmtree(made)


def eventually(look: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found


def state(process: Process, home: Path, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process("status", job, "--home", home, "--json").stdout)
    return found


def test_it_answers_in_the_foreground_until_it_is_interrupted(
    command: Callable[..., list[str]], environment: dict[str, str], process: Process, home: Path
) -> None:
    line = command("up", *FAKE, "--home", home)
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        eventually(lambda: (home / "url").exists() or running.poll() is not None)
        assert process("jobs", "--home", home).returncode == 0
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, complained
    assert said == ""
    assert "the controller answers at http://127.0.0.1:" in complained
    assert "stopped; jobs go on" in complained
    assert "stopped; jobs go on" in (home / "controller.log").read_text()
    assert not (home / "url").exists()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_whoever_starts_it_without_tls_hears_of_it_also_where_it_is_detached(
    process: Process, home: Path, words: tuple[str, ...]
) -> None:
    done = process("up", *FAKE, "--home", home, "--detach", "--host", "0.0.0.0", *words)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "without TLS" in line]
    assert len(warned) == 1
    assert warned[0].startswith("warning: listening on 0.0.0.0 without TLS")
    if words:
        assert json.loads(done.stdout)["url"].startswith("http://0.0.0.0:")


def test_a_mistyped_variable_is_told(process: Process, home: Path, environment: dict[str, str]) -> None:
    environment["FAIRLEAD_SERVER_PRT"] = "7400"
    refused = process("up", *FAKE, "--home", home, "--detach")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: the environment has FAIRLEAD_SERVER_PRT")
    assert "did you mean FAIRLEAD_SERVER_PORT?" in refused.stderr
    del environment["FAIRLEAD_SERVER_PRT"]
    environment["FAIRLEAD_HOEM"] = str(home)
    assert "note: the environment has FAIRLEAD_HOEM" in process("jobs", "--home", home).stderr


def test_what_it_keeps_is_for_its_owner_only(process: Process, home: Path) -> None:
    done = process("up", *FAKE, "--home", home, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"url": (home / "url").read_text().strip(), "home": str(home)}
    assert home.stat().st_mode & 0o077 in (0, 0o011)  # under root jobs of other accounts pass through
    for name in ("fairlead.db", "token", "url", "controller.log", "lock", "up.log"):
        assert (home / name).stat().st_mode & 0o077 == 0, name


def test_jobs_go_on_without_a_controller_and_the_next_one_takes_them_over(process: Process, home: Path) -> None:
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    token = (home / "token").read_text()
    script = f"while [ ! -e {home}/go ]; do sleep 0.1; done; echo through"
    job = process("submit", "--home", home, "--", "sh", "-c", script).stdout.strip()
    eventually(lambda: state(process, home, job)["state"] == "running")
    down = process("down", "--home", home, "--json")
    assert json.loads(down.stdout)["jobs_left_running"] == 1
    assert "no controller answers" in process("jobs", "--home", home).stderr

    (home / "go").touch()
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    assert (home / "token").read_text() == token
    over = eventually(lambda: (s := state(process, home, job))["state"] == "finished" and s)
    assert over["attempt"] == 1
    assert process("logs", job, "--home", home).stdout == "through\n"


def test_a_controller_that_was_killed_is_in_nobodys_way(process: Process, home: Path) -> None:
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    job = process("submit", "--hold", "--home", home, "--", "true").stdout.strip()
    killed = json.loads((home / "lock").read_text())["pid"]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: "no controller answers at http" in process("jobs", "--home", home).stderr)
    assert "no controller ran" in process("down", "--home", home).stderr
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    assert state(process, home, job)["state"] == "held"


def test_down_kills_jobs_only_where_it_is_told_to(process: Process, home: Path) -> None:
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    job = process("submit", "--home", home, "--", "sh", "-c", f"echo $$ > {home}/pid; exec sleep 600").stdout.strip()
    eventually(lambda: (home / "pid").exists() and (home / "pid").read_text().strip())
    eventually(lambda: state(process, home, job)["state"] == "running")
    done = process("down", "--kill-jobs", "--home", home)
    assert "killed" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((home / "pid").read_text()), 0)
    again = process("down", "--home", home)
    assert again.returncode == 0
    assert "no controller ran" in again.stderr


def test_down_tells_what_it_could_not_kill(process: Process, home: Path) -> None:
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    job = process("submit", "--home", home, "--", "sleep", "600").stdout.strip()
    eventually(lambda: state(process, home, job)["state"] == "running" and not state(process, home, job)["phase"])
    process("down", "--home", home)
    (agent,) = agents_in(home)
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: not agents_in(home))
    done = process("down", "--kill-jobs", "--home", home, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"stopped_pid": None, "jobs_left_running": 1, "jobs_killed": 0}
    assert f"jobs that still run: 1 ({job}); their agents do not answer: {home}/nodes/node-0" in done.stderr
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    again = process("down", "--kill-jobs", "--grace", "20s", "--home", home, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["jobs_killed"] == 1


def test_a_grace_for_jobs_that_are_not_ended_is_refused(fairlead: Callable[..., Result], tmp_path: Path) -> None:
    assert_a_clear_error(fairlead("down", "--grace", "20s", "--home", tmp_path), "--grace 20s without --kill-jobs")
    assert_a_clear_error(fairlead("down", "--kill-jobs", "--grace", "20", "--home", tmp_path), "--grace is '20'")


def test_a_second_controller_in_the_same_folder_is_refused(process: Process, home: Path) -> None:
    assert process("up", *FAKE, "--home", home, "--detach").returncode == 0
    for words in ((), ("--detach",)):
        done = process("up", *FAKE, "--home", home, *words)
        assert done.returncode == 2
        assert f"a controller runs in {home} already: process " in done.stderr
        assert (home / "url").read_text().strip() in done.stderr
        assert "Traceback" not in done.stderr


def test_a_port_that_somebody_has_is_named_before_anything_is_started(process: Process, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = process("up", "--fake-gpus", "2", "--port", port, "--home", home)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert not (home / "nodes").exists()


def test_a_database_of_a_later_version_is_left_alone(process: Process, home: Path) -> None:
    connection = sqlite3.connect(home / "fairlead.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    done = process("up", *FAKE, "--home", home)
    assert done.returncode == 2
    assert "version 999" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_named(fairlead: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = fairlead("up", "--fake-gpus", "2", "--home", tmp_path / "file")
    assert_a_clear_error(done, f"cannot write to {tmp_path / 'file'}")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "eac"], "unknown policy 'eac'"),
        (["--policy", "boa", "--fake-gpus", "2"], "rents nodes, but engine.rent has no terms"),
        (["--gpu-model", "H2000"], "unknown GPU model 'H2000'"),
        (["--port", "99999"], "--port 99999"),
        (["--config", "absent.toml"], "absent.toml: no such file"),
    ],
)
def test_a_mistake_is_named_before_anything_is_started(
    fairlead: Callable[..., Result], home: Path, words: list[str], named: str
) -> None:
    assert_a_clear_error(fairlead("up", "--home", home, *words), named)


def test_without_the_extra_it_says_what_to_install(
    fairlead: Callable[..., Result], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = fairlead("up", "--fake-gpus", "2", "--home", home)
    assert_a_clear_error(done, "needs fastapi")
    assert "fairlead[live]" in done.stderr


def test_rented_nodes_come_and_go(process: Process, home: Path) -> None:
    (home / "fairlead.toml").write_text(
        '[policy]\nstack = "fifo,powering=rent"\n[engine]\nfake_gpus = 2\nrent = "boot=0,minimum=0"\n'
    )
    assert process("up", "--port", "0", "--home", home, "--detach").returncode == 0
    done = process("submit", "--wait", "--home", home, "--", "true")
    assert done.returncode == 0, done.stderr
    what = [event["what"] for event in json.loads(process("events", "--home", home, "--json").stdout)["events"]]
    assert "node-rented" in what


@pytest.mark.parametrize(
    "words", [("jobs",), ("submit", "--", "true"), ("top", "--once"), ("nodes",), ("events",), ("token", "list")]
)
def test_without_a_controller_every_command_says_how_to_start_one(
    fairlead: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("FAIRLEAD_URL", raising=False)
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as once:
        dead = f"http://127.0.0.1:{once.getsockname()[1]}"
    for url in (None, dead):
        if url is not None:
            (tmp_path / "url").write_text(url)
            (tmp_path / "token").write_text("fl_x")
        done = fairlead(*words)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert f"no controller answers at {url or tmp_path}" in done.stderr
        assert "fairlead up --fake-gpus 8" in done.stderr


def test_the_demo_tells_its_story_and_leaves_nothing_behind(
    process: Process, home: Path, environment: dict[str, str]
) -> None:
    environment["TMPDIR"] = str(home)
    done = process("demo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    story, jobs = "\n".join(line["said"] for line in told["story"]), {job["name"]: job for job in told["jobs"]}
    assert {job["user"] for job in jobs.values()} == {"ana", "ben"}
    assert {job["state"] for job in jobs.values() if job["kind"] != "service"} == {"finished"}
    for beat in ("http://", "beside", "burst", "evicts it", "has moved and goes on from its checkpoint", "budget"):
        assert beat in story, beat
    evicted = [job for job in jobs.values() if any(a["reason"].startswith("evicted") for a in job["attempts"])]
    assert [job["epochs_done"] == job["epochs"] for job in evicted] == [True]
    assert told["as_it_ran"]["paid_gpus"] > 0.0
    assert told["without_sharing"]["is_simulated"] is True
    assert list(home.iterdir()) == []
