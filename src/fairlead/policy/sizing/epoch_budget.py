"""Widths by epoch under a budget, where changing the width costs a restart (BOA for real jobs).

Speedups change over training, so each epoch of a type has its own width; a change costs `rescale_s` seconds with the
new GPUs held. For a price m on GPUs the best widths of a type are a shortest path over (epoch, width):

    stage cost (1 + m k) x_e / s_e(k),   switch cost r (1 + m k_new)

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

    @property
    def mean_jct_s(self) -> float:
        """Over all jobs."""
        busy = sum(t.arrival_rate_per_s * self._mixed(p.seconds, q.seconds) for t, (p, q) in self._pairs())
        return busy / sum(t.arrival_rate_per_s for t in self.types)

    @property
    def gpus_mean(self) -> float:
        """GPUs rented on average."""
        return sum(t.arrival_rate_per_s * self._mixed(p.gpu_s, q.gpu_s) for t, (p, q) in self._pairs())

    def _pairs(self) -> list[tuple[EpochType, tuple[EpochPlan, EpochPlan]]]:
        return list(zip(self.types, self.plans, strict=True))

    def _mixed(self, first: float, second: float) -> float:
        return (1.0 - self.frac) * first + self.frac * second


def solve_epochs(types: Sequence[EpochType], budget: float) -> EpochWidths:
    """The plans with the smallest mean completion time that cost no more than the budget on average."""

    def plans(price: float) -> list[EpochPlan]:
        return [best_plan(t, price) for t in types]

    def usage(chosen: Sequence[EpochPlan]) -> float:
        return sum(t.arrival_rate_per_s * p.gpu_s for t, p in zip(types, chosen, strict=True))

    thrifty, fast = plans(_HIGH), plans(_LOW)
    check_feasible(budget, usage(thrifty))
    if usage(fast) <= budget:
        return EpochWidths(tuple(types), tuple((p, p) for p in fast), 0.0)
    low, high = _LOW, _HIGH
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        chosen = plans(middle)
        if usage(chosen) > budget:
            low, fast = middle, chosen
        else:
            high, thrifty = middle, chosen
        if high / low < 1.0 + 1e-14:
            break
    gap = usage(fast) - usage(thrifty)
    frac = (budget - usage(thrifty)) / gap if gap > 0.0 else 0.0
    return EpochWidths(tuple(types), tuple(zip(thrifty, fast, strict=True)), frac)


def best_plan(job: EpochType, price: float) -> EpochPlan:
    """The shortest path over (epoch, width) at that price."""
    k = np.asarray(job.widths, dtype=np.float64)
    speedups = np.asarray(job.speedups, dtype=np.float64)
    with np.errstate(divide="ignore"):
        run_s = np.asarray(job.sizes_s)[:, None] / speedups
    stage = (1.0 + price * k) * run_s
    switch = job.rescale_s * (1.0 + price * k)
    cost, came_from = stage[0], []
    for epoch in range(1, len(stage)):
        # Stay at a width, or come to it from the cheapest of all.
        cheapest = int(cost.argmin())
        moved = cost[cheapest] + switch
        stays = cost <= moved
        came_from.append(np.where(stays, np.arange(len(k)), cheapest))
        cost = np.where(stays, cost, moved) + stage[epoch]
    at = int(cost.argmin())
    path = [at]
    for back in reversed(came_from):
        at = int(back[at])
        path.append(at)
    return _plan(job, path[::-1], run_s)


def _plan(job: EpochType, path: list[int], run_s: Floats) -> EpochPlan:
    seconds = gpu_s = 0.0
    for epoch, at in enumerate(path):
        spent = float(run_s[epoch, at]) + (job.rescale_s if epoch and path[epoch - 1] != at else 0.0)
        seconds += spent
        gpu_s += spent * job.widths[at]
    return EpochPlan(tuple(job.widths[at] for at in path), seconds, gpu_s)
