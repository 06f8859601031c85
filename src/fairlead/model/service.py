"""Services: a demand that changes over the day, and how fast it is met.

`rho` is the load, requests over the most that the GPU can serve alone. Requests of a fixed time queue up (M/D/1 in
heavy traffic): with a slowdown s by a neighbour, r = rho s and t = s * request_s,

    mean = t (1 + r / (2 (1 - r)))        p99 = t (1 + ln(100) r / (2 (1 - r)))
    P(latency > x) = exp(-2 (1 - r) (x - t) / (r t))

and a service that gets more than it can serve (r near 1) has the latency of r = 0.98 there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import InputError
from fairlead.model.contention import Solo

Floats = NDArray[np.float64]
DAY_S = 86400.0
FULL = 0.98
"""A queue is never looked at nearer to saturation than this."""


def daily(t_s: float, amplitude: float, peak_h: float) -> float:
    """The load at a moment over its mean: 1 + amplitude * cos(2 pi (t - peak) / 24 h)."""
    return 1.0 + amplitude * math.cos(2.0 * math.pi * (t_s / DAY_S - peak_h / 24.0))


class LoadCurve(Protocol):
    """Requests over time, as a fraction of what the GPU can serve alone."""

    def at(self, t_s: float) -> float:
        """The load at a moment, in seconds from the trace's start."""
        ...


@dataclass(frozen=True, slots=True)
class Burst:
    """From `start_s` to `end_s` the load is `factor` times what it would be."""

    start_s: float
    end_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class DailyLoad:
    """mean * (1 + amplitude * cos(2 pi (t - peak) / 24 h)), times the bursts."""

    mean_frac: float
    amplitude: float = 0.6
    peak_h: float = 14.0
    bursts: tuple[Burst, ...] = ()

    def __post_init__(self) -> None:
        if not (0.0 <= self.mean_frac < float("inf") and 0.0 <= self.amplitude <= 1.0):
            raise InputError(f"a load of mean {self.mean_frac:g}, amplitude {self.amplitude:g}: 0 or more, 0 to 1")

    def at(self, t_s: float) -> float:
        """The load at a moment: a daily wave with its bursts."""
        return self.mean_frac * daily(t_s, self.amplitude, self.peak_h) * burst_factor(self.bursts, t_s)


@dataclass(frozen=True, slots=True)
class TableLoad:
    """Measured: linear between the points, again from the start after the last."""

    times_s: tuple[float, ...]
    fracs: tuple[float, ...]
    bursts: tuple[Burst, ...] = ()

    def __post_init__(self) -> None:
        rising = all(b > a for a, b in zip(self.times_s, self.times_s[1:], strict=False))
        if len(self.times_s) < 2 or len(self.times_s) != len(self.fracs) or not rising or min(self.fracs) < 0.0:
            raise InputError("a measured load needs two or more points, at rising times, none below 0")

    def at(self, t_s: float) -> float:
        """The load at a moment, by the table."""
        first, last = self.times_s[0], self.times_s[-1]
        within = first + (t_s - first) % (last - first)
        return float(np.interp(within, self.times_s, self.fracs)) * burst_factor(self.bursts, t_s)


def burst_factor(bursts: tuple[Burst, ...], t_s: float) -> float:
    """The product of the bursts that last at a moment."""
    return math.prod(b.factor for b in bursts if b.start_s <= t_s < b.end_s)


@dataclass(frozen=True, slots=True)
class Service:
    """A latency-critical service on one GPU."""

    load: LoadCurve
    solo: Solo
    """At full load; its time is that of one request."""
    slo_s: float
    """The latency that requests are to meet."""

    def __post_init__(self) -> None:
        if not 0.0 < self.solo.time_s < self.slo_s:
            raise InputError(f"a request takes {self.solo.time_s:g} s alone, the SLO is {self.slo_s:g} s")

    @property
    def capacity_per_s(self) -> float:
        """Requests a second that it can serve alone."""
        return 1.0 / self.solo.time_s

    def with_bursts(self, *bursts: Burst) -> Service:
        """The same service with bursts."""
        if not isinstance(self.load, DailyLoad | TableLoad):
            raise InputError("bursts are for daily and measured loads")
        return replace(self, load=replace(self.load, bursts=(*self.load.bursts, *bursts)))


def latencies(rho: Floats, request_s: Floats, slowdown: Floats) -> tuple[Floats, Floats]:
    """Mean and p99 latency in seconds at a load, with what a neighbour costs."""
    r, t = np.minimum(rho * slowdown, FULL), request_s * slowdown
    queue = r / (2.0 * (1.0 - r))
    return t * (1.0 + queue), t * (1.0 + math.log(100.0) * queue)


def miss_frac(rho: Floats, request_s: Floats, slowdown: Floats, slo_s: Floats) -> Floats:
    """The fraction of requests that take longer than the SLO."""
    r, t = np.minimum(rho * slowdown, FULL), request_s * slowdown
    with np.errstate(divide="ignore", over="ignore"):
        tail = np.exp(-2.0 * (1.0 - r) * (slo_s - t) / np.maximum(r * t, 1e-12))
    return np.where(slo_s <= t, 1.0, np.minimum(tail, 1.0))
