"""Speedup by width from the widths that an application ran on, with what is not known about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.model.profile import Power, Speedup, Table
from fairlead.policy.learning.estimate import Estimate

PRIOR_EXPONENT = 0.9
PRIOR_SD = 0.15
"""s(k) = k^p, and p is about this before any width but one was seen: most trainings scale a little under linearly."""
_LEAST_SD = 0.02
"""Of a log rate, however often it was seen: epochs differ by this much."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A curve through what was measured, continued by k^p."""

    exponent: float
    exponent_sd: float
    rates: Mapping[int, float]
    """Work in a second by width, as measured."""

    def speedup(self) -> Speedup:
        """The curve as a profile has it, in multiples of one GPU."""
        if len(self.rates) < 2:
            return Power(self.exponent)
        widths = sorted(self.rates)
        one = self.rates[widths[0]] / self.at(widths[0])
        points = {1: 1.0, **{k: self.rates[k] / one for k in widths}}
        widest = widths[-1]
        # Beyond the widest that was seen the curve goes on as k^p; a table would end flat.
        points |= {widest << n: points[widest] * (1 << n) ** self.exponent for n in range(1, 5)}
        return Table(tuple(map(float, sorted(points))), tuple(points[k] for k in sorted(points)))

    def at(self, width: float) -> float:
        """k^p."""
        return float(width**self.exponent)

    def sd_frac(self, width: int) -> float:
        """How unsure s(k) is, as a part of it: it grows with the distance to the nearest width that was seen."""
        seen = self.rates or {1: 1.0}
        return self.exponent_sd * min(abs(math.log(width / k)) for k in seen)


def fitted(rates: Mapping[int, Estimate]) -> Scaling:
    """Bayesian regression of log rate on log width, with the prior on its slope."""
    seen = {k: e for k, e in rates.items() if e.known and e.mean > 0.0}
    precision = 1.0 / PRIOR_SD**2
    slope = PRIOR_EXPONENT
    if len(seen) > 1:
        trust = {k: 1.0 / max(e.error / e.mean, _LEAST_SD) ** 2 for k, e in seen.items()}
        total = sum(trust.values())
        middle_x = sum(trust[k] * math.log(k) for k in seen) / total
        middle_y = sum(trust[k] * math.log(e.mean) for k, e in seen.items()) / total
        xx = sum(trust[k] * (math.log(k) - middle_x) ** 2 for k in seen)
        xy = sum(trust[k] * (math.log(k) - middle_x) * (math.log(e.mean) - middle_y) for k, e in seen.items())
        slope = (precision * slope + xy) / (precision + xx)
        precision += xx
    return Scaling(min(max(slope, 0.0), 1.2), precision**-0.5, {k: e.mean for k, e in seen.items()})
