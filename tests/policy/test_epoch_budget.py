"""Widths by epoch against every path there is."""

from __future__ import annotations

import itertools
import random

import pytest

from fairlead.errors import InfeasibleError
from fairlead.policy.sizing.budget import JobType, solve
from fairlead.policy.sizing.epoch_budget import EpochType, best_plan, solve_epochs

WIDTHS = (1, 2, 4)


def random_type(rng: random.Random, epochs: int = 5) -> EpochType:
    speedups = tuple(tuple(float(k ** rng.uniform(0.3, 0.95)) for k in WIDTHS) for _ in range(epochs))
    sizes = tuple(rng.uniform(50, 500) for _ in range(epochs))
    return EpochType("t", rng.uniform(0.01, 0.1), WIDTHS, sizes, speedups, rescale_s=rng.choice((0.0, 20.0, 100.0)))


def cost_of(job: EpochType, path: tuple[int, ...], price: float) -> float:
    total = 0.0
    for epoch, at in enumerate(path):
        k = job.widths[at]
        total += (1 + price * k) * job.sizes_s[epoch] / job.speedups[epoch][at]
        if epoch and path[epoch - 1] != at:
            total += job.rescale_s * (1 + price * k)
    return total


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
        seconds = cost_of(job, path, 0.0)
        gpu_s = cost_of(job, path, 1.0) - seconds
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


def test_without_rescale_cost_every_epoch_is_a_type_of_its_own() -> None:
    rng = random.Random(7)
    job = random_type(rng)
    job = EpochType(job.name, job.arrival_rate_per_s, job.widths, job.sizes_s, job.speedups, rescale_s=0.0)
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
