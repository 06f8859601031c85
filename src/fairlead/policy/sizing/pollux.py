"""Pollux: goodput shared out fairly (OSDI'21)."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlead.model.training import packed_nodes
from fairlead.policy.saved_state import reading
from fairlead.policy.sizing.allocate import Allocation
from fairlead.policy.sizing.goodput import Floats, Interval, best_widths, power_mean_costs
from fairlead.policy.stages import option
from fairlead.policy.view import JobState, View

_WINDOW = 15
"""Intervals over which utility is averaged before the cluster is resized."""


@dataclass
class Pollux(Interval):
    """Widths and batches that maximise the power mean (p = -1) of goodputs over those of a fair share (OSDI'21).

    Every interval all widths are chosen anew: exactly, by dynamic programming over jobs and GPUs, where Pollux searches
    by a genetic algorithm. A width that changes is charged a restart: its speedup counts as if the job had lost, over
    its age, all its restarts and one more. A job may use at most twice the GPUs of the widest run of its kind.

    With `target` above 0 and rented nodes the cluster is autoscaled as well: utility is the mean speedup per GPU, and
    when its mean over 15 intervals is more than 0.15 off the target, the size is chosen whose utility is nearest to it.
    It is larger than that where jobs that must have several GPUs would get none: narrow ones can keep utility at the
    target for ever.

    When not to use it: where a budget is to be kept, or where short jobs should pass long ones.
    """

    target: float = option(0.0, "utility that autoscaling aims at, 0 to 1; 0 leaves the cluster as it is")
    p: float = option(-1.0, "exponent of the power mean; the more negative, the fairer")
    _nodes: int = field(default=1, init=False, repr=False)
    _least_nodes: int = field(default=0, init=False, repr=False)
    _utilities: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.target < 1.0 or self.p >= 0.0:
            raise ValueError(f"target={self.target:g}, p={self.p:g}: a target from 0 to below 1, p below 0")

    @property
    def names_nodes(self) -> bool:
        """Whether it says how many nodes it wants: with a target it does."""
        return self.target > 0.0

    def _sized(self, view: View) -> bool:
        # Where nodes are not rented nobody follows the number of them that it names.
        return self.target > 0.0 and view.cluster.rental is not None

    def nodes(self, view: View) -> int | None:
        """The size that autoscaling has found; none without jobs."""
        if not self._sized(view):
            return None
        return max(self._nodes, self._least_nodes) if view.running or view.waiting else 0

    def choose(self, states: Sequence[JobState], gpus: int, view: View) -> list[int]:
        """The optimum of the power mean."""
        goodputs, node_gpus = self._goodputs(states, view), view.cluster.node_gpus
        sized = self._sized(view)
        most = view.cluster.gpus if sized else gpus
        found = self._share_out(states, goodputs, gpus, max(gpus, most), view)
        if sized:
            self._autoscale(found, goodputs, self._alone(states, view), gpus, view)
            self._least_nodes = self._nodes_for_wide_jobs(found, states, goodputs, view)
            gpus = min(gpus, max(self._nodes, self._least_nodes) * node_gpus)
        return found.widths(gpus)

    def knowledge(self) -> dict[str, Any]:
        """Also the size of the cluster, and the utilities that it was chosen by."""
        sizes = {"nodes": self._nodes, "least_nodes": self._least_nodes}
        return {**super().knowledge(), **sizes, "utilities": list(self._utilities)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Take back what was saved, also the size of the cluster and why it was chosen."""
        with reading("pollux", saved, "due_s", "kinds", "nodes", "least_nodes", "utilities"):
            super().recall({name: saved[name] for name in ("due_s", "kinds")}, view)
            self._nodes, self._utilities = int(saved["nodes"]), [float(u) for u in saved["utilities"]]
            self._least_nodes = int(saved.get("least_nodes", 0))

    def _share_out(self, states: Sequence[JobState], goodputs: Floats, gpus: int, most: int, view: View) -> Allocation:
        """The optimum for any number of GPUs up to `most`, where a fair share is one of `gpus`."""
        speedups = self._speedups(states, goodputs, gpus, view)
        return best_widths(power_mean_costs(states, speedups, self._widths, self.p, view.now_s), self._widths, most)

    def _speedups(self, states: Sequence[JobState], goodputs: Floats, gpus: int, view: View) -> Floats:
        """Over the goodput on a fair share of the GPUs."""
        fair = max(1, -(-gpus // len(states)))
        node_gpus, rows = view.cluster.node_gpus, []
        for state, row in zip(states, goodputs, strict=True):
            kind = self._curves.kind(state.job)
            share = min(fair, state.job.max_gpus)
            at_fair = kind.goodput(self._epoch(state, view), share, packed_nodes(share, node_gpus)) or float(row.max())
            rows.append(row / at_fair if at_fair > 0.0 else row)
        return np.array(rows)

    def _alone(self, states: Sequence[JobState], view: View) -> list[float]:
        """Goodputs on one GPU, whether or not a job may run on so few."""
        return [self._curves.kind(s.job).goodput(self._epoch(s, view), 1, 1) for s in states]

    def _autoscale(self, found: Allocation, goodputs: Floats, alone: Sequence[float], gpus: int, view: View) -> None:
        utility = self._utility(found, goodputs, alone, max(1, gpus))
        self._utilities.append(utility)
        if gpus and len(self._utilities) < _WINDOW and view.rented_s:
            return
        mean = sum(self._utilities) / len(self._utilities)
        self._utilities = self._utilities[-(_WINDOW - 1) :]
        if gpus and abs(mean - self.target) <= 0.15:
            return
        node_gpus = view.cluster.node_gpus
        sizes = [min(n * node_gpus, view.cluster.gpus) for n in range(1, len(view.cluster.nodes) + 1)]
        off = [abs(self._utility(found, goodputs, alone, n) - self.target) for n in sizes]
        self._nodes = 1 + int(np.argmin(off))
        self._utilities.clear()

    def _nodes_for_wide_jobs(self, found: Allocation, states: Sequence[JobState], goodputs: Floats, view: View) -> int:
        """Nodes to have where those that utility asks for leave nothing to a job that must have several GPUs, else 0.

        They hold whoever gets nothing beside the others. Who fits beside nobody is for the optimum over all nodes to
        decide. Nodes are counted as if the smallest came first, as it is not for sizing to say which are rented.
        """
        usable = (view.usable_gpus((n,)) for n in range(len(view.cluster.nodes)) if n not in view.down)
        sizes = list(itertools.accumulate(sorted(gpus for gpus in usable if gpus)))
        if not sizes or all(s.job.min_gpus == 1 for s in states):
            return 0
        chosen = found.widths(sizes[min(self._nodes, len(sizes)) - 1])
        without = [i for i, width in enumerate(chosen) if not width]
        if all(states[i].job.min_gpus == 1 for i in without):
            return 0
        gpus, too_wide = sum(chosen), []
        for i in without:
            least = states[i].job.min_gpus
            if gpus + least <= sizes[-1]:
                gpus += least
            else:
                too_wide.append(i)
        if too_wide:
            widths = self._share_out(states, goodputs, sizes[-1], sizes[-1], view).widths(sizes[-1])
            if any(widths[i] for i in too_wide):
                return len(sizes)
        return bisect_left(sizes, gpus) + 1

    def _utility(self, found: Allocation, goodputs: Floats, alone: Sequence[float], gpus: int) -> float:
        """Speedups over one GPU, per GPU."""
        chosen = found.widths(gpus)
        at = {k: i for i, k in enumerate(self._widths)}
        jobs = zip(goodputs, alone, chosen, strict=True)
        speedups = (row[at[k]] / one for row, one, k in jobs if k and one > 0.0)
        return float(sum(speedups)) / gpus
