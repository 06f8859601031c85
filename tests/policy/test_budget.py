"""Widths under a budget against the published vector, a linear programme and queueing theory."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from fairlead.errors import InfeasibleError
from fairlead.model.cluster import parse_shape
from fairlead.model.profile import Amdahl, Power
from fairlead.policy import registry
from fairlead.policy.sizing.budget import JobType, solve
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace

TWO = (JobType("a", 0.4, 1.0, Amdahl(0.8)), JobType("b", 0.4, 1.0, Power(0.5)))


@pytest.mark.parametrize(
    ("budget", "widths", "mean_jct_s"),
    [
        (1.0, (2.429, 1.474), 0.6765),
        (1.5, (4.214, 4.440), 0.4322),
        (2.0, (6.0, 9.0), 0.3333),
        (2.5, (7.786, 15.154), 0.2798),
        (3.0, (9.571, 22.903), 0.2463),
    ],
)
def test_the_published_vector_comes_out(budget: float, widths: tuple[float, float], mean_jct_s: float) -> None:
    found = solve(TWO, budget)
    assert (found.width(0), found.width(1)) == pytest.approx(widths, abs=5e-4)
    assert found.mean_jct_s() == pytest.approx(mean_jct_s, abs=5e-5)
    assert found.gpus_mean == pytest.approx(budget, rel=1e-9)


def random_types(rng: random.Random, n: int) -> list[JobType]:
    types = []
    for i in range(n):
        widths = sorted(rng.sample(range(1, 40), rng.randrange(1, 9)))
        if rng.random() < 0.8 and 1 not in widths:
            widths[0] = 1
        power = rng.uniform(0.2, 1.0)
        # Not concave, and sometimes falling: a dip where a job leaves its node.
        speedups = [float(k**power * rng.uniform(0.8, 1.2)) for k in widths]
        types.append(
            JobType(str(i), rng.uniform(0.1, 2), rng.uniform(1, 20), None, tuple(map(float, widths)), tuple(speedups))
        )
    return types


def least(types: list[JobType]) -> float:
    return sum(t.load * min(k / s for k, s in zip(t.widths, t.speedups, strict=True)) for t in types)


@pytest.mark.parametrize("seed", range(40))
def test_listed_widths_are_as_good_as_a_linear_programme(seed: int) -> None:
    rng = random.Random(seed)
    types = random_types(rng, rng.randrange(1, 8))
    budget = least(types) * rng.uniform(1.0, 3.0)
    found = solve(types, budget)
    # The oracle: any mix of widths per type, as a linear programme.
    columns = [(i, k, s) for i, t in enumerate(types) for k, s in zip(t.widths, t.speedups, strict=True)]
    one_each = np.array([[float(i == j) for i, _, _ in columns] for j in range(len(types))])
    oracle = linprog(
        [types[i].load / s for i, _, s in columns],
        A_ub=[[types[i].load * k / s for i, k, s in columns]],
        b_ub=[budget],
        A_eq=one_each,
        b_eq=np.ones(len(types)),
    )
    total_rate = sum(t.arrival_rate_per_s for t in types)
    assert found.mean_jct_s() == pytest.approx(oracle.fun / total_rate, rel=1e-6)
    assert found.gpus_mean <= budget * (1 + 1e-9)
    assert sum(len(parts) > 1 for parts in found.parts) <= 1 or len({t.load for t in types}) < len(types)


@pytest.mark.parametrize("seed", range(10))
def test_laws_are_as_good_as_a_convex_programme(seed: int) -> None:
    rng = random.Random(seed)
    laws = [rng.choice((Power(rng.uniform(0.3, 0.9)), Amdahl(rng.uniform(0.5, 0.95)))) for _ in range(4)]
    types = [JobType(str(i), rng.uniform(0.1, 1), rng.uniform(1, 5), law) for i, law in enumerate(laws)]
    budget = sum(t.load for t in types) * rng.uniform(1.2, 3.0)

    def speedup(i: int, k: float) -> float:
        law = types[i].speedup
        assert law is not None
        return law(k)

    oracle = minimize(
        lambda ks: sum(t.load / speedup(i, k) for i, (t, k) in enumerate(zip(types, ks, strict=True))),
        x0=[1.2] * 4,
        bounds=[(1.0, 1e4)] * 4,
        constraints={
            "type": "ineq",
            "fun": lambda ks: (
                budget - sum(t.load * k / speedup(i, k) for i, (t, k) in enumerate(zip(types, ks, strict=True)))
            ),
        },
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    found = solve(types, budget)
    rate = sum(t.arrival_rate_per_s for t in types)
    assert found.mean_jct_s() <= oracle.fun / rate * (1 + 1e-6)


def test_a_budget_that_is_too_small_names_the_smallest_that_is_not() -> None:
    with pytest.raises(InfeasibleError, match=r"smallest feasible budget is 0\.8"):
        solve(TWO, 0.79)
    assert solve(TWO, 0.8).mean_jct_s() == pytest.approx(1.0)


def test_more_than_enough_buys_the_fastest_widths_and_no_more() -> None:
    types = [JobType("a", 1.0, 10.0, None, (1.0, 2.0, 4.0, 8.0), (1.0, 1.8, 2.5, 2.5))]
    found = solve(types, 1e6)
    assert found.parts[0][0].width == 4.0
    assert found.gpus_mean == pytest.approx(16.0)


@given(seed=st.integers(0, 10_000), factor=st.floats(1.0, 2.0))
@settings(max_examples=100, deadline=None)
def test_more_budget_is_never_slower(seed: int, factor: float) -> None:
    types = random_types(random.Random(seed), 4)
    budget = least(types) * 1.1
    assert solve(types, budget * factor).mean_jct_s() <= solve(types, budget).mean_jct_s() * (1 + 1e-12)


def test_the_promise_is_met_by_the_simulator() -> None:
    # Poisson arrivals, whole widths, a cluster that is never full: nobody queues.
    types = [
        JobType("a", 0.02, 400.0, None, (1.0, 2.0, 4.0, 8.0), (1.0, 1.9, 3.4, 5.5)),
        JobType("b", 0.01, 900.0, None, (1.0, 2.0, 4.0, 8.0), (1.0, 1.7, 2.8, 4.0)),
    ]
    found = solve(types, 40.0)
    rng = np.random.default_rng(3)
    rows = []
    n = 120_000
    for i, t in enumerate(types):
        count = round(n * t.arrival_rate_per_s / 0.03)
        submit = np.cumsum(rng.exponential(1 / t.arrival_rate_per_s, count))
        size = rng.exponential(t.mean_size_s, count)
        wide = rng.random(count)
        for at, x, u in zip(submit, size, wide, strict=True):
            parts = found.parts[i]
            part = parts[0] if u < parts[0].frac else parts[-1]
            rows.append((float(at), int(part.width), float(x / part.speedup)))
    horizon = min(max(r[0] for r in rows if True), n / 0.03)
    frame = pl.DataFrame(rows, schema=["submit_s", "gpus", "duration_s"], orient="row")
    frame = frame.with_columns(pl.int_range(pl.len()).cast(pl.String).alias("job_id"))
    run = Simulation(Trace.from_columns(frame), parse_shape("40x8"), registry.build("fifo")).run()
    assert run.summary["mean_wait_s"] == 0.0
    assert run.summary["mean_jct_s"] == pytest.approx(found.mean_jct_s(), rel=0.02)
    assert run.summary["gpu_hours"] * 3600 / horizon == pytest.approx(found.gpus_mean, rel=0.02)
    # The number of GPUs in use as arrivals see it.
    jobs = run.jobs.sort("submit_s")
    submit, width = jobs["submit_s"].to_numpy(), jobs["gpus"].to_numpy()
    by_end = run.jobs.sort("finish_s")
    left = np.concatenate(([0], np.cumsum(by_end["gpus"].to_numpy())))
    came = np.concatenate(([0], np.cumsum(width)))[:-1]
    present = came - left[np.searchsorted(by_end["finish_s"].to_numpy(), submit, side="right")]
    settled = present[2000:-2000]
    assert settled.mean() == pytest.approx(found.gpus_mean, rel=0.02)
    assert settled.std() == pytest.approx(found.gpus_std, rel=0.02)
