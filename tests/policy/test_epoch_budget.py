"""Widths by epoch against every path there is."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InfeasibleError
from fairlead.policy.sizing.budget import JobType, solve
from fairlead.policy.sizing.epoch_budget import EpochType, best_plan, solve_epochs

WIDTHS = (1, 2, 4)


def random_type(rng: random.Random, epochs: int = 5) -> EpochType:
    speedups = tuple(tuple(float(k ** rng.uniform(0.3, 0.95)) for k in WIDTHS) for _ in range(epochs))
    sizes = tuple(rng.uniform(50, 500) for _ in range(epochs))
    rescale_s, start_s = rng.choice((0.0, 20.0, 100.0)), rng.choice((0.0, 0.0, 15.0, 80.0))
    return EpochType("t", rng.uniform(0.01, 0.1), WIDTHS, sizes, speedups, rescale_s, start_s)


def cost_of(job: EpochType, path: tuple[int, ...], price: float) -> float:
    total = job.start_s * (1 + price * job.widths[path[0]])
    for epoch, at in enumerate(path):
        k = job.widths[at]
        total += (1 + price * k) * job.sizes_s[epoch] / job.speedups[epoch][at]
        if epoch and path[epoch - 1] != at:
            total += job.rescale_s * (1 + price * k)
            total += job.start_s * price * max(0, k - job.widths[path[epoch - 1]])
    return total


def plan_s(job: EpochType, path: tuple[int, ...]) -> tuple[float, float]:
    """(seconds, GPU-seconds)."""
    seconds = cost_of(job, path, 0.0)
    return seconds, cost_of(job, path, 1.0) - seconds


@pytest.mark.parametrize("seed", range(40))
def test_the_path_is_the_cheapest_of_all(seed: int) -> None:
    rng = random.Random(seed)
    job, price = random_type(rng), rng.uniform(0.001, 5.0)
    plan = best_plan(job, price)
    best = min(cost_of(job, path, price) for path in itertools.product(range(3), repeat=5))
    assert plan.seconds + price * plan.gpu_s == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_no_mix_of_plans_is_better_for_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    job = random_type(rng, epochs=4)
    plans = []
    for path in itertools.product(range(3), repeat=4):
        seconds, gpu_s = plan_s(job, path)
        plans.append((gpu_s * job.arrival_rate_per_s, seconds))
    least, most = min(plans)[0], max(g for g, _ in plans)
    budget = rng.uniform(least, most)
    found = solve_epochs([job], budget)
    assert found.gpus_mean <= budget * (1 + 1e-9)
    # With one type the best mix is on the lower hull of all plans.
    mixes = [
        a[1] + (b[1] - a[1]) * (budget - a[0]) / (b[0] - a[0]) for a in plans for b in plans if a[0] <= budget < b[0]
    ]
    best = min([*mixes, *(s for g, s in plans if g <= budget)])
    assert found.mean_jct_s == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_types_together_are_as_good_as_a_linear_programme_over_all_paths(seed: int) -> None:
    rng = random.Random(seed)
    # Of unequal numbers of epochs, so that some are done earlier.
    types = [random_type(rng, epochs) for epochs in (1, 3, 4)]
    paths = [list(itertools.product(range(3), repeat=len(t.sizes_s))) for t in types]
    plans = [
        np.array([plan_s(t, path) for path in of]) * t.arrival_rate_per_s for t, of in zip(types, paths, strict=True)
    ]
    least, most = sum(p[:, 1].min() for p in plans), sum(p[p[:, 0].argmin(), 1] for p in plans)
    budget = rng.uniform(least, 1.1 * most)
    mixes = [cp.Variable(len(of), nonneg=True) for of in paths]
    busy = sum(p[:, 0] @ x for p, x in zip(plans, mixes, strict=True))
    spent = sum(p[:, 1] @ x for p, x in zip(plans, mixes, strict=True))
    oracle = cp.Problem(cp.Minimize(busy), [spent <= budget, *(cp.sum(x) == 1 for x in mixes)])
    oracle.solve(solver=cp.HIGHS)
    rate = sum(t.arrival_rate_per_s for t in types)
    for tolerance, rel in ((1e-14, 1e-9), (1e-6, 1e-6)):
        found = solve_epochs(types, budget, tolerance=tolerance)
        assert found.mean_jct_s == pytest.approx(oracle.value / rate, rel=rel)
        assert found.gpus_mean <= budget * (1 + 1e-9)
        if budget < most * (1 - 1e-9):
            assert found.gpus_mean == pytest.approx(budget, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_says_what_its_path_takes(seed: int) -> None:
    rng = random.Random(seed)
    job, price = random_type(rng), rng.uniform(0.001, 5.0)
    plan = best_plan(job, price)
    path = tuple(WIDTHS.index(k) for k in plan.widths)
    assert (plan.seconds, plan.gpu_s) == pytest.approx(plan_s(job, path))


@given(seed=st.integers(0, 10_000), factor=st.floats(1.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_more_budget_is_never_slower(seed: int, factor: float) -> None:
    rng = random.Random(seed)
    types = [random_type(rng, epochs) for epochs in (2, 4)]
    least = sum(t.arrival_rate_per_s * best_plan(t, 1e12).gpu_s for t in types)
    less, more = (solve_epochs(types, least * rate, tolerance=1e-6) for rate in (1.05, 1.05 * factor))
    assert more.mean_jct_s <= less.mean_jct_s * (1 + 1e-9)


def test_without_rescale_cost_every_epoch_is_a_type_of_its_own() -> None:
    rng = random.Random(7)
    job = random_type(rng)
    job = replace(job, rescale_s=0.0, start_s=0.0)
    epochs = [
        JobType(str(i), job.arrival_rate_per_s, size, None, tuple(map(float, WIDTHS)), speedups)
        for i, (size, speedups) in enumerate(zip(job.sizes_s, job.speedups, strict=True))
    ]
    budget = 1.5 * sum(t.load for t in epochs)
    apart = solve(epochs, budget)
    assert solve_epochs([job], budget).mean_jct_s == pytest.approx(apart.mean_jct_s() * len(epochs), rel=1e-9)


def test_a_width_that_is_not_known_is_never_chosen_and_too_little_is_refused() -> None:
    job = EpochType("t", 0.01, (1, 2), (100.0, 100.0), ((1.0, 0.0), (1.0, 1.9)), rescale_s=1.0)
    assert solve_epochs([job], 100.0).plans[0][0].widths == (1, 2)
    with pytest.raises(InfeasibleError, match="smallest feasible budget is 2"):
        solve_epochs([job], 1.0)
