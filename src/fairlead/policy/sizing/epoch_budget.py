"""Widths by epoch under a budget, where changing the width costs a restart (BOA for real jobs).

Speedups change over training, so each epoch of a type has its own width; a change costs `rescale_s` seconds with the
new GPUs held. For a price m on GPUs the best widths of a type are a shortest path over (epoch, width):

    stage cost   (1 + m k) x_e / s_e(k)
    switch cost  r (1 + m k_new) + m b max(0, k_new - k_old)
    start cost   b (1 + m k)

with b what a GPU costs before it is of use (a node that boots),

found by dynamic programming, exactly. The price is bisected as in budget.py, and the plans at the two last prices are
mixed so that the budget is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.sizing.budget import check_feasible

Floats = NDArray[np.float64]
_LOW, _HIGH = 1e-12, 1e12
_STEPS = 120


@dataclass(frozen=True)
class EpochType:
    """One type of job, epoch by epoch."""

    name: str
    arrival_rate_per_s: float
    widths: tuple[int, ...]
    sizes_s: tuple[float, ...]
    """Seconds of each epoch on one GPU."""
    speedups: tuple[tuple[float, ...], ...]
    """Per epoch, the speedup at each of the widths; 0 where it is not known, which is never chosen."""
    rescale_s: float = 0.0
    start_s: float = 0.0
    """Seconds that every further GPU is paid for before and after it is of use: nodes that boot, or stand idle."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """Widths of one type by epoch, and what a job of it then takes."""

    widths: tuple[int, ...]
    seconds: float
    gpu_s: float
    """GPU-seconds, restarts included."""


@dataclass(frozen=True)
class EpochWidths:
    """Plans of all types; where two are mixed, `frac` of the jobs get the second."""

    types: tuple[EpochType, ...]
    plans: tuple[tuple[EpochPlan, EpochPlan], ...]
    frac: float
    prices: tuple[float, float]
    """m at which each of the two is best."""

    @property
    def mean_jct_s(self) -> float:
        """The mean completion time over all jobs."""
        busy = sum(t.arrival_rate_per_s * self._mixed(p.seconds, q.seconds) for t, (p, q) in self._pairs())
        return busy / sum(t.arrival_rate_per_s for t in self.types)

    @property
    def gpus_mean(self) -> float:
        """The GPUs that are rented on average."""
        return sum(t.arrival_rate_per_s * self._mixed(p.gpu_s, q.gpu_s) for t, (p, q) in self._pairs())

    def _pairs(self) -> list[tuple[EpochType, tuple[EpochPlan, EpochPlan]]]:
        return list(zip(self.types, self.plans, strict=True))

    def _mixed(self, first: float, second: float) -> float:
        return (1.0 - self.frac) * first + self.frac * second


def solve_epochs(types: Sequence[EpochType], budget: float, *, tolerance: float = 1e-14) -> EpochWidths:
    """The plans with the smallest mean completion time that cost no more than the budget on average.

    `tolerance` is how closely, relatively, the price is found; whatever it is, the two plans are mixed to the budget.
    """
    paths = Paths(types)
    rates = np.array([t.arrival_rate_per_s for t in types])

    def usage(plans: Sequence[EpochPlan]) -> float:
        return float(rates @ [p.gpu_s for p in plans])

    low, high = _LOW, _HIGH
    thrifty, fast = paths.best(high), paths.best(low)
    check_feasible(budget, usage(thrifty))
    if usage(fast) <= budget:
        return EpochWidths(tuple(types), tuple((p, p) for p in fast), 0.0, (low, low))
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        chosen = paths.best(middle)
        if usage(chosen) > budget:
            low, fast = middle, chosen
        else:
            high, thrifty = middle, chosen
        if high / low < 1.0 + tolerance:
            break
    gap = usage(fast) - usage(thrifty)
    frac = (budget - usage(thrifty)) / gap if gap > 0.0 else 0.0
    return EpochWidths(tuple(types), tuple(zip(thrifty, fast, strict=True)), frac, (high, low))


class Paths:
    """Shortest paths over (epoch, width) of several types at once; types with fewer epochs are done earlier."""

    def __init__(self, types: Sequence[EpochType]) -> None:
        self._types = types
        epochs, widths = max(len(t.sizes_s) for t in types), max(len(t.widths) for t in types)
        shape = (len(types), epochs, widths)
        self.run_s = np.zeros(shape)
        self._gpus = np.zeros((len(types), widths))
        for i, t in enumerate(types):
            with np.errstate(divide="ignore"):
                run_s = np.asarray(t.sizes_s)[:, None] / np.asarray(t.speedups, dtype=np.float64)
            self.run_s[i, : len(t.sizes_s), : len(t.widths)] = run_s
            self.run_s[i, : len(t.sizes_s), len(t.widths) :] = np.inf
            self._gpus[i, : len(t.widths)] = t.widths
        self._rescale_s = np.array([t.rescale_s for t in types])
        self._start_s = np.array([t.start_s for t in types])

    def to_go(self, price: float) -> tuple[Floats, Floats]:
        """(cost, switch): cost[type, epoch, width] from the start of an epoch to the end at that price, when the epoch
        is run on that width; switch[type, from, to] is the cost of a change.
        """
        rate = 1.0 + price * self._gpus
        switch = self._switch(price)
        cost = np.empty_like(self.run_s)
        after = np.zeros_like(rate)
        for epoch in range(self.run_s.shape[1] - 1, -1, -1):
            after = rate * self.run_s[:, epoch] + (after[:, None, :] + switch).min(axis=2)
            cost[:, epoch] = after
        return cost, switch

    def _switch(self, price: float) -> Floats:
        """A restart with the new GPUs held, and what further GPUs cost before they are of use; 0 for staying."""
        restart = self._rescale_s[:, None] * (1.0 + price * self._gpus)
        more = np.maximum(0.0, self._gpus[:, None, :] - self._gpus[:, :, None])
        switch = restart[:, None, :] + price * self._start_s[:, None, None] * more
        switch[:, np.arange(self._gpus.shape[1]), np.arange(self._gpus.shape[1])] = 0.0
        return switch

    def start(self, price: float) -> Floats:
        """Cost of a start, per type and width."""
        return np.asarray(self._start_s[:, None] * (1.0 + price * self._gpus))

    def best(self, price: float) -> list[EpochPlan]:
        """The best plan of each type at that price."""
        cost, switch = self.to_go(price)
        rows, gpus = np.arange(len(self._types)), self._gpus
        at = (cost[:, 0] + self.start(price)).argmin(axis=1)
        seconds = self.run_s[rows, 0, at] + self._start_s
        paths, gpu_s = [at], seconds * gpus[rows, at]
        for epoch in range(1, cost.shape[1]):
            new = (cost[:, epoch] + switch[rows, at]).argmin(axis=1)
            # Of equals, stay.
            same = cost[rows, epoch, at] <= cost[rows, epoch, new] + switch[rows, at, new]
            new = np.where(same, at, new)
            spent = self.run_s[rows, epoch, new] + np.where(new != at, self._rescale_s, 0.0)
            seconds = seconds + spent
            grown = np.maximum(0.0, gpus[rows, new] - gpus[rows, at])
            gpu_s = gpu_s + spent * gpus[rows, new] + self._start_s * grown
            at = new
            paths.append(at)
        whole = np.array(paths)
        return [
            EpochPlan(tuple(t.widths[k] for k in whole[: len(t.sizes_s), i]), float(seconds[i]), float(gpu_s[i]))
            for i, t in enumerate(self._types)
        ]


def best_plan(job: EpochType, price: float) -> EpochPlan:
    """The shortest path over (epoch, width) at that price."""
    return Paths([job]).best(price)[0]
