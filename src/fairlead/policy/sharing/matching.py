"""Who runs beside whom: maximum-weight matching of services and offline jobs, each with at most one partner.

Up to `EXACT_LIMIT` the answer is the optimum (`scipy.optimize.linear_sum_assignment`). Above it, in rounds:

    shards      both sides are sorted by mean weight and dealt out like cards, so that every shard looks like the whole;
                each is solved exactly and gives every job a price (its dual variable)
    candidates  per service the pairs with the most weight left after the job's price; these few edges of all shards
                together are a sparse matching problem, solved exactly, which gives better prices
    bound       any prices p >= 0 bound the optimum from above: sum(p) + sum over services of max(0, max(w - p));
                so the loss is known without knowing the optimum, and the rounds end when it is small enough

So `Matching.loss_bound_frac` is proven for the case at hand, not an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlead.errors import InputError
from fairlead.policy.sharing.prices import Ints, Prices, block_prices, core_prices

EXACT_LIMIT = 2_000
"""Services and jobs up to which the optimum itself is found: 0.3 s at best and 5 s at worst (smooth weights)."""
SHARD = 500
"""Services and jobs of a shard. The time of the exact solver grows with the cube."""
CANDIDATES = 25
"""Pairs per service that a round adds to the sparse problem."""
ROUNDS = 4
"""At most. Three are enough for every family of weights in bench/matching.py."""
TARGET_LOSS_FRAC = 0.008
"""The rounds end when the proven loss is at most this."""
BONUS = 0.1
"""A pair that runs is left alone for gains below this: a move costs a restart."""

_ROWS = 250  # rows looked at together; 10 MB at 10,000 jobs, which the cache likes better than more

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Partners, and how good they are."""

    partner: Ints
    """Per service the number of its offline job, or -1."""
    weight: float
    """The sum of the weights of the pairs, without any bonus."""
    exact: bool
    """True where nothing better exists."""
    loss_bound_frac: float
    """The optimum is at most `weight / (1 - loss_bound_frac)`; with running pairs both count with their bonus."""


def match(
    weights: ArrayLike,
    *,
    keep: ArrayLike | None = None,
    bonus: float = BONUS,
    exact_limit: int = EXACT_LIMIT,
) -> Matching:
    """Pairs with the largest sum of `weights` (services x offline jobs).

    A weight of 0 or below, NaN or -inf is a pair that is not allowed, and is never matched. `keep` holds the offline
    job that runs beside each service now, -1 for none: such a pair counts `1 + bonus` times, so it is given up only for
    a clear gain. float32 weights are used as they are, without a copy of the whole. Equal input gives equal answers.
    """
    table = _Table(weights, keep, bonus)
    services, jobs = table.shape
    if not services or not jobs:
        return Matching(np.full(services, -1, dtype=np.int64), 0.0, True, 0.0)
    from scipy.optimize import linear_sum_assignment

    small, large = sorted(table.shape)
    if small * small * large > exact_limit**3:
        return _sharded(table, -(-large // SHARD))
    rows, cols = linear_sum_assignment(table.block(slice(None)), maximize=True)
    return table.result(table.allowed(rows, cols), 0.0)


class _Table:
    """The weights as the solvers see them: not allowed is 0, running pairs have their bonus."""

    def __init__(self, weights: ArrayLike, keep: ArrayLike | None, bonus: float) -> None:
        raw = np.asarray(weights)
        if raw.ndim != 2 or raw.dtype.kind not in "fiub":
            raise InputError(
                f"weights: found {raw.dtype} of shape {raw.shape}, expected numbers (services x offline jobs)"
            )
        if not 0.0 <= bonus < float("inf"):
            raise InputError(f"bonus is {bonus:g}, expected a finite number of at least 0")
        self.raw: Floats = raw if raw.dtype.kind == "f" else raw.astype(np.float64)
        self.shape: tuple[int, int] = raw.shape
        running = np.full(raw.shape[0], -1) if keep is None else np.asarray(keep)
        if running.shape != (raw.shape[0],) or running.dtype.kind not in "iu":
            raise InputError(f"keep: found {running.dtype} of shape {running.shape}, expected {raw.shape[0]} numbers")
        if running.size and not -1 <= running.min() <= running.max() < max(raw.shape[1], 1):
            raise InputError(f"keep: expected offline jobs from 0 to {raw.shape[1] - 1}, or -1 for none")
        self.keep: Ints = running.astype(np.int64)
        self.factor = 1.0 + bonus

    def block(self, rows: slice | Ints, cols: Ints | None = None, dtype: Any = None) -> Floats:
        """Some rows, of all columns or of some."""
        index = np.arange(self.shape[0])[rows]
        part = self.raw[rows] if cols is None else self.raw[np.ix_(index, cols)]
        part = np.where(part > 0.0, part, 0.0).astype(dtype or self.raw.dtype, copy=False)
        place = np.arange(self.shape[1]) if cols is None else np.full(self.shape[1], -1)
        if cols is not None:
            place[cols] = np.arange(len(cols))
        inside = np.flatnonzero(self.keep[index] >= 0)
        at = place[self.keep[index[inside]]]
        part[inside[at >= 0], at[at >= 0]] *= self.factor
        if part.max(initial=0.0) == np.inf:
            raise InputError("weights: found inf, expected finite numbers")
        return part

    def pick(self, rows: Ints, cols: Ints) -> NDArray[np.float64]:
        """The weights of single pairs, with their bonus."""
        value = self.raw[rows, cols].astype(np.float64)
        return np.where(value > 0.0, value, 0.0) * np.where(self.keep[rows] == cols, self.factor, 1.0)

    def allowed(self, rows: Ints, cols: Ints) -> Ints:
        """The partners that these pairs mean, without those that are not allowed."""
        partner = np.full(self.shape[0], -1, dtype=np.int64)
        good = self.raw[rows, cols] > 0.0
        partner[rows[good]] = cols[good]
        return partner

    def total(self, partner: Ints) -> float:
        """What the solver tries to make large."""
        rows = np.flatnonzero(partner >= 0)
        return float(self.pick(rows, partner[rows]).sum())

    def result(self, partner: Ints, loss: float, *, exact: bool = True) -> Matching:
        rows = np.flatnonzero(partner >= 0)
        weight = float(self.raw[rows, partner[rows]].sum(dtype=np.float64))
        return Matching(partner, weight, exact, loss)


def _sharded(table: _Table, shards: int) -> Matching:
    partner, prices = _solve_shards(table, shards)
    top, found = _look(table, prices, CANDIDATES)
    rows_of = np.arange(table.shape[0])
    for _ in range(ROUNDS):
        if _loss(table, partner, top) <= TARGET_LOSS_FRAC:
            break
        held = partner >= 0
        edges = np.union1d(found, rows_of[held] * table.shape[1] + partner[held])  # so it never gets worse
        partner, least, most = _solve_core(table, edges, prices)
        # Every price from `least` to `most` is optimal for these edges; which are right for the others is not known.
        # The old prices know of all edges, so they choose; `most`, which lures nobody away, may prove more.
        for prices_now in (np.clip(prices, least, most), most):
            bound, maybe = _look(table, prices_now, CANDIDATES)
            if bound < top or prices_now is not most:
                prices, found = prices_now, maybe
            top = min(top, bound)
            if _loss(table, partner, top) <= TARGET_LOSS_FRAC:
                break
    return table.result(partner, _loss(table, partner, top), exact=False)


def _loss(table: _Table, partner: Ints, top: float) -> float:
    return max(0.0, 1.0 - table.total(partner) / top) if top > 0.0 else 0.0


def _solve_shards(table: _Table, shards: int) -> tuple[Ints, Prices]:
    from scipy.optimize import linear_sum_assignment

    services, jobs = table.shape
    of_service, of_job = np.zeros(services), np.zeros(jobs)
    for start in range(0, services, _ROWS) if shards > 1 else ():
        part = table.block(slice(start, start + _ROWS), dtype=np.float32)
        of_service[start : start + _ROWS] = part.sum(axis=1)
        of_job += part.sum(axis=0)
    by_service, by_job = np.argsort(-of_service, kind="stable"), np.argsort(-of_job, kind="stable")
    partner = np.full(services, -1, dtype=np.int64)
    prices = np.zeros(jobs, dtype=np.float32)
    for shard in range(shards):
        rows, cols = by_service[shard::shards], by_job[shard::shards]
        if not len(rows) or not len(cols):
            continue
        part = table.block(rows, cols, np.float32)
        i, j = linear_sum_assignment(part, maximize=True)
        prices[cols] = block_prices(part, i, j)
        good = part[i, j] > 0.0
        partner[rows[i[good]]] = cols[j[good]]
    return partner, prices


def _look(table: _Table, prices: Prices, wanted: int) -> tuple[float, Ints]:
    """The bound that these prices prove, and the best pairs of every service under them, as row * jobs + column."""
    services, jobs = table.shape
    wanted = min(wanted, jobs)
    bound = float(prices.sum(dtype=np.float64))
    found = np.empty((services, wanted), dtype=np.int64)
    # Services that are alike must not all look at the same few of the jobs that are alike: a little noise, each row
    # reading the same random numbers from another place on. It also keeps the partition below from being slow on ties.
    rng = np.random.default_rng(0)
    noise = rng.random(2 * jobs, dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(noise, jobs)
    starts = rng.integers(0, jobs, services)
    for start in range(0, services, _ROWS):
        part = table.block(slice(start, start + _ROWS), dtype=np.float32)
        left = part - prices
        np.copyto(left, np.float32(-1.0), where=part <= 0.0)
        best = left.max(axis=1)
        bound += float(np.maximum(best, 0.0).sum(dtype=np.float64))
        if wanted:
            left += windows[starts[start : start + _ROWS]] * np.float32(1e-4 * max(float(part.max()), 1e-30))
            chosen = np.argpartition(left, jobs - wanted, axis=1)[:, jobs - wanted :]
            found[start : start + _ROWS] = chosen + np.arange(start, start + len(part))[:, None] * jobs
    return bound, found.ravel()


def _solve_core(table: _Table, edges: Ints, prices: Prices) -> tuple[Ints, Prices, Prices]:
    """The best matching that uses only these edges, and the least and the greatest prices that prove it."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    services, jobs = table.shape
    rows, cols = np.divmod(edges, jobs)
    value = table.pick(rows, cols)
    rows, cols, value = rows[value > 0.0], cols[value > 0.0], value[value > 0.0]
    left = value - prices[cols]
    profits = np.zeros(services)
    np.maximum.at(profits, rows, left)
    # Everybody may stay alone: services in a column of their own, jobs in a row of their own, and where i and j are a
    # pair these two are one as well. Every full matching then counts every price once, so taking the prices off the
    # weights changes no optimum; but the solver starts near the end (five times as fast). Costs are kept above 0,
    # which in a sparse matrix is no edge.
    i, j = np.arange(services), np.arange(jobs)
    cost = np.concatenate([profits[rows] - left, profits, prices, np.zeros(len(rows))])
    ends = (np.concatenate([rows, i, services + j, services + cols]), np.concatenate([cols, jobs + i, j, jobs + rows]))
    square = csr_matrix((cost + float(value.max(initial=1.0)), ends), shape=(services + jobs,) * 2)
    i, j = min_weight_full_bipartite_matching(square)
    paired = (i < services) & (j < jobs)
    partner = np.full(services, -1, dtype=np.int64)
    partner[i[paired]] = j[paired]
    least, most = core_prices(rows, cols, value, partner, jobs)
    return partner, least, most
