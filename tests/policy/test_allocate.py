"""Widths for all jobs at once, against every allocation there is."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.sizing.allocate import Allocation


@given(seed=st.integers(0, 100_000), jobs=st.integers(1, 4), gpus=st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_no_allocation_is_cheaper(seed: int, jobs: int, gpus: int) -> None:
    rng = random.Random(seed)
    widths = (0, *sorted(rng.sample(range(1, 8), rng.randrange(1, 4))))
    costs = np.array(
        [[rng.choice((rng.uniform(-5, 5), rng.uniform(-5, 5), math.inf)) for _ in widths] for _ in range(jobs)]
    )
    costs[:, 0] = [rng.uniform(-1, 5) for _ in range(jobs)]
    found = Allocation(costs, widths, gpus)
    for k in range(gpus + 1):
        options = itertools.product(range(len(widths)), repeat=jobs)
        best = min(
            sum(costs[j][i] for j, i in enumerate(choice)) for choice in options if sum(widths[i] for i in choice) <= k
        )
        chosen = found.widths(k)
        assert found.cost[k] == pytest.approx(best)
        assert sum(chosen) <= k
        assert sum(costs[j][widths.index(w)] for j, w in enumerate(chosen)) == pytest.approx(best)


def test_no_jobs_and_no_gpus() -> None:
    assert Allocation(np.zeros((0, 2)), (0, 1), 3).widths(3) == []
    assert Allocation(np.array([[1.0, 0.0]]), (0, 1), 0).widths(0) == [0]


def test_more_gpus_never_cost_more() -> None:
    rng = np.random.default_rng(3)
    found = Allocation(rng.uniform(0, 1, (20, 6)), (0, 1, 2, 4, 8, 12), 64)
    assert (np.diff(found.cost) <= 1e-12).all()
