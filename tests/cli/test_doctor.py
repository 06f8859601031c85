"""`fairlead doctor` answers on any machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

Fairlead = Callable[..., Any]


def test_it_says_what_there_is(fairlead: Fairlead) -> None:
    done = fairlead("doctor")
    assert done.exit_code == 0
    for name in ("GPUs", "MPS", "C compiler", "shared memory", "jobs", "root", "cgroup v2", "Slurm"):
        assert name in done.stdout


def test_json_has_every_finding(fairlead: Fairlead) -> None:
    found = json.loads(fairlead("doctor", "--json").stdout)
    names = [one["name"] for one in found["findings"]]
    assert len(set(names)) == len(names) >= 8
    assert all(one["costs"] for one in found["findings"] if one["works"] is False)


def test_a_machine_that_has_nothing_gets_an_answer_and_no_traceback(
    command: Callable[..., list[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    program = "import sys; sys.modules['pynvml'] = None; from fairlead.cli.main import run; run()"
    env = {**environment, "PATH": str(tmp_path)}
    line = [sys.executable, "-W", "error", "-c", program, "doctor", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    works = {one["name"]: one["works"] for one in json.loads(done.stdout)["findings"]}
    assert not any(works[name] for name in ("GPUs", "MPS", "C compiler", "Slurm"))


def test_a_check_that_breaks_is_a_finding(fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlead.node import doctor

    def fail(*_: object) -> None:
        raise RuntimeError("unheard of")

    monkeypatch.setattr(doctor.os, "access", fail)
    monkeypatch.setattr(doctor.NvmlMeter, "__init__", fail)
    done = fairlead("doctor", "--json")
    assert done.exit_code == 0
    findings = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert findings["GPUs"]["works"] is None
    assert "unheard of" in findings["shared memory"]["found"]


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at what root sees")
def test_root_is_told_apart(fairlead: Fairlead) -> None:
    findings = {one["name"]: one for one in json.loads(fairlead("doctor", "--json").stdout)["findings"]}
    assert findings["root"]["works"] is True


def test_what_is_missing_comes_with_the_command_that_adds_it(
    fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.node import doctor

    monkeypatch.setattr(doctor, "PACKAGES", {"no_such_module": "no-such-package"})
    monkeypatch.setattr(doctor, "COMPILERS", ("no-such-compiler",))
    monkeypatch.setattr(doctor, "_MANAGERS", (("sh", "apt-get install"),))
    found = {one["name"]: one for one in json.loads(fairlead("doctor", "--json").stdout)["findings"]}
    assert found["packages"]["found"] == "missing: no-such-package"
    assert found["packages"]["fix"].endswith("-m pip install 'fairlead[live]'")
    assert found["C compiler"]["fix"] == "sudo apt-get install gcc"
    assert "to add it: sudo apt-get install gcc" in fairlead("doctor").stdout
