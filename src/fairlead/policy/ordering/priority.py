"""By priority."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering, Skips, option
from fairlead.policy.view import JobState, View


@dataclass
class Priority(Ordering):
    """Highest priority first, then order of submission.

    With `preempt=true` (default) the cluster is filled greedily in that order at every event, skipping whoever does not
    fit; lower priorities are preempted for higher ones, equal ones never for each other unless a wide job submitted
    earlier fits by it. With `preempt=false` running jobs stay and waiting ones start in that order, skipping whoever
    does not fit. In rounds the queue is cut at the first that exceeds the cluster.

    When not to use it: where everyone may name any priority.
    """

    preempt: bool = option(True, "whether a higher priority takes GPUs from a lower one")

    @property
    def preemptive(self) -> bool:
        """As the option says."""
        return self.preempt

    @property
    def skips(self) -> Skips:
        """Both ways skip whoever does not fit."""
        return "greedy"

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Priority, then submission."""
        return (-state.job.priority, state.job.id)
