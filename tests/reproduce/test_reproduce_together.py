"""The joint preset against each paper's policy: the comparison itself, on a small scale."""

from __future__ import annotations

import math

import pytest

from fairlead.report.claims import Reproduction
from fairlead.reproduce import together
from fairlead.reproduce.together import Point, jct_at
from fairlead.reproduce.together_setting import WORKLOADS, planned, policies

OWNED = tuple(workload for workload in WORKLOADS if not workload.rented)


@pytest.fixture(scope="module")
def small() -> Reproduction:
    return together.reproduce(None, jobs=100, seeds=1, workloads=OWNED)


def test_every_workload_is_compared_with_every_policy(small: Reproduction) -> None:
    for workload in OWNED:
        for name in policies(workload):
            assert any(row.claim.startswith(f"{workload.name}: {name}") for row in small.rows), (workload.name, name)
    assert len(small.figures) == len(OWNED)


def test_on_the_same_gpus_it_is_ahead_of_every_paper_and_baseline(small: Reproduction) -> None:
    rivals = ("FIFO", "Tiresias", "EASY", "PAL", "EaCO", "EaCO + PAL", "Pollux", "Sia")
    rows = {row.claim: row for row in small.rows}
    for name in rivals:
        assert rows[f"owned: {name}, mean JCT over fairlead's"].ours > 1.0, name


def test_everybody_gets_the_same_jobs_and_nodes() -> None:
    runs = planned(WORKLOADS, 20, 2)
    for workload in WORKLOADS:
        for seed in range(2):
            mine = [run for (name, _, of), run in runs.items() if (name, of) == (workload.name, seed)]
            assert len({id(run.trace) for run in mine}) == len({id(run.cluster) for run in mine}) == 1


def test_completion_times_are_compared_at_equal_cost() -> None:
    points = [Point(100.0, 0, 200.0, 0, 0), Point(400.0, 0, 50.0, 0, 0), Point(500.0, 0, 150.0, 0, 0)]
    assert jct_at(points, 50.0) == pytest.approx(400.0)
    assert jct_at(points, 100.0) == pytest.approx(200.0)  # half way between logarithms; the third is nobody's choice
    assert jct_at(points, 1000.0) == pytest.approx(100.0)
    assert math.isnan(jct_at(points, 10.0))
