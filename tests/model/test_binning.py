"""Bins against brute force and against the published draw."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from fairlead.model.binning import _edges, _tables, bin_scores, outliers, silhouette


def spread(groups: list[np.ndarray]) -> float:
    return float(sum(((g - g.mean()) ** 2).sum() for g in groups))


@pytest.mark.parametrize("seed", range(20))
def test_k_means_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    points = np.array(sorted({round(rng.gauss(1, 0.2), 3) for _ in range(10)}))
    weights = np.array([float(rng.randrange(1, 4)) for _ in points])
    for k in range(1, 5):
        edges = _edges(_tables(points, weights, k), k)
        copies = [np.repeat(points[a:b], weights[a:b].astype(int)) for a, b in itertools.pairwise(edges)]
        cuts = itertools.combinations(range(1, len(points)), k - 1)
        best = min(
            spread(
                [np.repeat(points[a:b], weights[a:b].astype(int)) for a, b in itertools.pairwise((0, *c, len(points)))]
            )
            for c in cuts
        )
        assert spread(copies) == pytest.approx(best, abs=1e-12)


def test_silhouette_is_scikit_learns() -> None:
    points = np.array([0.9, 0.92, 1.0, 1.01, 1.3, 1.31, 1.35])
    edges = np.array([0, 2, 4, 7])
    label = np.repeat([0, 1, 2], np.diff(edges))
    assert silhouette(points, np.ones(7), edges) == pytest.approx(silhouette_score(points[:, None], label))


def test_the_published_draw_gets_the_published_bins(shared_data: Path) -> None:
    gpus = json.loads((shared_data / "pal" / "profile64_seed42.json").read_text())["gpus"]
    for app_class in "ABCD":
        bins = bin_scores([g[app_class] for g in gpus], bins=2)
        assert [bins.values[b] for b in bins.of] == pytest.approx([g[f"sf_{app_class}"] for g in gpus])


def test_an_outlier_has_a_bin_of_its_own() -> None:
    scores = [1.0 + 0.001 * (i % 7) for i in range(40)] + [2.5]
    assert outliers(np.array(scores)).sum() == 1
    bins = bin_scores(scores)
    assert bins.of.count(bins.of[-1]) == 1


def test_equal_scores_share_one_bin() -> None:
    assert bin_scores([1.0] * 8).values == (1.0,)
    assert bin_scores([1.3]).values == (1.0,)
    assert len(bin_scores([1.0] * 8, bins=2).values) == 1


def test_many_gpus_are_binned_in_a_moment() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(1.0, 0.05, 20_000).clip(0.7)
    bins = bin_scores(list(scores))
    assert len(bins.of) == 20_000
    # Bins are intervals: a faster GPU is never in a slower bin.
    order = np.argsort(np.round(scores, 3), kind="stable")
    assert (np.diff(np.array(bins.of)[order]) >= 0).all()
