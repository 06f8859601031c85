"""What services will use in the next interval, from what they have used."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.view import Fleet

_DAY_S = 86400.0
_MARGIN = 0.05
_DAYS_KEPT = 3


@dataclass
class Forecast:
    """SM activity at its 95th percentile over the next interval, per service.

    Loads follow the day: what came after this time of day before, scaled to today's level, where a day has been seen;
    else it goes on rising as it did in the last interval. Five points of the GPU are added either way.
    """

    _seen: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Of each service (moment, activity), once an interval."""

    def p95(self, fleet: Fleet, now_s: float) -> NDArray[np.float64]:
        """Take note of now, and look ahead."""
        found = np.empty(len(fleet.service))
        for i, (service, now) in enumerate(zip(fleet.service.tolist(), fleet.sm_activity_frac.tolist(), strict=True)):
            past = self._seen.setdefault(service, [])
            found[i] = self._ahead(past, now_s, now) + _MARGIN
            past.append((now_s, now))
            while past and past[0][0] < now_s - _DAYS_KEPT * _DAY_S:
                past.pop(0)
        for gone in self._seen.keys() - set(fleet.service.tolist()):
            del self._seen[gone]
        return np.clip(found, 0.0, 1.0)

    def _ahead(self, past: list[tuple[float, float]], now_s: float, now: float) -> float:
        if not past:
            return now
        interval_s = now_s - past[-1][0]
        then_s = now_s - _DAY_S
        before = [a for t, a in past if abs(t - then_s) <= interval_s / 2]
        after = [a for t, a in past if abs(t - then_s - interval_s) <= interval_s / 2]
        if before and after and before[-1] > 0.0:
            return now * max(1.0, after[-1] / before[-1])
        return now + max(0.0, now - past[-1][1])
