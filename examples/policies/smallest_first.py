"""An ordering for Fairlead: the smallest job first."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering, option
from fairlead.policy.view import JobState, View


@dataclass
class SmallestFirst(Ordering):
    """Fewest GPUs first, then order of submission.

    Running jobs stay unless `preempt=true`: then a smaller job takes the GPUs of larger ones, at every event.

    When not to use it: wide jobs starve while small ones keep coming.
    """

    preempt: bool = option(False, "whether a smaller job takes GPUs from a larger one")

    @property
    def preemptive(self) -> bool:
        """As the option says."""
        return self.preempt

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The GPUs asked for; the id breaks ties, so that no two keys are equal."""
        return (state.job.gpus, state.job.id)
