"""One quantity that is seen again and again: its mean, its spread, how much it is worth, and whether it has changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HALF_LIFE_S = 30 * 86400.0
"""After this long without news what was seen counts half."""
MOST_WEIGHT = 50.0
"""Observations that count at most: a mean that follows slow drift."""
ODD_FRAC = 0.2
ODD_SD = 4.0
"""An observation this far off, as a part of the mean and in standard deviations, does not belong to what was seen."""
ODD_TIMES = 3
"""So many odd ones in a row, on the same side, are a change: what was known before is dropped."""
FIRST_SD_FRAC = 0.2
"""Spread of a quantity that was seen once, as a part of it."""


@dataclass(slots=True)
class Estimate:
    """Mean and variance with forgetting. A single odd observation is set aside; several in a row are the new truth."""

    mean: float = 0.0
    variance: float = 0.0
    weight: float = 0.0
    at_s: float = 0.0
    odd: list[float] = field(default_factory=list)

    @property
    def known(self) -> bool:
        """Whether it was ever seen."""
        return self.weight > 0.0

    @property
    def sd(self) -> float:
        """Standard deviation among observations; of few a part is the first guess."""
        guess = (FIRST_SD_FRAC * self.mean) ** 2
        return math.sqrt((guess + self.variance * self.weight) / (1.0 + self.weight))

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite where nothing was seen."""
        return self.sd / math.sqrt(self.weight) if self.known else math.inf

    def see(self, value: float, at_s: float) -> bool:
        """Take in one observation; tells whether the quantity has changed, so that it is learnt anew."""
        self._age(at_s)
        if self.known and self._is_odd(value):
            if self.odd and (self.odd[-1] > self.mean) != (value > self.mean):
                self.odd.clear()
            self.odd.append(value)
            if len(self.odd) < ODD_TIMES:
                return False
            fresh = self.odd
            self.mean = self.variance = self.weight = 0.0
            self.odd = []
            for one in fresh:
                self._add(one)
            return True
        self.odd.clear()
        self._add(value)
        return False

    def state(self) -> list[Any]:
        """Plain values for JSON."""
        return [self.mean, self.variance, self.weight, self.at_s, list(self.odd)]

    @classmethod
    def restored(cls, saved: Sequence[Any]) -> Estimate:
        """An estimate from what `state` gave."""
        mean, variance, weight, at_s, odd = saved
        return cls(float(mean), float(variance), float(weight), float(at_s), [float(x) for x in odd])

    def _is_odd(self, value: float) -> bool:
        return abs(value - self.mean) > max(ODD_FRAC * abs(self.mean), ODD_SD * self.sd if self.weight > 2.0 else 0.0)

    def _age(self, at_s: float) -> None:
        if self.known and at_s > self.at_s:
            self.weight *= 0.5 ** ((at_s - self.at_s) / HALF_LIFE_S)
        self.at_s = max(self.at_s, at_s)

    def _add(self, value: float) -> None:
        self.weight = min(self.weight + 1.0, MOST_WEIGHT)
        step = value - self.mean
        self.mean += step / self.weight
        self.variance += (step * (value - self.mean) - self.variance) / self.weight


def states(estimates: Mapping[Any, Estimate]) -> list[list[Any]]:
    """Several estimates as `[key, state]` pairs: JSON has no keys that are numbers."""
    return [[key, one.state()] for key, one in estimates.items()]
