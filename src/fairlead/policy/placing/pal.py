"""PAL: fast GPUs weighed against locality."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.placement import Placement
from fairlead.policy.placing.pm_first import PmFirst
from fairlead.policy.placing.score_index import ScoreIndex
from fairlead.policy.pool import Pool
from fairlead.policy.stages import option
from fairlead.policy.view import JobState, View


@dataclass
class Pal(PmFirst):
    """The set with the smallest product of locality penalty and slowest GPU (PAL, SC'24).

    The candidates for n GPUs are the entries of the L x V matrix, in order of their product: for each bin value v,
    inside one node (L = 1) and across nodes (L = the job's penalty). An entry (v, within) is met by a node with n free
    GPUs no worse than v: of those the node with most such GPUs, then the last, and its n best GPUs; an entry
    (v, across) by any n free GPUs no worse than v, chosen as PM-First does. The first entry that is met decides; on
    equal products a node is preferred. As entries of one kind are met from some v on, only the smallest v of each kind
    has to be found, not the walk made. A job on one GPU, or on more than a node has, is placed by PM-First.

    With `gather` above 0 a node that stays partly empty counts as slower, by that much if it stays wholly so: jobs
    gather on few nodes, and others stay whole for wide jobs or can be given back. It is meant for rented nodes.

    Other options, order of picking and stickiness are PM-First's.

    When not to use it: without a variability profile it is packing that never looks for the fullest node.
    """

    gather: float = option(0.0, "how much slower a node counts that stays empty but for this job")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gather < 0:
            raise ValueError(f"gather={self.gather:g}: 0 or more")

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """The cheaper of the best node and the best GPUs."""
        if width > pool.count:
            return None
        index = self.index(state.job.profile.app_class, pool, view)
        if self.gather > 0.0:
            return self._gathered(state, width, index)
        inside = index.best_within(width) if width > 1 else None
        if inside is None:
            return index.best(width)
        across = index.best_across(width)
        assert across is not None, "a node has enough free GPUs and the pool has not"
        if index.values[inside[0]] <= index.values[across] * state.job.profile.locality:
            return index.from_node(inside[1], width)
        return index.best(width)

    def _gathered(self, state: JobState, width: int, index: ScoreIndex) -> Placement | None:
        """The best node, unless GPUs of several are better by more than the penalty and `gather` together."""
        found, across = index.best_gathered(width, self.gather), index.best_across(width)
        assert across is not None, "the pool has enough GPUs and the index has not"
        spread = index.values[across] * state.job.profile.locality * (1.0 + self.gather)
        if found is None or (width > 1 and spread < found[0]):
            return index.best(width)
        return index.from_node(found[1], width)
