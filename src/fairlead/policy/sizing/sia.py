"""Sia: an assignment of configurations to jobs (SOSP'23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.policy.sizing.curves import usual_widths
from fairlead.policy.sizing.goodput import Interval, best_widths, power_mean_costs
from fairlead.policy.stages import option
from fairlead.policy.view import JobState, View


@dataclass
class Sia(Interval):
    """Every interval each job gets one configuration, so that the sum of goodputs^p is best (SOSP'23).

    Configurations are powers of two within a node and whole nodes beyond; goodput is taken over that of the job's
    slowest configuration; a change is charged a restart as in Pollux; a job may at most double its GPUs at a time. The
    assignment problem is solved exactly. On GPUs of one model, as here, a configuration is a width.

    When not to use it: where a budget is to be kept; it uses whatever GPUs there are.
    """

    p: float = option(-0.5, "exponent of the fairness objective")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p >= 0.0:
            raise ValueError(f"p={self.p:g}: below 0")

    def widths_of(self, states: Sequence[JobState], view: View) -> tuple[int, ...]:
        """The widths that jobs may have: Sia's configurations."""
        usual = usual_widths(view.cluster.node_gpus, min(self.widest, view.cluster.gpus))
        return tuple(sorted({*usual, *(s.job.min_gpus for s in states)}))

    def choose(self, states: Sequence[JobState], gpus: int, view: View) -> list[int]:
        """The widths with the best power mean of goodputs that these GPUs allow."""
        goodputs = self._goodputs(states, view)
        for row, state in zip(goodputs, states, strict=True):
            most = max(1, state.job.min_gpus, 2 * len(state.gpus))
            row[[k > most for k in self._widths]] = 0.0
        positive = np.where(goodputs > 0.0, goodputs, np.inf)
        speedups = goodputs / positive.min(axis=1, keepdims=True)
        costs = power_mean_costs(states, speedups, self._widths, self.p, view.now_s)
        return best_widths(costs, self._widths, gpus).widths(gpus)
