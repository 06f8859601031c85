"""Samples of a GPU, and the windows that they are judged in.

Metrics are added up in whole millionths: the mean of equal samples is then that very sample, so that a long stretch of
equal samples can be judged by one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.policy.guarding.config import GuardConfig

METRICS = ("util", "sm-activity", "clock", "memory", "temperature")
"""In the order of `Readings`."""
Readings = tuple[int | None, ...]
"""Millionths, the clock negated: in all of them more is worse."""

BAD, OVER, UTIL_OVER, SLO, SEEN = 1, 2, 4, 8, 16
"""What a window showed: a limit of Healthy broken; one of Overlimit, but for utilisation; that one; the service's SLO
signal; and whether the GPU was observed at all.
"""
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of a GPU at one moment. None is "not known": skipped, never taken as 0."""

    time_s: float
    util_frac: float | None = None
    """Of the whole GPU."""
    sm_activity_frac: float | None = None
    """Of the whole GPU."""
    clock_frac: float | None = None
    """SM clock over its reference."""
    memory_frac: float | None = None
    temperature_c: float | None = None
    online_util_frac: float | None = None
    """The service's own share, where it can be told apart; used instead of the whole GPU's, since otherwise a busy
    offline job would push its own GPU out of Healthy.
    """
    online_sm_activity_frac: float | None = None
    """Likewise."""
    slo_broken: bool = False
    """The service's own signal. Counts in samples that are not valid, too."""
    fatal_fault: str | None = None
    """An Xid or a pattern that takes the GPU out of the pool (`faults`). Counts in samples that are not valid, too."""
    valid: bool = True
    """False where the GPU could not be read: the metrics are then ignored."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.time_s):
            raise ValueError(f"time_s is {self.time_s}, not a moment")
        for name in _FIELDS:
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; it must be at least 0 and finite, or None where it is not known")

    @property
    def usable(self) -> bool:
        """Whether it says anything about the GPU."""
        return self.valid and any(reading is not None for reading in self.readings())

    def readings(self) -> Readings:
        """The metrics as they are judged."""
        util = self.util_frac if self.online_util_frac is None else self.online_util_frac
        activity = self.sm_activity_frac if self.online_sm_activity_frac is None else self.online_sm_activity_frac
        clock = self.clock_frac
        return (
            None if util is None else round(util * _MICRO),
            None if activity is None else round(activity * _MICRO),
            None if clock is None else -round(clock * _MICRO),
            None if self.memory_frac is None else round(self.memory_frac * _MICRO),
            None if self.temperature_c is None else round(self.temperature_c * _MICRO),
        )


_FIELDS = (
    "util_frac",
    "sm_activity_frac",
    "clock_frac",
    "memory_frac",
    "temperature_c",
    "online_util_frac",
    "online_sm_activity_frac",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a configuration in the units of readings; one is broken by a mean at or over it."""

    healthy: tuple[int, ...]
    over: tuple[int, ...]

    @classmethod
    def of(cls, c: GuardConfig) -> Limits:
        """The limits that a configuration sets."""
        healthy = (
            c.util_healthy_frac,
            c.sm_activity_healthy_frac,
            -c.clock_healthy_frac,
            c.memory_healthy_frac,
            c.temperature_healthy_c,
        )
        over = (
            c.util_over_frac,
            c.sm_activity_over_frac,
            -c.clock_over_frac,
            c.memory_over_frac,
            c.temperature_over_c,
        )
        return cls(tuple(round(x * _MICRO) for x in healthy), tuple(round(x * _MICRO) for x in over))


class Window:
    """The sums of one window's samples."""

    __slots__ = ("counts", "slo", "sums")

    def __init__(self) -> None:
        self.sums = [0] * len(METRICS)
        self.counts = [0] * len(METRICS)
        self.slo = False

    def add(self, readings: Readings, times: int = 1) -> None:
        """Take in a sample, or several equal ones."""
        for i, reading in enumerate(readings):
            if reading is not None:
                self.sums[i] += times * reading
                self.counts[i] += times

    def clear_metrics(self) -> None:
        """Forget the metrics; the SLO signal stays."""
        self.sums = [0] * len(METRICS)
        self.counts = [0] * len(METRICS)

    def judge(self, limits: Limits) -> int:
        """What the window showed, as flags; without `SEEN` where no metric was."""
        flags = SLO if self.slo else 0
        for i, count in enumerate(self.counts):
            if count:
                flags |= SEEN
                if self.sums[i] >= limits.healthy[i] * count:
                    flags |= BAD
                    if self.sums[i] >= limits.over[i] * count:
                        flags |= OVER if i else UTIL_OVER
        return flags

    def broken(self, limits: tuple[int, ...]) -> list[tuple[str, str]]:
        """(cause, in words) of each limit that the window's means break."""
        found = []
        for name, total, count, limit in zip(METRICS, self.sums, self.counts, limits, strict=True):
            if count and total >= limit * count:
                sign, word = (-1, "low") if name == "clock" else (1, "high")
                mean, bound = sign * total / count / _MICRO, sign * limit / _MICRO
                found.append((f"{name}-{word}", f"{name.replace('-', ' ')} {mean:.4g} (limit {bound:.4g})"))
        return found
