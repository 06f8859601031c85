"""How much of the GPU's time the offline job may launch work for: additive increase, multiplicative decrease.

On a T4 (70 W) a neighbour shows up as clock loss; on an H200 (700 W) hardly, there the service's own latency is what
counts. Both slow the offline job down; an under-used GPU speeds it up.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from fairlead.errors import InputError
from fairlead.policy.guarding.config import LatencyConfig, RateConfig

DEFAULT_RATE = RateConfig()
DEFAULT_LATENCY = LatencyConfig()


class Pressure(IntEnum):
    """What the service's latency says about its neighbour."""

    NONE = 0
    HIGH = 1
    """Slow it down."""
    SEVERE = 2
    """The SLO is broken: slow it down in every period, without waiting for effects."""


class LaunchRate:
    """The launch rate of one offline job, updated every `period_s`.

    - HIGH pressure or a low clock cuts the rate, then `cooldown_periods` pass before anything else. If it is not better
      by then the next cut counts double, then triple (1/2, 1/4, 1/8): from 1 to the floor in 9 periods.
    - SEVERE pressure cuts in every period: from 1 to the floor in 5.
    - Otherwise it is raised by `raise_frac` while the clock is clearly over its limit and there is room: by the
      service's own word where its latency is known, else while utilisation is clearly under its target. Utilisation
      only stands in for harm: on an H200 a service's p99 grew by 4 % at a utilisation of 1. Never blindly: not where
      neither clock nor latency is known.

    It starts at the floor. While frozen nothing is launched (`allowed_frac` is 0), and it begins at the floor after.
    """

    __slots__ = ("_clock_frac", "_cooldown", "_cuts", "_util_frac", "config", "frozen", "rate_frac")

    def __init__(self, config: RateConfig = DEFAULT_RATE) -> None:
        self.config = config
        self.rate_frac = config.floor_frac
        self.frozen = False
        self._clock_frac: float | None = None
        self._util_frac: float | None = None
        self._cooldown = 0
        """Periods still to wait."""
        self._cuts = 0
        """Cuts since it was last well."""

    @property
    def allowed_frac(self) -> float:
        """What the job may use now: the rate, or nothing while it is frozen."""
        return 0.0 if self.frozen else self.rate_frac

    def freeze(self) -> None:
        """Launch nothing from now on."""
        self.frozen = True
        self.rate_frac = self.config.floor_frac

    def unfreeze(self) -> None:
        """Launch again, from the floor up."""
        self.frozen = False

    def update(
        self, clock_frac: float | None = None, util_frac: float | None = None, pressure: Pressure | None = None
    ) -> float:
        """One period later: the clock over its reference, the utilisation of the whole GPU, the latency's pressure.

        None is "not known". Returns `allowed_frac`.
        """
        c = self.config
        self._clock_frac = self._smooth(self._clock_frac, clock_frac)
        self._util_frac = self._smooth(self._util_frac, util_frac)
        if self.frozen:
            return 0.0
        low_clock = self._clock_frac is not None and self._clock_frac < c.clock_low_frac
        if pressure is Pressure.SEVERE:
            self._cut(c.cut_frac)
        elif pressure is Pressure.HIGH or low_clock:
            if self._cooldown > 0:
                self._cooldown -= 1
            else:
                self._cut(c.cut_frac ** (self._cuts + 1))
        else:
            self._cuts = 0
            if self._cooldown > 0:
                self._cooldown -= 1
            elif self._room(clock_frac, util_frac, pressure):
                self.rate_frac = min(1.0, self.rate_frac + c.raise_frac)
        return self.rate_frac

    def _cut(self, kept_frac: float) -> None:
        self.rate_frac = max(self.config.floor_frac, self.rate_frac * kept_frac)
        self._cooldown = self.config.cooldown_periods
        self._cuts += 1

    def _room(self, clock_frac: float | None, util_frac: float | None, pressure: Pressure | None) -> bool:
        c = self.config
        if util_frac is None or self._util_frac is None or (clock_frac is None and pressure is None):
            return False
        if self._clock_frac is not None and self._clock_frac < c.clock_low_frac + c.dead_band_frac:
            return False
        return pressure is not None or self._util_frac < c.util_target_frac - c.dead_band_frac

    def _smooth(self, old: float | None, new: float | None) -> float | None:
        if old is None or new is None:
            return old if new is None else new
        return old + self.config.ewma * (new - old)


class LatencySignal:
    """What a service reports of its latency (a recent p99, or single latencies) as pressure on its neighbour.

    HIGH from `high_ratio` of the baseline, the latency it has alone, or from `slo_margin_frac` of its SLO. SEVERE from
    the SLO itself or, where it states none, from `severe_ratio` of the baseline.
    """

    __slots__ = ("_high_s", "_reports", "_severe_s", "config")

    def __init__(
        self,
        *,
        baseline_s: float | None = None,
        slo_s: float | None = None,
        config: LatencyConfig = DEFAULT_LATENCY,
    ) -> None:
        for name, value in (("baseline_s", baseline_s), ("slo_s", slo_s)):
            if value is not None and not 0.0 < value < float("inf"):
                raise InputError(f"{name} is {value}; a latency is above 0")
        high = [config.slo_margin_frac * slo_s] if slo_s is not None else []
        high += [config.high_ratio * baseline_s] if baseline_s is not None else []
        if not high:
            raise InputError("a service needs a baseline latency or an SLO to be protected by its latency")
        self.config = config
        self._severe_s = slo_s if slo_s is not None else config.severe_ratio * (baseline_s or 0.0)
        self._high_s = min(high)
        self._reports: deque[tuple[float, float]] = deque()

    def report(self, time_s: float, latency_s: float) -> None:
        """The service said this at that time."""
        if not latency_s >= 0.0:
            raise ValueError(f"latency_s is {latency_s}; it must be at least 0")
        self._reports.append((time_s, latency_s))
        self._drop_old(time_s)

    def latency_s(self, now_s: float) -> float | None:
        """The recent latency; None where there is no word from the service."""
        self._drop_old(now_s)
        if not self._reports or self._reports[-1][0] < now_s - self.config.stale_s:
            return None
        return sum(latency_s for _, latency_s in self._reports) / len(self._reports)

    def pressure(self, now_s: float) -> Pressure | None:
        """What it means; None where there is no word."""
        latency_s = self.latency_s(now_s)
        if latency_s is None:
            return None
        if latency_s >= self._severe_s:
            return Pressure.SEVERE
        return Pressure.HIGH if latency_s >= self._high_s else Pressure.NONE

    def slo_broken(self, now_s: float) -> bool:
        """What the GPU's guard is told."""
        return self.pressure(now_s) is Pressure.SEVERE

    def _drop_old(self, now_s: float) -> None:
        while len(self._reports) > 1 and self._reports[0][0] <= now_s - self.config.window_s:
            self._reports.popleft()
