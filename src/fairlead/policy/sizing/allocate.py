"""Widths for all jobs at once: the exact optimum of a sum of costs, one per job, under a number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Allocation:
    """min sum over jobs of cost[job][choice] with sum of widths[choice] <= K, for every K up to `gpus` at once.

    Dynamic programming over jobs: O(jobs x widths x GPUs). `widths` starts with 0 (to wait); a cost may be infinite.
    """

    def __init__(self, costs: Floats, widths: Sequence[int], gpus: int) -> None:
        self._widths = np.asarray(widths)
        self._choices = np.zeros((len(costs), gpus + 1), dtype=np.int16)
        best = np.zeros(gpus + 1)
        index = np.arange(gpus + 1)[None, :] - self._widths[:, None]
        fits = index >= 0
        index = np.maximum(index, 0)
        for job, row in enumerate(costs):
            with np.errstate(invalid="ignore"):
                options = np.where(fits, best[index] + row[:, None], np.inf)
            self._choices[job] = options.argmin(axis=0)
            best = options[self._choices[job], np.arange(gpus + 1)]
        self.cost = best
        """The smallest sum for each number of GPUs."""

    def widths(self, gpus: int) -> list[int]:
        """The best widths where there are so many GPUs."""
        found = []
        left = gpus
        for choices in reversed(self._choices):
            width = int(self._widths[choices[left]])
            found.append(width)
            left -= width
        return found[::-1]
