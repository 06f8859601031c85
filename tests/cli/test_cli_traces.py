from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fairlead = Callable[..., Any]


def test_describe_says_what_is_in_a_trace(fairlead: Fairlead, trace_file: Path) -> None:
    about = json.loads(fairlead("traces", "describe", trace_file, "--json").stdout)
    assert about["jobs"] == 4
    table = fairlead("traces", "describe", trace_file).stdout
    assert all(name in table for name in about if not isinstance(about[name], dict))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_generated_trace_can_be_simulated(fairlead: Fairlead, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"made.{ending}"
    done = fairlead("traces", "generate", "philly", "--jobs", 30, "--seed", 7, "--out", path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"wrote: {path} (30 jobs)\n"
    assert json.loads(fairlead("simulate", "--trace", path, "--json").stdout)["jobs"] == 30


def test_the_same_seed_generates_the_same_file(fairlead: Fairlead, tmp_path: Path) -> None:
    for name, seed in (("a.csv", 1), ("b.csv", 1), ("c.csv", 2)):
        fairlead("traces", "generate", "philly", "--jobs", 50, "--seed", seed, "--out", tmp_path / name)
    first, second, third = ((tmp_path / name).read_bytes() for name in ("a.csv", "b.csv", "c.csv"))
    assert first == second != third


def test_a_converted_trace_gives_the_same_result(fairlead: Fairlead, trace_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "other.parquet"
    done = fairlead("traces", "convert", trace_file, out, "--json")
    assert json.loads(done.stdout) == {"path": str(out), "jobs": 4, "skipped_rows": 0, "notes": []}
    runs = [
        json.loads(fairlead("simulate", "--trace", path, "--cluster", "1x4", "--json").stdout)
        for path in (trace_file, out)
    ]
    assert runs[0]["mean_jct_s"] == runs[1]["mean_jct_s"]
