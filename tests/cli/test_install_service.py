"""`fairlead install-service` writes a unit that systemd takes, and starts it."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import assert_a_clear_error

Fairlead = Callable[..., Any]


def parsed(unit: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(unit)
    return found


def fake_systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    """One that writes down what it was asked."""
    said = folder / "asked"
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\necho refused >&2\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return said


def test_the_unit_runs_this_fairlead_and_leaves_jobs_alone(fairlead: Fairlead, tmp_path: Path) -> None:
    unit = parsed(fairlead("install-service", "--print", "--home", tmp_path).stdout)
    assert unit["Service"]["ExecStart"] == f'"{sys.executable}" -m fairlead up'
    assert unit["Service"]["Environment"] == f'"FAIRLEAD_HOME={tmp_path}"'
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert parsed(fairlead("install-service", "--print", "--user").stdout)["Install"]["WantedBy"] == "default.target"


def test_a_service_of_ones_own_is_written_enabled_and_started(
    fairlead: Fairlead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake_systemctl(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = fairlead("install-service", "--user", "--home", tmp_path / "home", "--json")
    assert done.exit_code == 0, done.output
    path = tmp_path / "config" / "systemd" / "user" / "fairlead.service"
    assert json.loads(done.stdout) == {"unit": str(path), "home": str(tmp_path / "home"), "started": True}
    assert "Restart" in parsed(path.read_text())["Service"]
    assert asked.read_text().splitlines() == ["--user daemon-reload", "--user enable --now fairlead.service"]


def test_only_written_where_it_is_told_to(fairlead: Fairlead, tmp_path: Path) -> None:
    assert fairlead("install-service", "--to", tmp_path).exit_code == 0
    assert (tmp_path / "fairlead.service").is_file()


def test_a_systemd_that_refuses_and_a_path_that_it_cannot_take_are_told(
    fairlead: Fairlead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_a_clear_error(fairlead("install-service", "--print", "--home", tmp_path / "50%"), "50%")
    fake_systemctl(tmp_path, monkeypatch, status=1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = fairlead("install-service", "--user")
    assert done.exit_code == 1
    assert "systemctl --user daemon-reload: refused" in done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_itself_finds_nothing_wrong(fairlead: Fairlead, tmp_path: Path) -> None:
    fairlead("install-service", "--to", tmp_path)
    line = ["systemd-analyze", "verify", str(tmp_path / "fairlead.service")]
    assert subprocess.run(line, capture_output=True).returncode == 0
