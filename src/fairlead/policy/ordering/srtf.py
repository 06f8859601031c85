"""Shortest remaining time first, with an oracle."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Cut, Ordering, Skips, option
from fairlead.policy.view import JobState, View


@dataclass
class Srtf(Ordering):
    """Shortest remaining run time first, preemptive; reads true durations.

    Order: run time left, ties in order of submission. For a running job that is the time to its end at the speed it
    has now, for a waiting one at its nominal speed (the GPUs it asked for, median, in one node). At every event,
    or in every round, the cluster is filled in that order, skipping whoever does not fit; whoever runs and is not among
    them is preempted, and pays the restart when it comes back. `backfill=strict` stops at the first who does not fit,
    as PAL's simulator does in rounds.

    When not to use it: on a live cluster, which has no oracle; and where long jobs must not starve.
    """

    backfill: Cut = option("greedy", "behind a job that does not fit: greedy skips it, strict stops there")

    @property
    def preemptive(self) -> bool:
        """Always: whoever is done sooner goes first."""
        return True

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    @property
    def needs_oracle(self) -> bool:
        """It is the policy that knows."""
        return True

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The run time left, then order of submission."""
        assert view.oracle is not None, "srtf was shown a view without an oracle"
        return (view.oracle.remaining_s(state), state.job.id)

    def running_key(self, state: JobState, view: View) -> Key:
        """The moment of its end, which stays the same while it runs on: no need to ask again at every event."""
        assert view.oracle is not None, "srtf was shown a view without an oracle"
        return (view.now_s + view.oracle.remaining_s(state), state.job.id)

    def as_running(self, key: Key, now_s: float) -> Key:
        """When a waiting job would end if it started now."""
        return (now_s + key[0], key[1])
