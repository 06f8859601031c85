from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

Fairlead = Callable[..., Any]

PROMISED = {
    "jobs",
    "mean_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "makespan_s",
    "gpu_busy_frac",
    "gpu_hours",
    "energy_j",
    "cost_usd",
    "preemptions",
    "events",
    "wall_s",
}


def test_json_is_one_object_and_all_of_stdout(process: Fairlead, trace_file: Path, tmp_path: Path) -> None:
    done = process(
        "simulate", "--trace", trace_file, "--cluster", "1x4", "--policy", "ordering=fifo,placing=packed-sticky",
        "--round-s", 360, "--locality", 1.7, "--seed", 1, "--restart-s", 0, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= PROMISED
    assert done.stderr == f"report: {tmp_path / 'out' / 'report.html'}\n"


def test_strict_fifo_gives_the_numbers_done_by_hand(fairlead: Fairlead, trace_file: Path) -> None:
    # a runs 0-100 on all GPUs, b 100-150 beside nobody as c (4 GPUs) blocks the queue, c 150-180, d 180-190.
    summary = json.loads(fairlead("simulate", "--trace", trace_file, "--cluster", "1x4", "--json").stdout)
    assert summary["jobs"] == 4
    assert summary["makespan_s"] == 190
    assert summary["mean_jct_s"] == (100 + 140 + 160 + 160) / 4
    assert summary["gpu_hours"] == pytest.approx((400 + 100 + 120 + 10) / 3600)


def test_without_json_a_table_is_printed(fairlead: Fairlead, trace_file: Path) -> None:
    done = fairlead("simulate", "--trace", trace_file, "--cluster", "1x4")
    assert done.exit_code == 0
    assert "mean completion time (JCT)" in done.stdout
    assert "2.33 min" in done.stdout


def test_the_built_in_demo_needs_no_options(fairlead: Fairlead) -> None:
    done = fairlead("simulate", "--jobs", 50, "--json")
    assert json.loads(done.stdout)["jobs"] == 50


def test_out_holds_one_row_per_job(fairlead: Fairlead, trace_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = fairlead("simulate", "--trace", trace_file, "--cluster", "1x4", "--out", out)
    assert done.exit_code == 0
    assert pl.read_parquet(out / "jobs.parquet")["job_id"].to_list() == ["a", "b", "c", "d"]
    assert "simulate --trace" in (out / "report.html").read_text()


def test_skipped_rows_are_counted_and_reported(process: Fairlead, trace_file: Path) -> None:
    trace_file.write_text(trace_file.read_text() + "e,40,1,-5\n")
    done = process("simulate", "--trace", trace_file, "--cluster", "1x4", "--skip-bad-rows", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["jobs"], summary["skipped_rows"]) == (4, 1)
    assert done.stderr.startswith("note: ")


def test_the_same_seed_gives_the_same_run(fairlead: Fairlead) -> None:
    options = ("simulate", "--jobs", 100, "--policy", "placing=random", "--mtbf-h", 200, "--seed", 5, "--json")
    first, second = (json.loads(fairlead(*options).stdout) for _ in range(2))
    del first["wall_s"], second["wall_s"]
    assert first == second
    assert first["node_failures"] > 0


def test_a_variability_file_slows_the_jobs_down(fairlead: Fairlead, trace_file: Path, tmp_path: Path) -> None:
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps({"gpus": [{"gpu": n, "A": 2.0} for n in range(4)]}))
    options = ("simulate", "--trace", trace_file, "--cluster", "1x4", "--json", "--variability", scores)
    assert json.loads(fairlead(*options).stdout)["makespan_s"] == 380


def test_profiles_from_a_file_are_those_of_the_jobs(fairlead: Fairlead, trace_file: Path, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[[profile]]\nname = "GENERIC"\nactivity_frac = 1.0\n\n[[profile]]\nname = "other"\n')
    options = ("simulate", "--trace", trace_file, "--cluster", "1x4", "--json")
    before, after = fairlead(*options), fairlead(*options, "--profiles", profiles)
    assert json.loads(after.stdout)["energy_j"] > json.loads(before.stdout)["energy_j"]
    assert "no job of the trace uses these profiles: other" in after.stderr
    profiles.write_text("[[profile]]\nactivity_frac = 2.0\n")
    wrong = fairlead(*options, "--profiles", profiles)
    assert wrong.exit_code == 2
    assert "profile 1: name" in wrong.stderr
