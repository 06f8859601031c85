"""What was recorded of GPUs over time: it adds up to what the meters say, whatever happens."""

from __future__ import annotations

import polars as pl
import pytest

import fairlead
from fairlead.sim.recording import Occupancy
from fairlead.sim.result import Result

RUNS = {
    "plain": {"policy": "fifo-easy"},
    "preempted": {"policy": "las"},
    "shared": {"policy": "eaco"},
    "failing": {"policy": "srtf", "mtbf_h": 20.0, "repair_h": 2.0},
    "rented": {"policy": "ordering=fifo,powering=rent", "rent": "default"},
    "rounds": {"policy": "tiresias", "round_s": 360.0},
}


def run(name: str) -> tuple[Result, Occupancy]:
    result = fairlead.simulate("synthetic:philly:jobs=150", "8x4", record=True, **RUNS[name])  # type: ignore[arg-type]
    assert result.occupancy is not None
    return result, result.occupancy


@pytest.mark.parametrize("name", RUNS)
def test_gpu_time_adds_up_to_what_was_metered(name: str) -> None:
    result, found = run(name)
    lasted = pl.col("end_s") - pl.col("start_s")
    held_s = found.held.select((lasted * pl.col("jobs").list.len()).sum()).item()
    assert held_s / 3600.0 == pytest.approx(result.summary["gpu_hours"])
    by_job = (
        found.held.select("jobs", lasted.alias("lasted_s")).explode("jobs").group_by("jobs").agg(pl.sum("lasted_s"))
    )
    told = (
        result.jobs.with_row_index("jobs").select(pl.col("jobs").cast(pl.Int64), "gpu_s").join(by_job, "jobs", "left")
    )
    assert told["lasted_s"].to_list() == pytest.approx(told["gpu_s"].to_list())


@pytest.mark.parametrize("name", RUNS)
def test_nothing_overlaps_and_nobody_runs_where_the_node_is_off(name: str) -> None:
    found = run(name)[1]
    assert found.held.filter((pl.col("start_s") < pl.col("end_s").shift().over("gpu")).fill_null(False)).is_empty()
    for node, start_s, end_s, _ in found.off.iter_rows():
        gpus = range(4 * node, 4 * node + 4)
        meets = (pl.col("start_s") < end_s - 1e-9) & (pl.col("end_s") > start_s + 1e-9)
        assert found.held.filter(pl.col("gpu").is_in(gpus) & meets).is_empty()
    words = {"failing": {"down"}, "rented": {"not rented", "booting"}}
    assert set(found.off["state"]) == (words.get(name, set()) if name != "shared" else set(found.off["state"]))
    assert found.nodes == tuple((f"n{number}", 4) for number in range(8))
    if name == "shared":
        assert found.held["jobs"].list.len().max() > 1  # type: ignore[operator]


def test_nothing_is_recorded_unless_asked_for_and_results_are_the_same() -> None:
    plain = fairlead.simulate("synthetic:philly:jobs=150", "8x4", policy="las")
    assert plain.occupancy is None
    assert plain.jobs.equals(run("preempted")[0].jobs)
