"""Round mode against the published figures of PAL's simulator."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.files import load_variability
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces import load
from fairlead.traces.trace import Trace
from tests.conftest import make_trace


@pytest.mark.parametrize("workload", range(1, 6))
@pytest.mark.parametrize("placing", ["packed-sticky", "packed-nonsticky"])
def test_packed_gives_the_published_mean_jct_and_makespan(workload: int, placing: str, shared_data: Path) -> None:
    pal = shared_data / "pal"
    expected = json.loads((pal / "expected_64gpu_fifo_L1.7.json").read_text())
    wanted = expected[f"workload-{workload}"][placing.replace("-", "_")]
    cluster = parse_shape("16x4")
    cluster = cluster.with_variability(load_variability(pal / "profile64_seed42.json", cluster))
    stack = registry.build(f"ordering=fifo,placing={placing}", round_s=360.0)
    run = Simulation(load(pal / "traces" / f"workload-{workload}.csv"), cluster, stack, World(locality=1.7)).run()
    assert run.summary["mean_jct_s"] == pytest.approx(wanted["mean_jct_s"], abs=1e-6)
    assert run.summary["makespan_s"] == wanted["makespan_s"]
    assert run.summary["p99_jct_s"] == wanted["p99_jct_s"]


def rounds(jobs: list[tuple[float, int, float]], spec: str, shape: str = "1x4", **columns: list[object]) -> list[float]:
    stack = registry.build(spec, round_s=10.0)
    return Simulation(make_trace(jobs, **columns), parse_shape(shape), stack).run().jobs["finish_s"].to_list()


def test_jobs_start_and_leave_at_rounds_only() -> None:
    # Submitted at 1, started at 10, done at 15, gone at 20.
    assert rounds([(1, 1, 5)], "fifo") == [20]


def test_a_job_done_exactly_at_a_round_leaves_there() -> None:
    assert rounds([(0, 1, 10), (0, 1, 30)], "fifo") == [10, 30]


def test_the_queue_is_cut_at_the_first_job_that_exceeds_the_cluster() -> None:
    # The wide second job blocks the narrow third, though a GPU is free.
    assert rounds([(0, 3, 10), (0, 2, 10), (0, 1, 10)], "fifo") == [10, 20, 20]
    assert rounds([(0, 3, 10), (0, 2, 10), (0, 1, 10)], "fifo:backfill=greedy") == [10, 20, 10]


def test_a_sticky_waiter_evicts_from_the_tail_and_never_ahead_of_itself() -> None:
    jobs = [(0, 2, 40), (0, 2, 40), (5, 2, 10)]
    finish = rounds(jobs, "priority", priority=[5, 1, 3])
    assert finish == [40, 50, 20]
    assert rounds(jobs, "priority", priority=[5, 4, 3]) == [40, 40, 50]


def test_an_order_that_preempts_skips_whoever_does_not_fit_unless_it_is_strict() -> None:
    # The first in order takes three of four GPUs, the second wants two; the third would fit.
    jobs = [(0, 3, 10), (0, 2, 20), (0, 1, 30)]
    for ordering in ("srtf", "las", "priority", "deadline"):
        assert rounds(jobs, ordering, deadline_s=[100.0] * 3) == [10, 30, 30], ordering
        assert rounds(jobs, f"{ordering}:backfill=strict", deadline_s=[100.0] * 3) == [10, 30, 40], ordering


def test_whoever_runs_behind_the_cut_keeps_its_gpus_while_nobody_ahead_needs_them() -> None:
    # At 10 a job of three GPUs comes that is second in order and does not fit beside the first: the order is cut there.
    jobs = [(0, 2, 40), (0, 1, 40), (5, 3, 40)]
    priority = {"priority": [5, 1, 3]}
    assert rounds(jobs, "priority:backfill=strict", **priority) == [40, 40, 80]
    # Not sticky: only those before the cut are placed anew.
    assert rounds(jobs, "priority:backfill=strict,placing=packed-nonsticky", **priority) == [40, 70, 80]


def philly_sample(shared_data: Path, start: int) -> Trace:
    frame = load(shared_data / "philly" / "philly.csv").frame.filter(pl.col("gpus") <= 32).slice(start, 600)
    return Trace.from_columns(frame.with_columns(pl.col("submit_s") - frame["submit_s"][0]))


@pytest.mark.parametrize("policy", ["srtf", "priority", "las", "tiresias", "fifo:backfill=greedy"])
@pytest.mark.parametrize("start", [35_000, 70_000])
def test_greedy_rounds_converge_to_events_on_samples_of_philly(policy: str, start: int, shared_data: Path) -> None:
    trace, cluster = philly_sample(shared_data, start), parse_shape("8x8")
    on_events, in_seconds, in_minutes = (
        Simulation(trace, cluster, registry.build(policy, round_s=round_s)).run() for round_s in (None, 1.0, 60.0)
    )
    if policy in ("las", "tiresias"):  # jobs fall a queue between whole seconds
        assert in_seconds.summary["mean_jct_s"] == pytest.approx(on_events.summary["mean_jct_s"], rel=1e-3)
    else:
        assert in_seconds.jobs["finish_s"].to_list() == on_events.jobs["finish_s"].to_list()
    if policy in ("srtf", "priority", "las"):
        # The others start other jobs in a round than on events, and whom they have started they keep.
        assert in_minutes.summary["mean_jct_s"] == pytest.approx(on_events.summary["mean_jct_s"], rel=0.02)


def test_empty_rounds_cost_nothing() -> None:
    stack = registry.build("fifo", round_s=10.0)
    run = Simulation(make_trace([(0, 1, 5), (1e9, 1, 5)]), parse_shape("1x4"), stack).run()
    assert run.summary["events"] < 20


def test_a_wrapping_trace_measures_its_own_jobs_only(shared_data: Path) -> None:
    trace = load(shared_data / "pal" / "traces" / "workload-4.csv")
    run = Simulation(trace, parse_shape("16x4"), registry.build("fifo", round_s=360.0)).run()
    assert run.summary["jobs"] == 160
    assert run.summary["gpu_hours"] > run.jobs["gpu_s"].sum() / 3600.0
