"""Invented profiles: their parts are what was asked for."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fairlead.errors import InputError
from fairlead.measure import drifted, summarise, synthetic_variability
from fairlead.measure.summary import between_nodes_frac, spearman
from fairlead.model.cluster import parse_shape
from fairlead.model.variability import Variability


@given(
    nodes=st.integers(1, 20),
    gpus=st.integers(1, 8),
    between=st.floats(0, 0.5),
    within=st.floats(0, 0.5),
    outliers=st.floats(0, 0.5),
    noise=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_the_median_of_scores_is_one_drifted_or_not(
    nodes: int, gpus: int, between: float, within: float, outliers: float, noise: float, seed: int
) -> None:
    cluster = parse_shape(f"{nodes}x{gpus}")
    made = synthetic_variability(cluster, between=between, within=within, outliers=outliers, seed=seed)
    for profile in (made, drifted(made, noise=noise, seed=seed)):
        assert set(profile.scores) == set("ABCD")
        for scores in profile.scores.values():
            assert len(scores) == cluster.gpus
            assert statistics.median(scores) == pytest.approx(1.0)


@pytest.mark.parametrize(("between", "within", "share"), [(0.05, 0.0, 1.0), (0.05, 0.02, 0.86), (0.0, 0.05, 0.25)])
def test_variance_lies_where_it_was_put(between: float, within: float, share: float) -> None:
    cluster = parse_shape("500x4")
    made = synthetic_variability(cluster, between=between, within=within, outliers=0.0, sensitivity={"A": 1.0})
    # Four GPUs drawn at random have a mean that varies too: 25 % of a variance that is all within nodes.
    expected = (between**2 + within**2 / 4) / (between**2 + within**2)
    found = between_nodes_frac(np.asarray(made.of_class("A")), np.asarray(cluster.node_of))
    assert found == pytest.approx(expected, abs=0.04)
    assert found == pytest.approx(share, abs=0.05)


def test_classes_are_independent_and_feel_as_much_as_they_should() -> None:
    cluster = parse_shape("1000x4")
    made = synthetic_variability(cluster, outliers=0.0, sensitivity={"A": 1.0, "B": 0.3, "D": 0.0})
    spread = {name: statistics.stdev(map(float, np.log(scores))) for name, scores in made.scores.items()}
    assert spread["B"] / spread["A"] == pytest.approx(0.3, abs=0.03)
    assert set(made.of_class("D")) == {1.0}
    assert abs(summarise(made, cluster)["correlations"]["A-B"]) < 0.09
    assert summarise(made, cluster)["correlations"]["A-D"] is None


def test_outliers_are_as_many_and_as_slow_as_asked() -> None:
    cluster = parse_shape("50x4")
    made = synthetic_variability(
        cluster, between=0, within=0, outliers=0.01, outlier_factor=3.0, sensitivity={"A": 1.0, "B": 0.5}
    )
    slow = {name: [gpu for gpu, s in enumerate(scores) if s > 1] for name, scores in made.scores.items()}
    assert len(slow["A"]) == 2
    assert slow["A"] == slow["B"]
    assert made.of_class("A")[slow["A"][0]] == pytest.approx(3.0)
    assert made.of_class("B")[slow["A"][0]] == pytest.approx(3.0**0.5)
    named = [found["gpu"] for found in summarise(made, cluster)["classes"]["A"]["outliers"]]
    assert named == [cluster.gpu_name(gpu) for gpu in slow["A"]]


def test_the_seed_decides_and_other_classes_do_not() -> None:
    cluster = parse_shape("4x4")
    first = synthetic_variability(cluster, seed=1)
    assert synthetic_variability(cluster, seed=1) == first
    assert synthetic_variability(cluster, seed=2) != first
    assert synthetic_variability(cluster, seed=1, sensitivity={"A": 1.0}).of_class("A") == first.of_class("A")
    assert drifted(first, noise=0.1, seed=1) == drifted(first, noise=0.1, seed=1) != drifted(first, noise=0.1, seed=2)


def test_drift_is_as_large_as_asked_and_keeps_what_is_unscored() -> None:
    before = Variability({"A": [1.0] * 4000}, (3,))
    after = drifted(before, noise=0.1)
    assert statistics.stdev(map(float, np.log(after.of_class("A")))) == pytest.approx(0.1, abs=0.005)
    assert after.unscored == (3,)
    assert drifted(before, noise=0.0) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"between": -1.0}, "between is -1, expected a number from 0 to 5"),
        ({"within": float("nan")}, "within is nan"),
        ({"outliers": 0.6}, "outliers is 0.6, expected a number from 0 to 0.5"),
        ({"outlier_factor": 0.5}, "outlier factor is 0.5"),
        ({"sensitivity": {"A": -1.0}}, "sensitivity of class A is -1"),
        ({"sensitivity": {"low": 1.0}}, "class 'low': expected capital letters"),
        ({"sensitivity": {}}, "no classes given"),
    ],
)
def test_a_wrong_wish_is_explained(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        synthetic_variability(parse_shape("2x2"), **options)  # type: ignore[arg-type]


def test_drift_has_bounds() -> None:
    with pytest.raises(InputError, match="noise -1"):
        drifted(Variability({"A": [1.0]}), noise=-1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=40))
def test_rank_correlation_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.asarray(side, dtype=float) for side in zip(*pairs, strict=True))
    found = spearman(first, second)
    if found is None:
        assert np.ptp(first) == 0 or np.ptp(second) == 0
    else:
        assert found == pytest.approx(spearmanr(first, second).statistic)


def test_a_share_between_nodes_needs_two_nodes_with_two_gpus() -> None:
    scores = np.asarray([1.0, 2.0, 3.0])
    assert between_nodes_frac(scores, np.asarray([0, 1, 2])) is None
    assert between_nodes_frac(scores, np.asarray([0, 0, 1])) is None
    assert between_nodes_frac(np.ones(4), np.asarray([0, 0, 1, 1])) is None
    assert between_nodes_frac(np.asarray([1.0, 1.0, 2.0, 2.0, 9.0]), np.asarray([0, 0, 1, 1, 2])) == 1.0
