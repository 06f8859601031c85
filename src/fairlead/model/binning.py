"""Binning of variability scores: GPUs that are equally fast, for all that measurements can tell, share a bin.

PAL's rule, per class: outliers are the scores above mean + 3 standard deviations, K2 of them; K1 is the number of
clusters of the rest with the best silhouette; K-means with K1 + K2 clusters over all scores gives the bins, and a GPU
counts as slow as its bin's centroid. Scores are one-dimensional, so K-means is solved exactly (dynamic programming over
the sorted scores) instead of from random starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_BINS = 10
_EXACT_UP_TO = 1024
_COARSE = 1e-3
"""Beyond `_EXACT_UP_TO` scores those closer than this are taken for one: no measurement is better."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bins:
    """Bin values in ascending order, and the bin of each score."""

    values: tuple[float, ...]
    of: tuple[int, ...]


def bin_scores(scores: Sequence[float], bins: int = 0) -> Bins:
    """Bins of one class's scores; `bins` fixes K1, 0 takes the one with the best silhouette."""
    all_scores = np.asarray(scores, dtype=np.float64)
    slow = outliers(all_scores)
    points, weights, index = _distinct(all_scores)
    k1 = bins or _best_k(all_scores[~slow])
    edges = _partition(points, weights, min(k1 + int(slow.sum()), len(points)))
    label = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    centroids = [float(np.average(points[a:b], weights=weights[a:b])) for a, b in itertools.pairwise(edges)]
    middle = float(np.median(centroids))
    return Bins(tuple(c / middle for c in centroids), tuple(int(i) for i in label[index]))


def outliers(scores: Floats) -> NDArray[np.bool_]:
    """Which scores are above mean + 3 (sample) standard deviations."""
    if len(scores) < 2:
        return np.zeros(len(scores), dtype=np.bool_)
    return np.asarray(scores > scores.mean() + 3.0 * scores.std(ddof=1))


def clearly_slow(scores: Floats) -> NDArray[np.bool_]:
    """Which GPUs an operator should look at: a fifth slower than the median, and far outside the usual spread.

    By median and median deviation, which a few very slow GPUs among a few do not move.
    """
    middle = float(np.median(scores))
    usual = 1.4826 * float(np.median(np.abs(scores - middle)))
    return np.asarray((scores > 1.2 * middle) & (scores > middle + 5.0 * usual))


def silhouette(points: Floats, weights: Floats, edges: Ints) -> float:
    """Mean silhouette of a partition of sorted points; a point alone in its cluster counts 0."""
    distance = np.abs(points[:, None] - points[None, :]) * weights[None, :]
    to_cluster = np.add.reduceat(distance, edges[:-1], axis=1)
    sizes = np.add.reduceat(weights, edges[:-1])
    label = np.repeat(np.arange(len(sizes)), np.diff(edges))
    rows = np.arange(len(points))
    own = sizes[label]
    inside = to_cluster[rows, label] / np.maximum(own - 1.0, 1.0)
    means = to_cluster / sizes
    means[rows, label] = np.inf
    outside = means.min(axis=1)
    largest = np.maximum(inside, outside)
    score = np.where((own > 1.0) & (largest > 0.0), (outside - inside) / np.where(largest > 0.0, largest, 1.0), 0.0)
    return float(np.average(score, weights=weights))


def _best_k(scores: Floats) -> int:
    points, weights, _ = _distinct(scores)
    if len(points) <= 2:
        return len(points)
    most = min(MOST_BINS, len(points), len(scores) - 1)
    tables = _tables(points, weights, most)
    best_k, best = 1, -2.0
    for k in range(2, most + 1):
        found = silhouette(points, weights, _edges(tables, k))
        if found > best + 1e-12:
            best_k, best = k, found
    return best_k


def _distinct(scores: Floats) -> tuple[Floats, Floats, Ints]:
    """Distinct scores in order, how often each occurs, and which of them each score is."""
    if len(scores) > _EXACT_UP_TO:
        scores = np.round(scores / _COARSE) * _COARSE
    points, index, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return points, counts.astype(np.float64), index.astype(np.int64)


def _partition(points: Floats, weights: Floats, k: int) -> Ints:
    return _edges(_tables(points, weights, k), k)


def _tables(points: Floats, weights: Floats, most: int) -> list[Ints]:
    """For 1, 2, ... clusters: where the last cluster of the best partition of the first j points begins."""
    n = len(points)
    w = np.concatenate(([0.0], np.cumsum(weights)))
    # About the mean, or the differences of squares below lose the digits that matter.
    x = points - np.average(points, weights=weights)
    s = np.concatenate(([0.0], np.cumsum(weights * x)))
    q = np.concatenate(([0.0], np.cumsum(weights * x * x)))
    i, j = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (q[j] - q[i]) - (s[j] - s[i]) ** 2 / (w[j] - w[i])
    cost = np.where(i < j, np.maximum(spread, 0.0), np.inf)
    best = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
    tables = []
    for _ in range(max(1, most)):
        total = best[:, None] + cost
        starts = total.argmin(axis=0)
        best = total[starts, np.arange(n + 1)]
        tables.append(starts.astype(np.int64))
    return tables


def _edges(tables: list[Ints], k: int) -> Ints:
    """The borders of the best partition into k clusters: 0, ..., n."""
    edges = [len(tables[0]) - 1]
    for table in reversed(tables[:k]):
        edges.append(int(table[edges[-1]]))
    return np.asarray(edges[::-1], dtype=np.int64)
