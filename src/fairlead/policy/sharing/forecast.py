"""What services will use in the next interval, from what they have used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.saved_state import finite
from fairlead.policy.sources import Fleet

Floats = NDArray[np.float64]
_DAY_S = 86400.0
MARGIN = 0.05
"""Added to what a service is expected to use."""
_DAYS_KEPT = 3


@dataclass
class Forecast:
    """SM activity at its 95th percentile over the next interval, per service.

    Loads follow the day: what came after this time of day before, scaled to today's level, where a day has been seen;
    else it goes on rising as it did in the last interval. Five points of the GPU are added either way.
    """

    _seen: list[tuple[float, Floats]] = field(default_factory=list)
    """(moment, activity of each service), once an interval; NaN where it was not there yet, or not metered."""
    _services: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Whose columns these are."""

    def p95(self, fleet: Fleet, now_s: float) -> Floats:
        """Take note of now, and look ahead."""
        if not np.array_equal(fleet.service, self._services):
            self._turn_to(fleet.service)
        now = np.array(fleet.sm_activity_frac)
        found = self._ahead(now_s, now) + MARGIN
        self._seen.append((now_s, now))
        while self._seen[0][0] < now_s - _DAYS_KEPT * _DAY_S:
            self._seen.pop(0)
        return np.clip(found, 0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """What was seen, fit for JSON."""
        seen = [[t, [finite(x) for x in row] if np.isnan(row).any() else row.tolist()] for t, row in self._seen]
        return {"services": self._services.tolist(), "seen": seen}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Forecast:
        """A forecast from what `to_dict` made."""
        services = np.array(saved["services"], dtype=np.int64)
        seen = [(float(t), np.array(row, dtype=np.float64)) for t, row in saved["seen"]]  # null becomes NaN
        if any(row.shape != services.shape for _, row in seen):
            raise ValueError(f"every row has {len(services)} services")
        return cls(seen, services)

    def _turn_to(self, services: NDArray[np.int64]) -> None:
        """Others are there now: those that stayed keep their past."""
        column = {service: i for i, service in enumerate(self._services.tolist())}
        old = np.array([column.get(service, -1) for service in services.tolist()], dtype=np.int64)
        self._seen = [(t, np.where(old >= 0, np.append(row, np.nan)[old], np.nan)) for t, row in self._seen]
        self._services = services.copy()

    def _ahead(self, now_s: float, now: Floats) -> Floats:
        if not self._seen:
            return now
        last_s, last = self._seen[-1]
        interval_s, then_s = now_s - last_s, now_s - _DAY_S
        ahead = now + np.maximum(0.0, now - np.where(np.isnan(last), now, last))
        before = [row for t, row in self._seen if abs(t - then_s) <= interval_s / 2]
        after = [row for t, row in self._seen if abs(t - then_s - interval_s) <= interval_s / 2]
        if before and after:
            with np.errstate(divide="ignore", invalid="ignore"):
                grown = now * np.maximum(1.0, after[-1] / before[-1])
            ahead = np.where(np.isfinite(grown) & (before[-1] > 0.0), grown, ahead)
        return ahead
