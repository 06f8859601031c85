"""Random arrivals and sizes, drawn whole as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY_S = 86_400.0
_SHORTEST_S = 1e-3
"""A job takes some time; a continuous distribution may round to none."""


def arrivals_s(
    rng: np.random.Generator,
    jobs: int,
    rate_per_h: float,
    day: Sequence[float] | Floats = (1.0,),
    *,
    pinned: bool = False,
) -> Floats:
    """A Poisson process with that mean rate. `day` is the rate in equal slices of a day, in any unit.

    Unit-rate arrivals are mapped through the inverse of the expected count, which is linear within a slice. `pinned`
    stretches them so that the last job comes when it is expected: a load of 0.9 is then 0.9, not 0.9 give or take
    1 / sqrt(jobs).
    """
    counted = np.cumsum(rng.exponential(size=jobs))
    days = (counted * (jobs / counted[-1]) if pinned else counted) / (rate_per_h * 24.0)
    whole_days, part = np.divmod(days, 1.0)
    expected = np.concatenate(([0.0], np.cumsum(day)))
    clock = np.interp(part, expected / expected[-1], np.linspace(0.0, 1.0, len(expected)))
    return np.asarray((whole_days + clock) * DAY_S)


def sinusoidal_day(amplitude: float, peak_h: float) -> Floats:
    """1 + amplitude * cos(2 pi (t - peak) / day), minute by minute."""
    hours = (np.arange(1440) + 0.5) / 60.0
    return np.asarray(1.0 + amplitude * np.cos(2.0 * np.pi * (hours - peak_h) / 24.0))


def batch_arrivals_s(rng: np.random.Generator, jobs: int, rate_per_h: float, mean_batch: float) -> Floats:
    """Batches at Poisson times, their sizes geometric; `rate_per_h` counts jobs, not batches."""
    sizes = rng.geometric(1.0 / mean_batch, size=jobs)
    starts = arrivals_s(rng, jobs, rate_per_h / mean_batch)
    # Every batch has at least one job, so there are enough.
    return np.repeat(starts, sizes)[:jobs]


def exponential(rng: np.random.Generator, jobs: int, mean_s: float) -> Floats:
    """Exponential sizes, coefficient of variation 1."""
    return np.maximum(rng.exponential(mean_s, jobs), _SHORTEST_S)


def lognormal(rng: np.random.Generator, jobs: int, mean_s: float, cv: float) -> Floats:
    """Lognormal sizes with that mean and coefficient of variation."""
    variance = math.log1p(cv * cv)
    drawn = rng.lognormal(math.log(mean_s) - variance / 2.0, math.sqrt(variance), jobs)
    return np.maximum(drawn, _SHORTEST_S)


def hyperexponential(rng: np.random.Generator, jobs: int, mean_s: float, cv: float) -> Floats:
    """One of two exponentials with balanced means (each brings half of the work); `cv` is 1 or more."""
    squared = cv * cv
    short = (1.0 + math.sqrt((squared - 1.0) / (squared + 1.0))) / 2.0
    means = np.where(rng.random(jobs) < short, mean_s / (2.0 * short), mean_s / (2.0 * (1.0 - short)))
    return np.maximum(rng.exponential(size=jobs) * means, _SHORTEST_S)
