"""Training of the methods in `fairlead.model.regressors`, in NumPy.

x holds standardised features (services' first, `split` of them), y the two speeds that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.regressors import Linear, Mean, Mlp, Neighbours, Regressor, Trees

Floats = NDArray[np.float32]
Fit = Callable[[Floats, Floats, int, int], Regressor]
"""(x, y, split, seed)."""

WIDTH = 64
MEMBERS = 2
_BINS = 32


def fit_mean(x: Floats, y: Floats, split: int, seed: int) -> Mean:
    """Predict the mean of what was measured for every pair."""
    return Mean(y.mean(axis=0))


def fit_linear(x: Floats, y: Floats, split: int, seed: int, ridge: float = 1.0) -> Linear:
    """Least squares with a penalty on large weights."""
    centre, middle = x.mean(axis=0), y.mean(axis=0)
    a = (x - centre).astype(np.float64)
    weight = np.linalg.solve(a.T @ a + ridge * np.eye(x.shape[1]), a.T @ (y - middle)).astype(np.float32)
    return Linear(weight[:split], weight[split:], (middle - centre @ weight).astype(np.float32))


def fit_neighbours(x: Floats, y: Floats, split: int, seed: int, k: int = 5) -> Neighbours:
    """Keep all measured pairs, to look up the nearest."""
    return Neighbours(x.copy(), y.copy(), np.asarray(k, dtype=np.int64))


def fit_trees(
    x: Floats,
    y: Floats,
    split: int,
    seed: int,
    *,
    trees: int = 250,
    depth: int = 5,
    rate: float = 0.08,
    sampled: float = 0.6,
    ridge: float = 1.0,
) -> Trees:
    """Gradient boosting for squared error; one tree for both outputs, thresholds at quantiles of the features."""
    rng = np.random.default_rng(seed)
    steps = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = [np.unique(np.quantile(column, steps).astype(np.float32)) for column in x.T]
    bins = np.stack([np.searchsorted(e, column, side="left") for e, column in zip(edges, x.T, strict=True)], axis=1)
    cut = np.full((x.shape[1], _BINS), np.inf, dtype=np.float32)
    for column, e in enumerate(edges):
        cut[column, : len(e)] = e
    base = y.mean(axis=0)
    current = np.broadcast_to(base, y.shape).astype(np.float64)
    inner = 2**depth - 1
    feature = np.zeros((trees, inner), dtype=np.int64)
    threshold = np.full((trees, inner), np.inf, dtype=np.float32)
    value = np.zeros((trees, inner + 1, 2), dtype=np.float32)
    for tree in range(trees):
        rows = np.sort(rng.permutation(len(x))[: max(2, int(sampled * len(x)))])
        usable = np.asarray(rng.random(x.shape[1]) < 0.6)
        if not usable.any():
            usable[:] = True
        node = np.zeros(len(x), dtype=np.int64)
        for level in range(depth):
            first = 2**level - 1
            best, at = _best_splits(bins[rows], (y - current)[rows], node[rows] - first, 2**level, usable, ridge)
            feature[tree, first : 2 * first + 1], threshold[tree, first : 2 * first + 1] = best, cut[best, at]
            node = 2 * node + 1 + (bins[np.arange(len(x)), feature[tree, node]] > at[node - first])
        leaf = node[rows] - inner
        size = np.bincount(leaf, minlength=inner + 1) + ridge
        for output in range(2):
            total = np.bincount(leaf, weights=(y - current)[rows, output], minlength=inner + 1)
            value[tree, :, output] = rate * total / size
        current += value[tree, node - inner]
    return Trees(feature, threshold, value, base.astype(np.float32))


def _best_splits(
    bins: NDArray[Any], residual: NDArray[Any], node: NDArray[Any], nodes: int, usable: NDArray[Any], ridge: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Feature and bin (to the left is at most this bin) of each node's best split; the last bin does not split."""
    features = bins.shape[1]
    key = ((node[:, None] * features + np.arange(features)) * _BINS + bins).ravel()
    shape = (nodes, features, _BINS)
    count = np.bincount(key, minlength=nodes * features * _BINS).reshape(shape).cumsum(axis=2)
    gain = np.zeros(shape)
    for output in range(2):
        weights = np.repeat(residual[:, output], features)
        total = np.bincount(key, weights=weights, minlength=nodes * features * _BINS).reshape(shape).cumsum(axis=2)
        rest, whole = total[..., -1:] - total, total[..., -1:]
        gain += total**2 / (count + ridge) + rest**2 / (count[..., -1:] - count + ridge)
        gain -= whole**2 / (count[..., -1:] + ridge)
    gain[(count < 2) | (count[..., -1:] - count < 2)] = 0.0
    gain[:, ~usable] = 0.0
    best = gain.reshape(nodes, -1).argmax(axis=1)
    none = gain.reshape(nodes, -1).max(axis=1) <= 1e-12
    feature, at = np.divmod(best, _BINS)
    return np.where(none, 0, feature), np.where(none, _BINS - 1, at)


def fit_mlp(
    x: Floats,
    y: Floats,
    split: int,
    seed: int,
    *,
    members: int = MEMBERS,
    steps: int = 4000,
    batch: int = 128,
    rate: float = 3e-3,
    decay: float = 1e-4,
) -> Mlp:
    """Adam on squared error with a falling rate; of each member the weights that did best on a tenth set aside."""
    networks = [_network(x, y, np.random.default_rng([seed, m]), steps, batch, rate, decay) for m in range(members)]
    stacked = [np.stack(parts) for parts in zip(*networks, strict=True)]
    first, *others = stacked
    return Mlp(first[:, :split], first[:, split:], *others)


def _network(
    x: Floats, y: Floats, rng: np.random.Generator, steps: int, batch: int, rate: float, decay: float
) -> list[Floats]:
    sizes = [x.shape[1], WIDTH, WIDTH, WIDTH, 2]
    p: list[Floats] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        p += [(rng.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)).astype(np.float32)]
        p += [np.zeros(fan_out, dtype=np.float32)]
    p[-1] += y.mean(axis=0)
    p[-2] *= np.float32(0.1)
    order = rng.permutation(len(x))
    aside = order[: len(x) // 10] if len(x) >= 50 else order
    train = order[len(x) // 10 :] if len(x) >= 50 else order
    m, v = [np.zeros_like(w) for w in p], [np.zeros_like(w) for w in p]
    best, kept, worse = np.inf, [w.copy() for w in p], 0
    for step in range(1, steps + 1):
        rows = rng.choice(train, size=min(batch, len(train)), replace=False)
        now = np.float32(rate * 0.5 * (1 + np.cos(np.pi * step / steps)) + 1e-5)
        for i, g in enumerate(_gradients(p, x[rows], y[rows])):
            m[i] += np.float32(0.1) * (g - m[i])
            v[i] += np.float32(0.001) * (g * g - v[i])
            move = (m[i] / (1 - 0.9**step)) / (np.sqrt(v[i] / (1 - 0.999**step)) + 1e-8)
            p[i] -= now * (move + (np.float32(decay / rate) * p[i] if p[i].ndim == 2 else 0.0)).astype(np.float32)
        if step % 50 == 0:
            error = float(((_forward(p, x[aside])[-1] - y[aside]) ** 2).mean())
            worse += 1
            if error < best:
                best, kept, worse = error, [w.copy() for w in p], 0
            if worse >= 30:
                break
    return kept


def _forward(p: list[Floats], x: Floats) -> list[Floats]:
    layers = [x]
    for i in range(0, len(p), 2):
        h = layers[-1] @ p[i] + p[i + 1]
        layers.append(np.maximum(h, 0.0) if i + 2 < len(p) else h)
    return layers


def _gradients(p: list[Floats], x: Floats, y: Floats) -> list[Floats]:
    layers = _forward(p, x)
    back = (layers[-1] - y) / np.float32(len(x))
    made: list[Floats] = []
    for i in range(len(p) - 2, -1, -2):
        here = layers[i // 2]
        made = [here.T @ back, back.sum(axis=0), *made]
        if i:
            back = (back @ p[i].T) * (here > 0.0)
    return made


FITS: dict[str, Fit] = {
    "mean": fit_mean,
    "linear": fit_linear,
    "k-nn": fit_neighbours,
    "trees": fit_trees,
    "mlp": fit_mlp,
}
"""By the names of `regressors.METHODS`."""
