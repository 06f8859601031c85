from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import astuple, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.measure.pollux_data import read_training
from fairlead.model.adaptive_batch import AdaptiveBatch, Epoch, StepTimes, adaptive_batches_from
from fairlead.model.goodput import (
    BatchLimits,
    GradientStats,
    PerfParams,
    best_batch,
    candidates,
    efficiency,
    goodput,
    iteration_s,
    throughput,
)
from fairlead.model.goodput_fit import StepMeasurement, fit
from fairlead.model.training import packed_nodes, whole_job_s
from tests.conftest import DATA

APPS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
SIMPLE = PerfParams(alpha_c=0.1, beta_c=0.01, alpha_r=0.2, beta_r=0.03, alpha_n=0.4, beta_n=0.05, gamma=2.0)
LIMITS = BatchLimits(initial=32, max_total=1024, local_min=8, local_max=64)
NOISE = GradientStats(var=3.0, sqr=0.5)

# Whole-job seconds on 1, 4, 8, 16 and 64 GPUs, no rescaling.
WHOLE_JOB_S = {
    "bert": (13542, 3312, 2460, 1324, 1014),
    "cifar10": (3723, 1104, 767, 437, 634),
    "deepspeech2": (16732, 4901, 3246, 1958, 1661),
    "yolov3": (33736, 13143, 15109, 8913, 7241),
    "imagenet": (532439, 151320, 81770, 42508, 15371),
}


@lru_cache
def _measured() -> dict[str, AdaptiveBatch]:
    if not DATA.is_dir():
        pytest.skip(f"public data not present at {DATA}")
    return read_training(DATA / "pollux")


def measured_application(name: str) -> AdaptiveBatch:
    return _measured()[name]


def as_published(name: str) -> AdaptiveBatch:
    """The public goodput table tried 12 total batches."""
    return replace(measured_application(name), grid_points=12)


def test_iteration_on_one_gpu_is_the_gradient_alone() -> None:
    assert iteration_s(SIMPLE, 1, 1, 10, 0) == pytest.approx(0.2)
    assert iteration_s(SIMPLE, 1, 1, 10, 3) == pytest.approx(4 * 0.2)


def test_iteration_inside_a_node_and_across_nodes_by_hand() -> None:
    assert iteration_s(SIMPLE, 2, 1, 10, 0) == pytest.approx(math.hypot(0.2, 0.2))
    assert iteration_s(SIMPLE, 4, 1, 10, 0) == pytest.approx(math.hypot(0.2, 0.26))
    assert iteration_s(SIMPLE, 2, 2, 10, 0) == pytest.approx(math.hypot(0.2, 0.4))
    assert iteration_s(SIMPLE, 8, 2, 10, 2) == pytest.approx(2 * 0.2 + math.hypot(0.2, 0.7))


def test_gamma_one_adds_and_large_gamma_takes_the_larger() -> None:
    assert iteration_s(replace(SIMPLE, gamma=1.0), 2, 1, 20, 0) == pytest.approx(0.3 + 0.2)
    assert iteration_s(replace(SIMPLE, gamma=500.0), 2, 1, 20, 0) == pytest.approx(0.3)


def test_functions_take_arrays_of_batches() -> None:
    local, steps = np.array([8, 16, 32]), np.array([0, 1, 2])
    for i in range(3):
        one = int(local[i]), int(steps[i])
        assert throughput(SIMPLE, 4, 1, local, steps)[i] == throughput(SIMPLE, 4, 1, *one)
        assert goodput(SIMPLE, NOISE, 32, 4, 1, local, steps)[i] == goodput(SIMPLE, NOISE, 32, 4, 1, *one)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_efficiency_is_one_at_the_initial_batch_and_falls(var: float, sqr: float) -> None:
    found = efficiency(GradientStats(var, sqr), 32, np.array([32, 64, 128, 4096]))
    assert found[0] == pytest.approx(1.0)
    assert np.all(np.diff(found) <= 1e-9)
    assert np.all(found >= 32 / np.array([32, 64, 128, 4096]) * (1 - 1e-9))


def test_efficiency_by_hand() -> None:
    # Twice the batch: gain = (3 + 0.5) / (3/2 + 0.5) = 1.75.
    assert efficiency(NOISE, 32, 64) == pytest.approx(1.75 / 2)


def test_candidates_keep_the_limits_and_one_gpu_accumulates_beyond_the_initial_batch() -> None:
    for replicas in (1, 2, 3, 7, 64, 128):
        local, steps = candidates(LIMITS, replicas)
        total = replicas * local * (steps + 1)
        assert np.all((local >= 8) & (local <= 64) & (total <= 1024) & (total >= 32))
        assert len(total)
    local, steps = candidates(LIMITS, 1)
    assert np.all(steps[local * (steps + 1) > 32] >= 1)
    assert not candidates(replace(LIMITS, accumulate=False), 2)[1].any()


def test_width_that_no_batch_feeds_has_no_goodput() -> None:
    assert best_batch(SIMPLE, NOISE, LIMITS, 129, 33) == (0.0, 0, 0, 0)
    app = AdaptiveBatch("a", SIMPLE, LIMITS, (Epoch(1000.0, (32,), (NOISE,)),))
    assert whole_job_s(app, 129, packed_nodes(129, 4)) == math.inf
    assert app.speedup_table(0, [4, 128, 129], 4).widths == (1.0, 4.0, 128.0)


@pytest.mark.parametrize("name", APPS)
def test_best_batch_is_close_to_trying_every_batch(name: str) -> None:
    app = measured_application(name).modelled()
    limits = app.limits
    for replicas in (1,) if name == "ncf" else (1, 3, 4, 16, 24, 64):
        nodes = math.ceil(replicas / 4)
        most = limits.max_total // (replicas * limits.local_min)
        local, steps = np.meshgrid(np.arange(limits.local_min, limits.local_max + 1), np.arange(most))
        total = replicas * local * (steps + 1)
        allowed = (limits.initial <= total) & (total <= limits.max_total)
        allowed &= (replicas > 1) | (total <= limits.initial) | (steps >= 1)
        local, steps = local[allowed], steps[allowed]
        for epoch in range(0, len(app.epochs), 23):
            every = goodput(app.params, app.epochs[epoch], limits.initial, replicas, nodes, local, steps).max()
            assert 0.995 * every <= app.goodput_at(epoch, replicas, nodes) <= every * (1 + 1e-12)


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@pytest.mark.parametrize("name", APPS)
def test_public_goodput_is_reproduced(shared_data: Path, name: str) -> None:
    """Measured placements to 1e-4 (five figures are shipped); 20, 28, 40 and 56 GPUs, which nobody measured, to 5 %.

    Those were interpolated by a Delaunay triangulation in the public table and are linear at four GPUs a node here.
    """
    app, modelled = as_published(name), as_published(name).modelled()
    errors: dict[bool, list[float]] = {True: [0.0], False: [0.0]}
    by_model = []
    for row in rows(shared_data / "pollux" / "goodput_t4.csv"):
        if row["app"] != name:
            continue
        epoch, gpus = int(row["epoch"]), int(row["gpus"])
        public = float(row["goodput_progress_per_s"]) * app.limits.initial
        found = app.goodput_at(epoch, gpus, math.ceil(gpus / 4))
        errors[gpus not in (20, 28, 40, 56)].append(abs(found / public - 1))
        by_model.append(abs(modelled.goodput_at(epoch, gpus, math.ceil(gpus / 4)) / public - 1))
        assert app.epochs[epoch].samples == pytest.approx(float(row["delta_progress"]) * app.limits.initial, rel=1e-8)
    assert max(errors[True]) < 1e-4
    assert max(errors[False]) < 0.05
    assert float(np.mean(errors[False])) < 0.02
    # The equations, fitted to the same step times: 3 to 10 % in the mean; the worst is yolov3, 53 %.
    assert float(np.mean(by_model)) < 0.105
    assert max(by_model) < 0.54


@pytest.mark.parametrize("name", WHOLE_JOB_S)
def test_whole_job_seconds_of_the_boa_notes(name: str) -> None:
    """To 0.1 %, half of the last digit of 437 s; the finer default grid is at most 2.2 % faster, never 0.2 % slower."""
    for gpus, published_s in zip((1, 4, 8, 16, 64), WHOLE_JOB_S[name], strict=True):
        assert whole_job_s(as_published(name), gpus, packed_nodes(gpus, 4)) == pytest.approx(
            published_s, rel=1e-4, abs=0.55
        )
        finer_s = whole_job_s(measured_application(name), gpus, packed_nodes(gpus, 4))
        assert 0.978 < finer_s / published_s < 1.002


def test_speedup_table_is_over_one_gpu_and_drops_at_the_first_second_node() -> None:
    app = measured_application("yolov3")
    table = app.speedup_table(10, [2, 4, 8, 16], 4)
    assert table.widths == (1.0, 2.0, 4.0, 8.0, 16.0)
    assert table(1) == 1.0
    assert table(4) == pytest.approx(app.goodput_at(10, 4, 1) / app.goodput_at(10, 1, 1))
    assert table(8) < table(4)


def test_step_times_interpolate_and_end_where_the_measurements_end() -> None:
    steps = StepTimes({(1, 4): ([8, 16], [1.0, 2.0], [0.5, 0.5]), (3, 12): ([8, 16], [3.0, 4.0], [1.5, 1.5])})
    assert steps.iteration_s(4, 1, 12, 0) == pytest.approx(1.5)
    assert steps.iteration_s(8, 2, 12, 0) == pytest.approx(2.5)
    assert steps.iteration_s(8, 2, 12, 2) == pytest.approx(2.5 + 2 * 1.5)
    assert steps.iteration_s(4, 1, [4, 32], 0).tolist() == [math.inf, math.inf]
    assert not steps.knows(16, 4)
    assert not steps.knows(6, 2)
    assert np.isinf(steps.iteration_s(6, 2, 8, 0))


def test_application_uses_the_equations_where_nothing_was_measured() -> None:
    app = measured_application("cifar10")
    assert app.measured is not None
    assert not app.measured.knows(8, 1)
    assert app.goodput_at(5, 8, 1) == app.modelled().goodput_at(5, 8, 1)
    assert app.goodput_at(5, 8, 2) != app.modelled().goodput_at(5, 8, 2)


def test_errors_name_what_was_wrong() -> None:
    with pytest.raises(InputError, match="holds pollux"):
        read_training(Path("/nonexistent"))
    with pytest.raises(InputError, match="no epoch 2"):
        measured_application("bert").best_at(2, 1, 1)
    with pytest.raises(InputError, match="2 replicas on 3 nodes"):
        best_batch(SIMPLE, NOISE, LIMITS, 2, 3)
    with pytest.raises(InputError, match="batch limits"):
        BatchLimits(64, 32, 1, 8)
    with pytest.raises(InputError, match="format"):
        adaptive_batches_from({"format": "other"})
    with pytest.raises(InputError, match="no step times"):
        fit([])
    with pytest.raises(InputError, match="measurement 0"):
        fit([StepMeasurement(2, 1, 8, 1.0)])


def synthetic(params: PerfParams, *, sync: bool) -> list[StepMeasurement]:
    shapes = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 8), (3, 9), (4, 16)]
    made = []
    for nodes, replicas in shapes:
        for local, steps in ((8, 0), (16, 0), (48, 0), (48, 2)):
            step_s = float(params.iteration_s(replicas, nodes, local, steps))
            waited_s = step_s - (steps + 1) * float(params.gradient_s(local)) if sync else None
            made.append(StepMeasurement(nodes, replicas, local, step_s, waited_s and max(waited_s, 0.0), steps))
    return made


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("gamma", [1.3, 2.0, 4.0])
def test_fit_recovers_parameters(gamma: float, sync: bool) -> None:
    params = replace(SIMPLE, gamma=gamma)
    found = fit(synthetic(params, sync=sync))
    assert astuple(found.params) == pytest.approx(astuple(params), rel=1e-4)
    assert found.rmse_log < 1e-6
    assert found.r2 == pytest.approx(1.0)
    assert found.points == 32
    assert fit(synthetic(params, sync=sync)) == found


def test_fit_is_hopeful_about_what_was_never_tried() -> None:
    one = fit([StepMeasurement(1, 1, 10, 0.2)])
    assert astuple(one.params) == pytest.approx((0.1, 0.01, 0, 0, 0, 0, 1.0))
    assert one.r2 == 1.0
    inside = fit([m for m in synthetic(SIMPLE, sync=True) if m.nodes == 1])
    assert (inside.params.alpha_n, inside.params.beta_n) == (0.0, 0.0)
    assert inside.params.beta_r == pytest.approx(0.03, rel=1e-4)


# (rmse of log step time, R2) reached on all of placements.csv; the shipped parameters have 0.106 to 0.131.
PUBLIC_FIT = {
    "bert": (0.121, 0.66),
    "cifar10": (0.102, 0.97),
    "deepspeech2": (0.104, 0.92),
    "imagenet": (0.098, 0.93),
    "ncf": (0.127, 0.68),
    "yolov3": (0.125, 0.70),
}


@pytest.mark.parametrize("name", APPS)
def test_fit_on_the_public_step_times(shared_data: Path, name: str) -> None:
    measured = [
        StepMeasurement(
            len(row["placement"]),
            sum(map(int, row["placement"])),
            int(row["local_bsz"]),
            float(row["step_time"]),
            float(row["sync_time"]),
        )
        for row in rows(shared_data / "pollux" / name / "placements.csv")
    ]
    found = fit(measured)
    rmse_log, r2 = PUBLIC_FIT[name]
    assert found.rmse_log < rmse_log
    assert found.r2 > r2
    shipped = measured_application(name).params
    miss = [math.log(float(shipped.iteration_s(m.replicas, m.nodes, m.local_batch, 0)) / m.step_s) for m in measured]
    assert found.rmse_log < math.sqrt(sum(e * e for e in miss) / len(miss))
