"""Trainings: fixed batches, tables, and reports that a fit gives the model back from."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.goodput import BatchLimits
from fairlead.model.goodput_fit import StepMeasurement, fit
from fairlead.model.training import (
    FixedBatch,
    GoodputTable,
    packed_nodes,
    read_goodput_tables,
    split_batch,
    whole_job_s,
)
from tests.sim.toys import LIMITS, PARAMS, TABLE, toy_app

SHAPES = [(1, 1), (2, 1), (3, 2), (4, 1), (8, 2), (12, 3)]


@pytest.mark.parametrize(("replicas", "nodes"), SHAPES)
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_fixed_batch_that_is_the_best_is_as_good_as_the_best(epoch: int, replicas: int, nodes: int) -> None:
    app = toy_app()
    best = app.best_at(epoch, replicas, nodes)
    fixed = FixedBatch(app, best.total_batch)
    assert fixed.goodput_at(epoch, replicas, nodes) == pytest.approx(best.goodput, rel=1e-12)
    steps, chosen = fixed.steps_at(epoch, replicas, nodes), app.steps_at(epoch, replicas, nodes)
    assert replace(steps, batch=0) == chosen
    assert (chosen.local_batch, chosen.accumulation) == (best.local_batch, best.accumulation)


@given(
    batch=st.integers(32, 1024),
    replicas=st.integers(1, 16),
    local_max=st.integers(16, 128),
)
@settings(max_examples=200)
def test_no_fixed_batch_is_better_than_the_best_one_beyond_the_grid(batch: int, replicas: int, local_max: int) -> None:
    app = replace(toy_app(), limits=BatchLimits(32, 1024, 8, local_max), grid_points=400)
    fixed, nodes = FixedBatch(app, batch), packed_nodes(replicas, 4)
    local, again = split_batch(app.limits, batch, replicas)
    assert local <= local_max
    assert batch <= replicas * local * (again + 1) < batch + replicas * (again + 1)
    # The best batch is searched on a grid, hence the half per cent.
    if replicas * local * (again + 1) <= 1024:
        assert fixed.goodput_at(1, replicas, nodes) <= 1.005 * app.goodput_at(1, replicas, nodes)


def test_without_accumulation_a_batch_beyond_the_gpus_memory_does_not_run() -> None:
    app = replace(toy_app(), limits=BatchLimits(32, 1024, 8, 64, accumulate=False))
    assert FixedBatch(app, 512).goodput_at(0, 4, 1) == 0.0
    assert FixedBatch(app, 512).goodput_at(0, 8, 2) > 0.0


def test_a_fixed_batch_feeds_only_so_many_replicas_and_stays_within_the_limits() -> None:
    fixed = FixedBatch(toy_app(), 64)
    assert fixed.goodput_at(0, 8, 2) > 0.0
    assert fixed.goodput_at(0, 10, 3) == 0.0
    assert whole_job_s(fixed, 10, 3) == math.inf
    assert fixed.name == "toy@64"
    for batch in (31, 1025):
        with pytest.raises(InputError, match="from 32 to 1024"):
            FixedBatch(toy_app(), batch)


def test_the_whole_job_is_the_sum_of_its_epochs() -> None:
    assert whole_job_s(TABLE, 1, 1) == 60 + 120
    assert whole_job_s(TABLE, 8, 2) == 24 + 30
    app = toy_app()
    seconds = [e.samples / app.goodput_at(i, 4, 1) for i, e in enumerate(app.epochs)]
    assert whole_job_s(app, 4, 1) == math.fsum(seconds)


def test_tables_are_linear_between_widths_and_flat_beyond_them() -> None:
    at = [TABLE.goodput_at(0, k, 1) for k in (1, 2, 3, 4, 5, 6, 8, 9, 100)]
    assert at == [100, 150, 175, 200, 212.5, 225, 250, 250, 250]
    assert GoodputTable("t", (1.0,), (2, 4), ((10.0, 30.0),)).goodput_at(0, 1, 1) == 10.0
    assert TABLE.steps_at(0, 1, 1) is None


@pytest.mark.parametrize(("replicas", "nodes"), SHAPES)
def test_reported_steps_are_those_of_the_model(replicas: int, nodes: int) -> None:
    app = toy_app()
    seen = app.steps_at(1, replicas, nodes)
    assert seen.step_s == pytest.approx(PARAMS.iteration_s(replicas, nodes, seen.local_batch, seen.accumulation))
    # What is not the wait is a + 1 gradients.
    gradients_s = (seen.accumulation + 1) * float(PARAMS.gradient_s(seen.local_batch))
    assert seen.step_s - seen.sync_s == pytest.approx(gradients_s)
    if replicas == 1:
        assert seen.sync_s == pytest.approx(0.0, abs=1e-12)


def test_a_fit_to_reports_gives_the_step_times_back() -> None:
    app = toy_app()
    seen = [(k, n, app.steps_at(e, k, n)) for e in range(3) for k, n in [*SHAPES, (6, 2), (16, 4)]]
    found = fit([StepMeasurement(n, k, s.local_batch, s.step_s, s.sync_s, s.accumulation) for k, n, s in seen])
    assert found.rmse_log < 1e-4
    for k, n, s in seen:
        assert found.params.iteration_s(k, n, s.local_batch, s.accumulation) == pytest.approx(s.step_s, rel=1e-3)
    assert found.params.iteration_s(10, 3, 40, 1) == pytest.approx(PARAMS.iteration_s(10, 3, 40, 1), rel=2e-3)


def test_tables_are_read_and_what_is_wrong_with_them_is_said(tmp_path: Path) -> None:
    path = tmp_path / "goodput.csv"
    head = "app,epoch,gpus,goodput_samples_per_s\n"
    path.write_text(head + "a,0,1,10\na,0,2,15\na,0,3,16\na,1,1,8\na,1,2,14\n")
    table = read_goodput_tables(path, {"a": (100.0, 200.0, 300.0)})["a"]
    # Only widths of every epoch, only the epochs of the file.
    assert (table.samples, table.widths, table.goodputs) == ((100.0, 200.0), (1, 2), ((10.0, 15.0), (8.0, 14.0)))
    for text in ("a,0,1,10\na,2,1,9\n", "a,0,2,10\n", "b,0,1,10\n", "a,0,1,x\n"):
        path.write_text(head + text)
        with pytest.raises(InputError, match=r"goodput\.csv"):
            read_goodput_tables(path, {"a": (100.0, 200.0)})
    with pytest.raises(InputError, match="cannot read"):
        read_goodput_tables(tmp_path / "none.csv", {})


def test_limits_of_the_toy_are_those_of_the_notes() -> None:
    assert split_batch(LIMITS, 32, 1) == (32, 0)
    assert split_batch(LIMITS, 33, 1) == (17, 1)  # one GPU beyond the initial batch accumulates
    assert split_batch(LIMITS, 1024, 4) == (64, 3)
