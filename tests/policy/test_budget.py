"""Widths under a budget against the published vector, a linear programme and queueing theory."""

from __future__ import annotations

import random

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InfeasibleError
from fairlead.model.profile import Amdahl, Power
from fairlead.policy.sizing.budget import JobType, solve

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


@pytest.mark.parametrize("seed", range(20))
def test_listed_widths_are_as_good_as_a_linear_programme(seed: int) -> None:
    rng = random.Random(seed)
    types = random_types(rng, rng.randrange(1, 8))
    budget = least(types) * rng.uniform(1.0, 3.0)
    found = solve(types, budget)
    # The oracle: any mix of widths per type, as fractions.
    mixes = [cp.Variable(len(t.widths), nonneg=True) for t in types]
    times = [t.load / np.array(t.speedups) for t in types]
    costs = [t.load * np.array(t.widths) / np.array(t.speedups) for t in types]
    within = sum(c @ x for c, x in zip(costs, mixes, strict=True)) <= budget
    objective = cp.Minimize(sum(t @ x for t, x in zip(times, mixes, strict=True)))
    oracle = cp.Problem(objective, [within, *(cp.sum(x) == 1 for x in mixes)])
    oracle.solve(solver=cp.HIGHS)
    total_rate = sum(t.arrival_rate_per_s for t in types)
    assert found.mean_jct_s() == pytest.approx(oracle.value / total_rate, rel=1e-6)
    assert found.gpus_mean <= budget * (1 + 1e-9)
    assert sum(len(parts) > 1 for parts in found.parts) <= 1 or len({t.load for t in types}) < len(types)


@pytest.mark.parametrize("seed", range(12))
def test_laws_are_as_good_as_a_convex_programme(seed: int) -> None:
    rng = random.Random(seed)
    laws = [
        rng.choice((Power(rng.choice((1 / 3, 0.4, 0.5, 0.6, 0.75, 0.8))), Amdahl(rng.uniform(0.5, 0.95))))
        for _ in range(4)
    ]
    types = [JobType(str(i), rng.uniform(0.1, 1), rng.uniform(1, 5), law) for i, law in enumerate(laws)]
    budget = sum(t.load for t in types) * rng.uniform(1.2, 3.0)
    # Over c = k / s(k), what a job costs, time is convex: c^(-p/(1-p)) with c = k^(1-p), and by Amdahl 1 - f + f/k with
    # c = (1-f) k + f.
    cost = cp.Variable(4)
    terms = []
    for t, c in zip(types, cost, strict=True):
        if isinstance(t.speedup, Power):
            terms.append(t.load * cp.power(c, -t.speedup.p / (1 - t.speedup.p)))
        else:
            f = t.speedup.f  # type: ignore[union-attr]
            terms.append(t.load * (1 - f + f * (1 - f) * cp.inv_pos(c - f)))
    loads = np.array([t.load for t in types])
    oracle = cp.Problem(cp.Minimize(sum(terms)), [loads @ cost <= budget, cost >= 1])
    oracle.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    rate = sum(t.arrival_rate_per_s for t in types)
    found = solve(types, budget)
    assert found.mean_jct_s() == pytest.approx(oracle.value / rate, rel=1e-6)
    assert found.gpus_mean == pytest.approx(budget, rel=1e-9)


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
