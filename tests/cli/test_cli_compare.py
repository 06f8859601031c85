from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Fairlead = Callable[..., Any]


def test_json_has_the_runs_in_the_order_that_was_asked_for(process: Fairlead, trace_file: Path) -> None:
    policies = ("srtf", "fifo", "fifo:backfill=greedy")
    chosen = (word for policy in policies for word in ("--policy", policy))
    done = process("compare", *chosen, "--trace", trace_file, "--cluster", "1x4", "--workers", 2, "--json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["name"] for run in runs] == list(policies)
    assert runs[1]["mean_jct_s"] == 140
    assert runs[2]["mean_jct_s"] < runs[1]["mean_jct_s"]
    assert done.stderr == ""


def test_by_default_a_handful_of_policies_run_the_demo(process: Fairlead, tmp_path: Path) -> None:
    done = process("compare", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    for policy in ("fifo", "fifo-greedy", "las", "srtf"):
        assert policy in done.stdout
    assert "*" in done.stdout
    assert done.stderr == f"report: {tmp_path / 'report.html'}\n"
    assert len(list(tmp_path.glob("jobs-*.parquet"))) == 6


def test_compare_and_simulate_agree(fairlead: Fairlead, trace_file: Path) -> None:
    where = ("--trace", trace_file, "--cluster", "1x4", "--json")
    alone = json.loads(fairlead("simulate", "--policy", "las", *where).stdout)
    [run] = json.loads(fairlead("compare", "--policy", "las", *where).stdout)["runs"]
    for measured in ("wall_s", "skipped_rows", "name"):
        alone.pop(measured, None), run.pop(measured, None)
    assert run == alone
