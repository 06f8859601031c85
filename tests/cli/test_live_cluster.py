from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.conftest import assert_a_clear_error
from tests.cli.test_live_jobs import awaited, data, submitted
from tests.patience import PATIENCE_S

Live = Callable[..., Result]


def test_nodes_are_shown_with_their_gpus_and_who_is_on_them(live: Live) -> None:
    job = submitted(live, "--name", "resident", "--grace", "0s", "--", "sleep", "600")
    awaited(live, job, "running")
    found = data(live("nodes", "--json"))
    assert found["is_fake"] is True
    assert [len(node["gpus"]) for node in found["nodes"]] == [4, 4]
    assert job in [one["id"] for node in found["nodes"] for gpu in node["gpus"] for one in gpu["jobs"]]
    done = live("nodes")
    assert f"{job} resident" in done.stdout
    assert "H200" in done.stdout
    assert "made up" in done.stderr
    assert live("cancel", job).exit_code == 0


def test_a_gpu_and_a_node_are_drained_and_resumed(live: Live) -> None:
    found = data(live("nodes", "drain", "node-1:2", "--json"))
    assert found == {"name": "node-1:2", "gpus": ["node-1:2"], "is_drained": True}
    assert "drained" in live("nodes").stdout
    assert "takes no new jobs" in live("nodes", "drain", "node-1").stderr
    assert "takes jobs again" in live("nodes", "resume", "node-1").stderr
    assert not any(gpu["is_drained"] for node in data(live("nodes", "--json"))["nodes"] for gpu in node["gpus"])
    assert_a_clear_error(live("nodes", "drain", "node-9"), "no node or GPU 'node-9'")
    assert data(live("nodes", "enable", "node-1", "--json")) == {"name": "node-1", "gpus": []}
    assert "no guard had disabled it" in live("nodes", "enable", "node-1:2").stderr


def test_events_are_told_the_last_ones_first_wanted(live: Live) -> None:
    job = submitted(live, "--wait", "--name", "eventful", "--", "true")
    of_job = data(live("events", "--job", "eventful", "--json"))["events"]
    assert {event["job_id"] for event in of_job} == {job}
    assert [event["what"] for event in of_job if event["what"] in ("placed", "finished")] == ["placed", "finished"]
    assert len(data(live("events", "--last", "2", "--json"))["events"]) == 2
    assert f"job {job}" in live("events").stdout
    assert_a_clear_error(live("events", "--job", "no-such"), "no job is called 'no-such'")


def test_events_are_followed_one_object_a_line(
    live: Live, command: Callable[..., list[str]], environment: dict[str, str], controller: Path
) -> None:
    line = command("events", "--follow", "--last", "0", "--json", "--home", controller)
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        ended = threading.Event()
        chatter = threading.Thread(
            target=lambda: [submitted(live, "--wait", "--", "true") for _ in iter(ended.is_set, True)]
        )
        chatter.start()  # goes on until it is heard, however late the other began to listen
        heard = json.loads(running.stdout.readline())
        ended.set()
        chatter.join()
        assert heard["id"] > 0
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130


def test_one_picture_has_the_cluster_the_jobs_and_the_events(live: Live) -> None:
    job = submitted(live, "--name", "pictured", "--grace", "0s", "--", "sleep", "600")
    awaited(live, job, "running")
    held = submitted(live, "--name", "put-aside", "--hold", "--", "true")
    shown = live("top", "--once").stdout
    for word in ("FAKE GPUs", "2 nodes x 4 H200", "sharing=eaco", "node-1:3", "pictured", "put-aside", "placed"):
        assert word in shown, word
    found = data(live("top", "--once", "--json"))
    assert job in [one["id"] for one in found["running"]]
    assert held in [one["id"] for one in found["waiting"]]
    assert found["summary"]["gpus"]["all"] == 8
    assert live("cancel", job, held).exit_code == 0


@pytest.mark.parametrize("words", [("top",), ("jobs", "--all", "--watch")])
def test_in_a_terminal_the_picture_is_renewed_until_ctrl_c(
    live: Live, command: Callable[..., list[str]], environment: dict[str, str], controller: Path, words: tuple[str, ...]
) -> None:
    job = submitted(live, "--name", "watched", "--hold", "--", "true")
    ours, theirs = pty.openpty()
    line = command(*words, "--home", controller)
    with subprocess.Popen(line, env={**environment, "TERM": "xterm"}, stdout=theirs, stderr=subprocess.PIPE) as running:
        os.close(theirs)
        drawn = b""
        while b"watched" not in drawn and (piece := os.read(ours, 65536)):
            drawn += piece
        assert live("cancel", job).exit_code == 0
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # what a terminal reports when its last user has left
            while os.read(ours, 65536):
                pass
        complained = running.communicate(timeout=PATIENCE_S)[1]
    os.close(ours)
    assert running.returncode == 0, complained
    assert complained == b""


def test_the_future_of_the_cluster_is_predicted(live: Live) -> None:
    job = submitted(live, "--name", "foreseen", "--grace", "0s", "--estimate", "1h", "--", "sleep", "600")
    awaited(live, job, "running")
    found = data(live("whatif", "--json"))
    assert job in [one["id"] for one in found["jobs"]]
    assert live("whatif", "--policy", "fifo").exit_code == 0
    assert live("cancel", job).exit_code == 0


def test_a_token_lets_its_user_in_until_it_is_revoked(live: Live, controller: Path, monkeypatch: Any) -> None:
    made = data(live("token", "create", "guest", "--note", "for a test", "--json"))
    url = (controller / "url").read_text().strip()
    assert made["url"] == url
    ours = submitted(live, "--hold", "--", "true")
    listed = data(live("token", "list", "--json"))["tokens"]
    assert [(one["user"], one["role"], one["note"]) for one in listed if one["id"] == made["id"]] == [
        ("guest", "user", "for a test")
    ]
    assert made["token"] not in json.dumps(listed)

    monkeypatch.setenv("FAIRLEAD_HOME", "/nonexistent")
    monkeypatch.setenv("FAIRLEAD_URL", url)
    monkeypatch.setenv("FAIRLEAD_TOKEN", made["token"])
    assert ours not in [job["id"] for job in data(live("jobs", "--all", "--json"))["jobs"]]
    assert_a_clear_error(live("status", ours), f"there is no job {ours}")
    assert_a_clear_error(live("nodes", "drain", "node-0"), "this needs operator")
    done = live("submit", "--hold", "--", "true")
    if os.geteuid() == 0:  # then jobs run under their users' accounts
        assert_a_clear_error(done, "this machine has no account 'guest'")
    else:
        assert done.exit_code == 0
    assert_a_clear_error(live("token", "list"), "this needs admin")

    monkeypatch.setenv("FAIRLEAD_HOME", str(controller))
    monkeypatch.delenv("FAIRLEAD_URL")
    monkeypatch.delenv("FAIRLEAD_TOKEN")
    assert "is revoked" in live("token", "revoke", made["id"]).stderr
    assert "revoked" in live("token", "list").stdout
    monkeypatch.setenv("FAIRLEAD_TOKEN", made["token"])
    assert_a_clear_error(live("jobs"), "no valid token")
    monkeypatch.delenv("FAIRLEAD_TOKEN")
    assert live("cancel", ours).exit_code == 0


def test_a_token_is_rotated_also_the_homes_own_and_the_audit_log_tells_of_it(live: Live, controller: Path) -> None:
    made = data(live("token", "create", "turner", "--expires", "2d", "--json"))
    done = live("token", "rotate", made["id"], "--keep", "1h")
    assert done.stdout.startswith("fl_")
    rows = {one["id"]: one for one in data(live("token", "list", "--json"))["tokens"]}
    assert rows[made["id"]]["expires_at_s"] - rows[made["id"]]["created_at_s"] < 2 * 3600
    before = (controller / "token").read_text()
    assert live("token", "rotate").exit_code == 0
    assert (controller / "token").read_text() != before
    assert live("jobs").exit_code == 0
    acts = data(live("audit", "--last", 3, "--json"))["acts"]
    assert [one["what"] for one in acts] == ["token-created", "token-rotated", "token-rotated"]
    assert "token-rotated" in live("audit").stdout
    assert "nothing of that kind" in live("audit", "--user", "nobody-like-this").stderr
    assert_a_clear_error(live("token", "create", "x", "--expires", "soon"), "expected a duration")
    assert_a_clear_error(live("token", "create", "x", "--expires", "0s"), "would never be valid")


def test_a_token_is_printed_alone_on_stdout(live: Live) -> None:
    done = live("token", "create", "visitor", "--role", "operator")
    assert done.stdout.startswith("fl_")
    assert len(done.stdout.split()) == 1
    assert "FAIRLEAD_TOKEN" in done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["create", "guest", "--role", "king"], "role"),
        (["create", "-"], "user"),
        (["revoke", "987654"], "there is no token 987654"),
    ],
)
def test_a_mistake_about_tokens_is_named(live: Live, words: list[str], named: str) -> None:
    assert_a_clear_error(live("token", *words), named)


def test_the_configuration_is_shown_with_its_sources(live: Live, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("[server]\nport = 7400\n")
    monkeypatch.setenv("FAIRLEAD_POLICY_STACK", "fifo")
    found = data(live("config", "show", "--config", file, "--json"))
    assert found["server.port"] == {"value": 7400, "source": f"{file}:2"}
    assert found["policy.stack"] == {"value": "fifo", "source": "FAIRLEAD_POLICY_STACK"}
    shown = live("config", "show", "--config", file).stdout
    assert f"{file}:2" in shown
    assert "guard.rate.period_s" in shown


def test_a_configuration_file_is_checked(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("[server]\nport = 7400\n")
    assert data(live("config", "check", file, "--json")) == {"file": str(file), "settings": ["server.port"]}
    assert "is good" in live("config", "check", file).stderr
    file.write_text("[server]\nprot = 7400\n")
    done = live("config", "check", file)
    assert_a_clear_error(done, "unknown key 'server.prot'")
    assert "did you mean 'port'?" in done.stderr
