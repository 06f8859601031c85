"""Prices of jobs that prove a matching optimal: its dual variables, from the matching alone.

A service that is matched to j and could have k keeps j only if `w[i, k] - p[k] <= w[i, j] - p[j]`. So a price pushes up
others, `p[k] >= p[j] + w[i, k] - w[i, j]`, and the least prices are longest paths, by Bellman and Ford. An unmatched
service has 0 left, and pushes `p[k] >= w[i, k]`. The greatest prices are the least profits with the sides swapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEPS = 300
"""More pushes than any family of weights needed (205); prices cut short are still prices, only less telling ones."""
_EPSILON = 1e-4

Ints = NDArray[np.int64]
Prices = NDArray[np.float32]


def block_prices(weights: NDArray[np.floating[Any]], rows: Ints, cols: Ints) -> Prices:
    """The least prices that support the matching (rows, cols) of a dense block."""
    prices = np.zeros(weights.shape[1], dtype=np.float32)
    alone = np.ones(weights.shape[0], dtype=np.bool_)
    alone[rows] = False
    if alone.any():
        prices = np.maximum(prices, weights[alone].max(axis=0)).astype(np.float32)
    push = (weights[rows] - weights[rows, cols][:, None]).astype(np.float32)
    close = _EPSILON * float(weights.max(initial=0.0))
    for _ in range(_STEPS):
        higher = (push + prices[cols][:, None]).max(axis=0, initial=0.0)
        if float((higher - prices).max(initial=0.0)) <= close:
            break
        np.maximum(prices, higher, out=prices)
    return prices


def core_prices(rows: Ints, cols: Ints, value: NDArray[np.float64], partner: Ints, jobs: int) -> tuple[Prices, Prices]:
    """The least and the greatest prices that support an optimal matching of a sparse problem."""
    service_of = np.full(jobs, -1, dtype=np.int64)
    held = np.flatnonzero(partner >= 0)
    service_of[partner[held]] = held
    least = _least(rows, cols, value, partner, jobs)
    profit = _least(cols, rows, value, service_of, len(partner))
    most = np.zeros(jobs)
    own = partner[rows] == cols
    most[cols[own]] = value[own] - profit[rows[own]]
    most = np.maximum(most, least)
    return least.astype(np.float32), most.astype(np.float32)


def _least(rows: Ints, cols: Ints, value: NDArray[np.float64], partner: Ints, count: int) -> NDArray[np.float64]:
    """Least prices of `count` columns."""
    prices = np.zeros(count + 1)  # the last is the price of staying alone
    if not len(value):
        return prices[:count]
    order = np.argsort(cols, kind="stable")
    rows, cols, value = rows[order], cols[order], value[order]
    held = np.zeros(len(partner))
    own = partner[rows] == cols
    held[rows[own]] = value[own]
    push = value - held[rows]
    source = np.where(partner >= 0, partner, count)[rows]
    starts = np.flatnonzero(np.concatenate([[True], cols[1:] != cols[:-1]]))
    seen = cols[starts]
    close = _EPSILON * float(value.max())
    for _ in range(_STEPS):
        higher = np.maximum.reduceat(prices[source] + push, starts)
        if float((higher - prices[seen]).max()) <= close:
            break
        prices[seen] = np.maximum(prices[seen], higher)
    return prices[:count]
