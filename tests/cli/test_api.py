from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fairlead
from fairlead import traces
from fairlead.errors import InputError
from fairlead.model.cluster import Rental
from fairlead.model.training import GoodputTable


def test_three_lines_give_a_frame_of_jobs(trace_file: Path) -> None:
    result = fairlead.simulate(trace_file, cluster="1x4", policy="fifo")
    assert isinstance(result.jobs, pl.DataFrame)
    assert result.summary["makespan_s"] == 190
    assert result.jobs["finish_s"].to_list() == [100, 150, 180, 190]


def test_a_trace_in_memory_is_taken_as_it_is() -> None:
    trace = traces.builtin_demo().head(20)
    assert fairlead.simulate(trace).jobs.height == 20


def test_parallel_runs_equal_those_in_turn() -> None:
    trace = traces.builtin_demo().head(200)
    policies = ["fifo", "srtf", "placing=random"]
    together = fairlead.compare(policies, trace, workers=2, seed=3)
    in_turn = fairlead.compare(policies, trace, workers=1, seed=3)
    for one, other in zip(together, in_turn, strict=True):
        assert one.policy == other.policy
        assert one.jobs.equals(other.jobs)
        assert one.timeline.equals(other.timeline)


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_the_jobs_of_all_runs(workers: int) -> None:
    seen: list[tuple[int, int]] = []
    trace = traces.builtin_demo().head(100)
    fairlead.compare(["fifo", "las"], trace, workers=workers, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (200, 200)
    assert sorted(seen) == seen


def test_an_error_in_a_worker_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlead.sim.run import Run

    monkeypatch.setattr(Run, "check", lambda self: None)  # so that only the worker finds out
    with pytest.raises(InputError, match="nosuch") as caught:
        fairlead.compare(["fifo", "nosuch"], traces.builtin_demo().head(10), workers=2)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"round_s": 0.0}, "round_s"),
        ({"locality": 0.99}, "locality"),
        ({"restart_s": -1.0}, "restart_s"),
        ({"restart_s": float("nan")}, "restart_s"),
        ({"seed": -1}, "seed"),
        ({"mtbf_h": 0.0}, "mtbf_h"),
        ({"repair_h": 1.0}, "mtbf_h"),
        ({"mtbf_h": 1.0, "repair_h": -1.0}, "repair_h"),
        ({"rent": "boot=-1"}, "boot_s=-1"),
        ({"training": "nosuch.csv"}, "nosuch.csv"),
    ],
)
def test_a_bad_value_is_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        fairlead.simulate(**options)  # type: ignore[arg-type]


def test_rent_and_applications_may_be_values_instead_of_texts() -> None:
    trace = traces.load("synthetic:poisson:rate_per_h=60:mean_s=600:elastic=true:jobs=30")
    known = {"BERT": GoodputTable("BERT", (500.0, 500.0), (1, 4), ((1.0, 3.0), (1.0, 2.0)))}
    runs = [
        fairlead.compare(
            ["boa:budget=16,powering=rent", "pollux,powering=rent"],
            trace, "8x4:T4", rent=rent, training=known, restart_s=10.0, workers=workers,
        )
        for rent, workers in ((Rental(boot_s=30.0), 1), ("boot=30", 2))
    ]  # fmt: skip
    for one, other in zip(*runs, strict=True):
        assert one.jobs.equals(other.jobs)
        assert one.summary["node_rentals"] > 0
    trained = runs[0][0].jobs.filter(profile="BERT")
    assert trained["duration_s"].to_list() == [1000.0] * trained.height


@pytest.mark.parametrize("policies", [[], "fifo", ["fifo", "fifo"]])
def test_compare_wants_a_list_of_different_policies(policies: list[str]) -> None:
    with pytest.raises(InputError):
        fairlead.compare(policies)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nosuch"):
        fairlead.nosuch  # noqa: B018
    assert set(fairlead.__all__) <= set(dir(fairlead))
