"""Shortest job first, with an oracle; nobody is preempted."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering, Skips, option
from fairlead.policy.view import JobState, View

_RUNS, _WAITS = 0, 1


@dataclass
class Sjf(Ordering):
    """Shortest job first; running jobs are never preempted. Reads true durations.

    Order: the run time that a waiting job has left at its nominal speed (the GPUs it asked for, median, in one node),
    ties in order of submission. That is its whole run time, unless it has run before and its node failed. `backfill` is
    as of `ordering=fifo`: a head that does not fit blocks, as in Helios' and Lucid's simulators, unless told otherwise.

    When not to use it: on a live cluster, which has no oracle; and where long jobs must not starve.
    """

    backfill: Skips = option("auto", "behind a head that does not fit: none or strict, greedy, easy; auto as of fifo")

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    @property
    def needs_oracle(self) -> bool:
        """Yes: it ranks by run times, which only the oracle knows."""
        return True

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Run time left, behind everybody who runs."""
        assert view.oracle is not None, "sjf was shown a view without an oracle"
        return (_WAITS, view.oracle.remaining_s(state), state.job.id)

    def running_key(self, state: JobState, view: View) -> Key:
        """Ahead of everybody who waits."""
        return (_RUNS, 0.0, state.job.id)
