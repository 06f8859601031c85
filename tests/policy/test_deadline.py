"""Earliest deadline first with an admission test."""

from __future__ import annotations

import polars as pl
import pytest

from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace


def run(rows: list[tuple[float, int, float, float | None]], spec: str = "ordering=deadline") -> pl.DataFrame:
    """Jobs of (submit_s, gpus, duration_s, deadline_s) on four GPUs."""
    schema = {"submit_s": pl.Float64, "gpus": pl.Int64, "duration_s": pl.Float64, "deadline_s": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("job_id")
    trace = Trace.from_columns(frame.with_columns(pl.col("job_id").cast(pl.String)))
    return Simulation(trace, parse_shape("1x4"), registry.build(spec)).run().jobs


def test_the_earliest_deadline_goes_first_and_takes_the_gpus_of_later_ones() -> None:
    rows = [(0.0, 4, 1000.0, 5000.0), (10.0, 4, 100.0, 500.0), (10.0, 4, 100.0, None)]
    assert run(rows)["first_start_s"].to_list() == [0.0, 10.0, 1100.0]
    assert run(rows, "ordering=deadline:preempt=false")["first_start_s"].to_list() == [0.0, 1000.0, 1100.0]


def test_a_job_that_cannot_be_in_time_takes_nothing_from_one_that_can() -> None:
    rows = [(0.0, 4, 1000.0, 900.0), (0.0, 4, 800.0, 1000.0)]
    jobs = run(rows)
    assert jobs["finish_s"].to_list() == [1800.0, 800.0]
    assert jobs["late"].to_list() == [True, False]
    assert run(rows, "ordering=deadline:admission=false")["late"].to_list() == [True, True]


def test_nobody_is_accepted_who_would_make_accepted_ones_late() -> None:
    # Two that fill the GPUs until their deadlines; the third has an earlier one, and would push one of them out.
    rows = [(0.0, 4, 500.0, 1000.0), (0.0, 4, 500.0, 1000.0), (1.0, 4, 100.0, 400.0)]
    assert run(rows)["late"].to_list() == [False, False, True]


def test_whoever_waited_until_it_was_too_late_goes_behind() -> None:
    # The first runs on an unforeseen time: without preemption the second can no longer be in time, the third can.
    rows = [(0.0, 4, 600.0, None), (1.0, 4, 300.0, 700.0), (2.0, 4, 300.0, 1000.0)]
    jobs = run(rows, "ordering=deadline:preempt=false")
    assert jobs["late"].to_list()[1:] == [True, False]
    assert jobs["finish_s"].to_list() == pytest.approx([600.0, 1200.0, 900.0])
