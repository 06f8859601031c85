"""Rented clusters and measured applications from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

Fairlead = Callable[..., Any]
TRACE = "synthetic:poisson:rate_per_h=30:elastic=true:jobs=60"
GOODPUTS = "app,epoch,gpus,goodput_samples_per_s,samples\na,0,1,10,1000\na,0,4,40,1000\na,1,1,10,600\na,1,4,20,600\n"


def test_a_rented_node_is_paid_from_its_order_and_never_less_than_the_minimum(
    fairlead: Fairlead, trace_file: Path
) -> None:
    # One node is wanted from 0 on. With the boot, a runs 100-200, b 200-250, c 250-280, d 280-290.
    options = ("simulate", "--trace", trace_file, "--cluster", "1x4", "--policy", "fifo,powering=rent", "--json")
    summary = json.loads(fairlead(*options, "--rent", "boot=100").stdout)
    assert summary["makespan_s"] == 290
    assert summary["gpu_hours_paid"] == pytest.approx(4 * 290 / 3600)
    assert summary["gpus_paid_mean"] == pytest.approx(4)
    assert summary["cost_usd"] == pytest.approx(2.50 * 4 * 290 / 3600)
    assert summary["node_rentals"] == 1
    assert json.loads(fairlead(*options, "--rent", "boot=0").stdout)["makespan_s"] == 190


def test_the_table_of_a_rented_run_says_what_is_paid(fairlead: Fairlead, trace_file: Path) -> None:
    options = ("simulate", "--trace", trace_file, "--cluster", "1x4")
    owned = fairlead(*options).stdout
    rented = fairlead(*options, "--rent", "default", "--policy", "fifo,powering=rent").stdout
    for line in ("GPU-hours paid", "GPUs paid on average", "node rentals"):
        assert line in rented
        assert line not in owned
    assert "cost" in rented


def test_a_rented_run_is_reported_with_its_resizes_and_paid_gpus(fairlead: Fairlead, tmp_path: Path) -> None:
    done = fairlead(
        "simulate", "--trace", TRACE, "--cluster", "16x4:T4", "--rent", "default", "--restart-s", 30,
        "--policy", "pollux:target=0.6,powering=rent", "--out", tmp_path, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    jobs, timeline = pl.read_parquet(tmp_path / "jobs.parquet"), pl.read_parquet(tmp_path / "timeline.parquet")
    assert summary["resizes"] == jobs["resizes"].sum() > 0
    paid_s = (timeline["paid_gpus"] * (timeline["end_s"] - timeline["start_s"])).sum()
    assert paid_s / 3600 == pytest.approx(summary["gpu_hours_paid"])
    assert "GPUs paid" in (tmp_path / "report.html").read_text()


def test_compare_shows_what_each_policy_pays(fairlead: Fairlead) -> None:
    where = ("--trace", TRACE, "--cluster", "16x4:T4", "--rent", "default", "--workers", 1)
    policies = ("--policy", "static,powering=rent", "--policy", "sizing=static")
    done = fairlead("compare", *where, *policies)
    assert done.exit_code == 0, done.stderr
    assert "GPUs paid" in done.stdout
    # The second keeps all nodes, and is told so.
    assert "keeps and pays all of them" in done.stderr
    runs = json.loads(fairlead("compare", *where, *policies, "--json").stdout)["runs"]
    assert runs[0]["gpus_paid_mean"] < runs[1]["gpus_paid_mean"] == pytest.approx(64)
    assert runs[1]["node_rentals"] == 0


def test_the_terms_of_a_cluster_file_hold_and_rent_wins_over_them(
    fairlead: Fairlead, trace_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rented.toml"
    file.write_text("[[nodes]]\ngpus = 4\n[rental]\nboot_s = 50\n")
    options = ("simulate", "--trace", trace_file, "--cluster", file, "--policy", "fifo,powering=rent", "--json")
    assert json.loads(fairlead(*options).stdout)["makespan_s"] == 240
    assert json.loads(fairlead(*options, "--rent", "boot=100").stdout)["makespan_s"] == 290


def test_applications_train_as_their_table_says(fairlead: Fairlead, tmp_path: Path) -> None:
    trace, table = tmp_path / "trace.csv", tmp_path / "goodputs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s,profile,max_gpus\nx,0,1,7,a,4\ny,0,1,50,b,1\n")
    table.write_text(GOODPUTS + "c,0,1,1,1\n")
    options = ("simulate", "--trace", trace, "--cluster", "2x4", "--training", table, "--json")
    done = fairlead(*options)
    # On one GPU 1000/10 + 600/10 seconds, whatever the trace says; on four 1000/40 + 600/20.
    assert json.loads(done.stdout)["makespan_s"] == pytest.approx(160)
    assert "no job of the trace has these profiles: c" in done.stderr
    assert "nothing is known of how these train, their jobs run as their profile says: b" in done.stderr
    wide = json.loads(fairlead(*options, "--policy", "sizing=static:width_gpus=4").stdout)
    assert wide["makespan_s"] == pytest.approx(55)
    assert wide["notes"]
