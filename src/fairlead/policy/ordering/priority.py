"""By priority."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Cut, Ordering, Skips, option
from fairlead.policy.view import JobState, View


@dataclass
class Priority(Ordering):
    """Highest priority first, then order of submission.

    With `preempt=true` (default) the cluster is filled in that order at every event, or in every round, skipping
    whoever does not fit; lower priorities are preempted for higher ones, equal ones never for each other unless a wide
    job submitted earlier fits by it. With `preempt=false` running jobs stay and waiting ones start in that order,
    skipping whoever does not fit. `backfill=strict` stops at the first who does not fit, as PAL's simulator does in
    rounds.

    When not to use it: where everyone may name any priority.
    """

    preempt: bool = option(True, "whether a higher priority takes GPUs from a lower one")
    backfill: Cut = option("greedy", "behind a job that does not fit: greedy skips it, strict stops there")

    @property
    def preemptive(self) -> bool:
        """Whether higher priorities displace lower ones, as the option says."""
        return self.preempt

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Highest priority first, then order of submission."""
        return (-state.job.priority, state.job.id)
