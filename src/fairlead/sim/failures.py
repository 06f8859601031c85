"""Node failures and repairs, as a Poisson process per node."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from fairlead.errors import InputError

_MOST_H = 1e9
"""Longer than any run; with far more, moments are no longer told apart."""


@dataclass(frozen=True)
class Failures:
    """How often nodes fail and how long repairs take, both exponential.

    A job on a node that fails loses its progress since the last checkpoint (`checkpoint_every_s` of its profile), goes
    back into the queue and pays a restart when it runs again.
    """

    mtbf_h: float
    """Mean time between the failures of one node."""
    repair_h: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.mtbf_h <= _MOST_H:
            raise InputError(
                f"mtbf_h is {self.mtbf_h}; the mean time between failures is above 0 h and up to {_MOST_H:g} h"
            )
        if not 0.0 <= self.repair_h <= _MOST_H:
            raise InputError(f"repair_h is {self.repair_h}; the mean repair time is from 0 h up to {_MOST_H:g} h")


class FailureProcess:
    """The moments at which nodes go down and come back."""

    def __init__(self, failures: Failures | None, nodes: int, seed: int) -> None:
        self._failures = failures
        self._rng = random.Random(f"failures/{seed}")
        self._events: list[tuple[float, int, bool]] = []
        if failures is not None:
            self._events = [(self._after(0.0, failures.mtbf_h), node, True) for node in range(nodes)]
            heapq.heapify(self._events)

    @property
    def next_s(self) -> float:
        """The next failure or repair."""
        return self._events[0][0] if self._events else float("inf")

    def pop(self) -> tuple[int, bool]:
        """The node that it is about, and whether it goes down; its next event is scheduled."""
        assert self._failures is not None
        now_s, node, down = heapq.heappop(self._events)
        mean_h = self._failures.repair_h if down else self._failures.mtbf_h
        heapq.heappush(self._events, (self._after(now_s, mean_h), node, not down))
        return node, down

    def _after(self, now_s: float, mean_h: float) -> float:
        return now_s + (self._rng.expovariate(1.0 / (mean_h * 3600.0)) if mean_h > 0.0 else 0.0)
