"""Optimus: each GPU where it shortens a job most (EuroSys'18)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fairlead.policy.sizing.goodput import Interval
from fairlead.policy.view import JobState, View


@dataclass
class Optimus(Interval):
    """Every interval, one GPU for everybody, then always to the job whose time left shrinks most per further GPU.

    Jobs keep the batch they were submitted with. What is left of a job is its epochs to come (Optimus foresees them
    from the loss; here they are declared, and jobs without epochs are known by the oracle) at the fitted speed.

    When not to use it: where batches adapt; it is here to be compared with.
    """

    adapts_batch: ClassVar[bool] = False
    needs_oracle: ClassVar[bool] = True

    def choose(self, states: Sequence[JobState], gpus: int, view: View) -> list[int]:
        """Greedily by what a step to the next width saves per GPU."""
        chosen = [0] * len(states)
        steps: list[tuple[float, int, int]] = []
        left_s = [self._left_s(s, view) for s in states]
        for number in range(len(states)):
            first = next((i for i, s in enumerate(left_s[number]) if s < float("inf")), None)
            if first is not None and self._widths[first] <= gpus:
                gpus -= self._widths[first]
                chosen[number] = self._widths[first]
                self._offer(steps, number, first, left_s[number])
        while steps:
            _, number, at = heapq.heappop(steps)
            more = self._widths[at] - chosen[number]
            if more <= gpus:
                gpus -= more
                chosen[number] = self._widths[at]
                self._offer(steps, number, at, left_s[number])
        return chosen

    def _offer(self, steps: list[tuple[float, int, int]], number: int, at: int, left_s: list[float]) -> None:
        """The best next width of a job, by seconds saved per GPU."""
        gains = [
            (-(left_s[at] - left_s[i]) / (self._widths[i] - self._widths[at]), number, i)
            for i in range(at + 1, len(self._widths))
            if left_s[i] < left_s[at]
        ]
        if gains:
            heapq.heappush(steps, min(gains))

    def _left_s(self, state: JobState, view: View) -> list[float]:
        """Seconds left at each width, the present epoch counted whole."""
        assert view.epochs is not None
        kind = self._curves.kind(state.job)
        if kind.epochs == 1 and kind.declared:
            assert view.oracle is not None
            nodes = view.cluster.spanned(state.gpus)
            speed = kind.goodput(0, len(state.gpus) or state.job.gpus, nodes)
            left = view.oracle.remaining_s(state) * speed
            row = self._curves.row(state, 0, self._widths, view.cluster.node_gpus)
            return [left / g if g > 0.0 else float("inf") for g in row]
        epoch = view.epochs.done(state)
        row = self._curves.row(state, epoch, self._widths, view.cluster.node_gpus)
        samples = sum(kind.samples_of(e) for e in range(epoch, kind.epochs))
        return [samples / g if g > 0.0 else float("inf") for g in row]
