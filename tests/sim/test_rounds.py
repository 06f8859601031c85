"""Round mode against the published figures of PAL's simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.files import load_variability
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.traces import load
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
    run = Simulation(load(pal / "traces" / f"workload-{workload}.csv"), cluster, stack, locality=1.7).run()
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


def test_empty_rounds_cost_nothing() -> None:
    stack = registry.build("fifo", round_s=10.0)
    run = Simulation(make_trace([(0, 1, 5), (1e9, 1, 5)]), parse_shape("1x4"), stack).run()
    assert run.summary["events"] < 20


def test_a_wrapping_trace_measures_its_own_jobs_only(shared_data: Path) -> None:
    trace = load(shared_data / "pal" / "traces" / "workload-4.csv")
    run = Simulation(trace, parse_shape("16x4"), registry.build("fifo", round_s=360.0)).run()
    assert run.summary["jobs"] == 160
    assert run.summary["gpu_hours"] > run.jobs["gpu_s"].sum() / 3600.0
