"""`fairlead measure` on GPUs, without one: a made-up meter, commands that only print, and who reads what it writes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.measure.counters import read_counters
from fairlead.node.gpu import nvml
from fairlead.node.gpu.fake_gpus import FakeMeter
from tests.cli.conftest import assert_a_clear_error

Fairlead = Callable[..., Any]
TICK = "import sys, time\nwhile True: time.sleep(0.02); print('step', flush=True)"
QUICK = ("--seconds", 1, "--warm-steps", 2)


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> FakeMeter:
    made = FakeMeter(2)
    for index in range(2):
        made.set_load(index, 1, 0.5, 7_000.0)
    monkeypatch.setattr(nvml, "NvmlMeter", lambda: made)
    return made


def ticking(name: str) -> tuple[str, str]:
    return "--command", f"{name}={shlex.join([sys.executable, '-S', '-c', TICK])}"


def test_counters_are_what_classes_read(fairlead: Fairlead, tmp_path: Path) -> None:
    out = tmp_path / "counters.csv"
    done = fairlead("measure", "counters", *ticking("a"), *ticking("b"), *QUICK, "--out", out)
    assert done.exit_code == 0, done.output
    assert "a (alone):" in done.stderr
    found = read_counters(out)
    assert [one.application for one in found] == ["a", "b"]
    assert [(one.dram_frac, one.fma_frac) for one in found] == [(pytest.approx(0.15), pytest.approx(0.4))] * 2


def test_jobs_together_are_what_the_simulator_reads(fairlead: Fairlead, tmp_path: Path) -> None:
    out = tmp_path / "colocation.json"
    line = ("measure", "colocation", *ticking("a"), *ticking("b"), "--no-mps", *QUICK, "--out", out, "--json")
    done = fairlead(*line)
    assert done.exit_code == 0, done.output
    runs = json.loads(done.stdout)["runs"]
    assert [(run["names"], run["way"]) for run in runs] == [(["a"], "alone"), (["b"], "alone"), (["a", "b"], "sliced")]
    assert runs[0]["means"]["memory_used_mib"] == 7_000.0
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s,model\n1,0,1,600,a\n2,0,1,600,b\n")
    read = fairlead(
        "simulate", "--trace", trace, "--cluster", "1x1:H200", "--policy", "eaco:utilisation=1.0", "--json",
        "--profiles", tmp_path / "colocation.profiles.toml", "--interference", tmp_path / "colocation.sliced.json",
    )  # fmt: skip
    assert read.exit_code == 0, read.output
    assert json.loads(read.stdout)["makespan_s"] < 1200.0, "they share"


def test_scaling_gives_a_profile_with_its_speedup(fairlead: Fairlead, tmp_path: Path) -> None:
    out = tmp_path / "scaling.json"
    done = fairlead("measure", "scaling", *ticking("a"), *QUICK, "--out", out)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(out.read_text())["types"]
    assert found["widths"] == [1.0, 2.0]
    assert "speedup" in (tmp_path / "scaling.profiles.toml").read_text()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (("counters", "--command", "no-equals"), "expected NAME=COMMAND"),
        (("counters", "--command", "a=sleep 1", "--gpu", 7), "this machine has 2 GPUs"),
        (("colocation", "--command", "a=sleep 1"), "expected 2 or more"),
        (("scaling", "--command", "a=sleep 1", "--widths", "1,x"), "expected whole numbers"),
        (("scaling", "--command", "a=sleep 1", "--widths", "1,4"), "from 1 to 2"),
    ],
)
def test_a_mistake_is_told(fairlead: Fairlead, tmp_path: Path, line: tuple[object, ...], named: str) -> None:
    assert_a_clear_error(fairlead("measure", *line, "--out", tmp_path / "out.json"), named)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["counters", "colocation", "scaling"])
def test_a_folder_that_is_not_there_is_told_before_anything_runs(fairlead: Fairlead, tmp_path: Path, what: str) -> None:
    never = ("--command", "a=/no/such/command", "--command", "b=/no/such/command")
    done = fairlead("measure", what, *never, "--out", tmp_path / "absent" / "out.json")
    assert_a_clear_error(done, "expected a file in a folder that exists")
