"""Equal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.policy.sizing.goodput import Interval
from fairlead.policy.view import JobState, View


@dataclass
class Equal(Interval):
    """Every job gets the same share of the GPUs, rounded down to a width that packs well, at least its minimum.

    When not to use it: where jobs scale differently; it does not look.
    """

    def choose(self, states: Sequence[JobState], gpus: int, view: View) -> list[int]:
        """GPUs over jobs; what rounding leaves goes to those who came first."""
        chosen, left = [], gpus
        for number, state in enumerate(states):
            share = max(state.job.min_gpus, left // (len(states) - number))
            fits = [k for k in self._widths if state.job.min_gpus <= k <= min(share, state.job.max_gpus, left)]
            chosen.append(max(fits, default=0))
            left -= chosen[-1]
        return chosen
