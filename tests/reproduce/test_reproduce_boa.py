"""The reproduction of BOA: its form on a small scale, and laws that hold whatever is run."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fairlead.errors import InputError
from fairlead.policy.sizing.type_tables import parse_types
from fairlead.report.claims import Claim, Reproduction
from fairlead.report.write import write_reproduction
from fairlead.reproduce import boa
from fairlead.reproduce.boa_pareto import Point, curve, frontier, jct_at
from fairlead.reproduce.boa_runs import CONTROLLED, WRONG, paid_mean, planned
from fairlead.reproduce.boa_setting import (
    BASELINES,
    BOA,
    DECLARED,
    OPTIMUS,
    STREAM,
    TESTBED_G4DN,
    TESTBED_T4,
    Scale,
    scenes,
)
from fairlead.sim.result import Result
from tests.made_up_results import MakeResult

FAIRLEAD = Path(sys.executable).with_name("fairlead")
SMALL = Scale(stream_jobs=200, traces=(1,), on_64=(), promise_jobs=30_000, thin=4, learning=False)


@pytest.fixture(scope="module")
def without_data() -> Reproduction:
    return boa.reproduce(None, scale=SMALL)


@pytest.fixture(scope="module")
def with_data(shared_data: Path) -> Reproduction:
    return boa.reproduce(shared_data, scale=SMALL)


def chosen(found: Reproduction, *parts: str) -> list[Claim]:
    rows = [row for row in found.rows if all(part in row.claim for part in parts)]
    assert rows, parts
    return rows


def check_form(found: Reproduction) -> None:
    claims = [row.claim for row in found.rows]
    assert len(set(claims)) == len(claims)
    for row in found.rows:
        assert math.isfinite(row.ours), row
        assert row.holds or row.note, row


def points_of(found: Reproduction) -> Mapping[tuple[str, str], list[Point]]:
    curves = found.as_json()["curves"]
    return {
        (c["trace"], c["policy"]): [Point(p["knob"], p["gpu_hours_paid"], p["mean_jct_s"]) for p in c["points"]]
        for c in curves
    }


# -- without data ------------------------------------------------------------------------------------------------------


def test_without_data_the_declared_stream_runs_and_it_says_so(without_data: Reproduction, tmp_path: Path) -> None:
    assert without_data.paper == "boa"
    assert "need --data and are left out" in without_data.data
    check_form(without_data)
    assert all(row.holds for row in chosen(without_data, "test vector"))
    assert len(chosen(without_data, "test vector")) == 15
    assert {scene for scene, _ in points_of(without_data)} == {DECLARED}
    assert write_reproduction(without_data, tmp_path) is None
    assert {p.name for p in tmp_path.glob("*.png")} == {"declared.png", "budget.png"}


def test_no_run_beats_the_bound(without_data: Reproduction) -> None:
    scene = scenes(None, SMALL)[DECLARED]
    seen = points_of(without_data)
    assert {name for _, name in seen} >= {BOA, "Pollux, autoscaled", "Sia, fixed"}
    for points in seen.values():
        for point in points:
            assert point.jct_s >= scene.bound_jct_s(point.gpu_hours) * (1 - 1e-9)
            assert point.gpu_hours >= scene.least_gpus * scene.span_s / 3600.0 * (1 - 1e-9)


def test_the_bound_falls_as_more_is_paid() -> None:
    scene = scenes(None, SMALL)[DECLARED]
    least_h = scene.least_gpus * scene.span_s / 3600.0
    assert scene.bound_jct_s(0.99 * least_h) == math.inf
    bounds = [scene.bound_jct_s(least_h * f) for f in (1.01, 1.2, 1.5, 2.0, 4.0)]
    assert bounds == sorted(bounds, reverse=True)


def test_wrong_first_estimates_are_wrong_by_the_factor_named(tmp_path: Path) -> None:
    world = scenes(None, SMALL)
    runs = planned(None, world, tmp_path, SMALL)
    assert {key[2] for key in runs if key[1] == "control"} == set(WRONG)
    right = {t.name: t for t in parse_types((tmp_path / "types-0.toml").read_text(), "types")}
    wrong = tmp_path / f"wrong-0-{list(WRONG).index('rates taken for twice what they are')}.toml"
    doubled = parse_types(wrong.read_text(), "wrong")
    for t in doubled:
        assert t.arrival_rate_per_s == pytest.approx(2.0 * right[t.name].arrival_rate_per_s)
        assert t.mean_size_s == pytest.approx(right[t.name].mean_size_s)
    assert CONTROLLED[DECLARED] in world[DECLARED].budgets or SMALL.thin > 1


# -- with data ---------------------------------------------------------------------------------------------------------


def test_with_data_every_scene_has_its_curves(with_data: Reproduction) -> None:
    check_form(with_data)
    seen = points_of(with_data)
    assert {s for s, _ in seen} == {DECLARED, STREAM, TESTBED_T4, TESTBED_G4DN, "Pollux's trace 1"}
    for scene in (TESTBED_T4, TESTBED_G4DN):
        assert {name for s, name in seen if s == scene} == {BOA, *BASELINES} - {OPTIMUS}
        assert {p.knob for p in seen[scene, BOA]} >= {32.0, 48.0, 56.0, 68.0}
    assert {f.name for f in with_data.figures} == {
        "testbed-t4", "testbed-g4dn", "trace-1", "stream", "declared", "budget",
    }  # fmt: skip


def test_with_data_widths_by_epoch_are_near_the_figures_quoted(with_data: Reproduction) -> None:
    rows = chosen(with_data, "widths by epoch", "restarts of 15 s")
    assert len(rows) == 4
    assert all(row.holds for row in rows)


def test_with_data_boa_is_faster_than_every_baseline_on_the_testbed(with_data: Reproduction) -> None:
    for row in chosen(with_data, "best baseline at BOA's GPU-hours", "testbed", "geomean"):
        assert row.ours > 100.0, row


@pytest.mark.parametrize("name", ["Pollux", "Tiresias"])
def test_on_64_owned_gpus_the_published_figures_are_near(shared_data: Path, name: str, tmp_path: Path) -> None:
    scale = replace(SMALL, traces=(), on_64=(4,))
    plan = planned(shared_data, {}, tmp_path, scale)
    found = {key: run.result() for key, run in plan.items() if key[1] == name}
    (row,) = boa.on_64_rows(found)
    assert row.holds, row


def test_a_folder_without_the_data_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [FAIRLEAD, "reproduce", "boa", "--data", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "workload-1.csv" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(InputError, match="not found"):
        scenes(tmp_path, SMALL)


# -- curves ------------------------------------------------------------------------------------------------------------


def test_a_curve_is_read_off_its_frontier() -> None:
    points = [Point(1, 100.0, 1000.0), Point(2, 200.0, 2000.0), Point(3, 400.0, 250.0)]
    assert [p.knob for p in frontier(points)] == [1, 3]
    assert jct_at(points, 100.0) == 1000.0
    assert jct_at(points, 200.0) == pytest.approx(500.0)  # straight in log-log
    assert jct_at(points, 9999.0) == 250.0
    assert jct_at(points, 99.0) == math.inf
    assert jct_at([], 99.0) == math.inf


def test_a_curve_collects_the_runs_of_its_policy(make_result: MakeResult) -> None:
    found: dict[tuple[object, ...], Result] = {
        ("s", BOA, 48.0): make_result(mean_jct_s=2.0, gpu_hours_paid=20.0),
        ("s", BOA, 32.0): make_result(mean_jct_s=3.0, gpu_hours_paid=10.0),
        ("s", "other", 32.0): make_result(mean_jct_s=9.0, gpu_hours_paid=9.0),
    }
    assert curve(found, "s", BOA) == [Point(32.0, 10.0, 3.0), Point(48.0, 20.0, 2.0)]


def test_what_is_paid_is_averaged_between_the_first_and_the_last_arrival(make_result: MakeResult) -> None:
    made = make_result(jobs=2)
    result = replace(
        made,
        jobs=pl.DataFrame({"submit_s": [10.0, 30.0]}),
        timeline=pl.DataFrame({"start_s": [0.0, 20.0], "end_s": [20.0, 60.0], "paid_gpus": [4.0, 8.0]}),
    )
    assert paid_mean(result) == pytest.approx(6.0)
