from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fairlead.errors import InputError
from fairlead.policy.sharing import matching
from fairlead.policy.sharing.matching import match

Weights = NDArray[np.float64]
NOT_ALLOWED = (0.0, -1.0, float("nan"), float("-inf"))

small = npst.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    elements=st.one_of(st.floats(0.01, 1.0), st.sampled_from(NOT_ALLOWED)),
)


def brute_force(weights: Weights) -> float:
    w = np.nan_to_num(np.where(weights > 0.0, weights, 0.0))
    if w.shape[0] > w.shape[1]:
        w = w.T
    return max(sum(w[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(w.shape[1]), w.shape[0]))


def optimum(weights: Weights) -> float:
    rows, cols = linear_sum_assignment(weights, maximize=True)
    return float(weights[rows, cols].sum())


def check(weights: Weights, partner: NDArray[np.int64]) -> None:
    """Nobody twice, and nothing that is not allowed."""
    used = partner[partner >= 0]
    assert len(set(used.tolist())) == len(used)
    assert all(weights[i, j] > 0.0 for i, j in enumerate(partner) if j >= 0)


def families(n: int, m: int) -> dict[str, Weights]:
    rng = np.random.default_rng(n * m)
    uniform = rng.random((n, m))
    return {
        "uniform": uniform,
        "product": np.outer(rng.random(n), rng.random(m)) + 0.05 * uniform,
        "ties": np.round(rng.random((6, 6)), 1)[np.ix_(rng.integers(0, 6, n), rng.integers(0, 6, m))],
        "sparse": np.where(rng.random((n, m)) < 0.05, uniform, 0.0),
        "very sparse": np.where(rng.random((n, m)) < 3 / m, uniform, 0.0),
        "memory": np.where(np.add.outer(rng.random(n), rng.random(m)) < 1.0, np.outer(rng.random(n), rng.random(m)), 0),
        "nothing": np.zeros((n, m)),
    }


@given(small)
def test_it_is_the_best_of_all_matchings(weights: Weights) -> None:
    found = match(weights)
    check(weights, found.partner)
    assert found.exact
    assert found.loss_bound_frac == 0.0
    assert found.weight == pytest.approx(brute_force(weights))


@given(small)
def test_the_bound_holds_and_pairs_are_allowed_when_sharded(weights: Weights) -> None:
    found = match(weights, exact_limit=0)
    check(weights, found.partner)
    assert not found.exact
    assert found.weight >= (1.0 - found.loss_bound_frac) * brute_force(weights) - 1e-5


@pytest.mark.parametrize("shape", [(80, 80), (50, 120), (120, 50), (1, 40)])
def test_the_weight_is_scipys_optimum(shape: tuple[int, int]) -> None:
    for name, weights in families(*shape).items():
        assert match(weights).weight == pytest.approx(optimum(weights)), name


@pytest.mark.parametrize("shape", [(600, 600), (400, 900), (900, 400)])
def test_sharded_loses_at_most_one_percent(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SHARD", 100)
    for name, weights in families(*shape).items():
        found = match(weights.astype(np.float32), exact_limit=100)
        check(weights, found.partner)
        best = optimum(weights)
        assert found.weight >= 0.99 * best, name
        assert found.loss_bound_frac <= 0.03, name
        assert best <= found.weight / (1.0 - found.loss_bound_frac) + 1e-3, name


def test_a_running_pair_is_kept_for_a_small_gain_and_left_for_a_clear_one() -> None:
    small_gain = np.array([[0.50, 0.52], [0.50, 0.50]])
    kept = match(small_gain, keep=[0, 1])
    assert kept.partner.tolist() == [0, 1]
    assert kept.weight == pytest.approx(1.0)  # without the bonus
    assert match(small_gain).partner.tolist() == [1, 0]
    assert match(np.array([[0.5, 0.9], [0.5, 0.5]]), keep=[0, 1]).partner.tolist() == [1, 0]
    assert match(small_gain, keep=[0, 1], bonus=0.0).partner.tolist() == [1, 0]


def test_a_running_pair_that_is_no_longer_allowed_is_given_up() -> None:
    assert match([[0.0, 0.4]], keep=[0]).partner.tolist() == [1]
    assert match([[float("nan")]], keep=[0]).partner.tolist() == [-1]


def test_bonuses_count_when_sharded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SHARD", 40)
    weights = np.random.default_rng(3).uniform(0.95, 1.0, (120, 120))
    keep = np.random.default_rng(4).permutation(120)
    found = match(weights, keep=keep, exact_limit=10)
    assert (found.partner == keep).all()
    assert found.weight == pytest.approx(weights[np.arange(120), keep].sum())


def test_the_same_input_gives_the_same_answer_and_is_left_alone() -> None:
    weights = np.random.default_rng(0).random((300, 300), dtype=np.float32)
    before = weights.copy()
    first, second = (match(weights, keep=np.arange(300), exact_limit=10) for _ in range(2))
    assert (first.partner == second.partner).all()
    assert (weights == before).all()


def test_scale_changes_nothing() -> None:
    weights = np.random.default_rng(1).random((200, 200))
    for scale in (1e-6, 1e6):
        assert (match(weights * scale).partner == match(weights).partner).all()
        sharded = match(weights * scale, exact_limit=50)
        assert sharded.weight / scale >= 0.99 * match(weights).weight


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_nobody_there_is_nobody_matched(shape: tuple[int, int]) -> None:
    assert match(np.zeros(shape)).partner.tolist() == [-1] * shape[0]


@pytest.mark.parametrize(
    ("weights", "options", "named"),
    [
        ([1.0, 2.0], {}, "shape"),
        ([["a"]], {}, "expected numbers"),
        ([[1.0]], {"keep": [1]}, "keep"),
        ([[1.0]], {"keep": [0, 0]}, "keep"),
        ([[1.0]], {"keep": [0.5]}, "keep"),
        ([[1.0]], {"bonus": -0.1}, "bonus"),
        ([[float("inf")]], {}, "inf"),
    ],
)
def test_wrong_input_is_named(weights: object, options: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        match(weights, **options)  # type: ignore[arg-type]
