"""First in, first out, strict or with backfill."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering, Skips, option
from fairlead.policy.view import JobState, View


@dataclass
class Fifo(Ordering):
    """First in, first out; running jobs are never preempted on events.

    Order: submission time, ties in the order of the trace. What happens when the head of the queue does not fit is the
    whole difference between the things that are called FIFO:

    - `backfill=none` or `strict`: it blocks. Nobody behind it starts, however small.
    - `backfill=greedy`: it is skipped, and so is everyone who does not fit; the rest start in order.
    - `backfill=auto` (default): `none`; but `greedy` where sizing changes widths, as that says itself who waits.
    - `backfill=easy`: it gets a reservation at the earliest moment at which enough GPUs will be free. Others start in
      order only if they fit now and do not delay that moment: they end before it, or use GPUs that it leaves over.
      Needs run times: here the true ones (an oracle), where a live cluster has its users' estimates.

    In rounds (`--round-s`) it is the same. A strict order follows the rules of PAL's simulator there: all active jobs
    stand in one order, which is cut at the first that exceeds the cluster. FIFO then still preempts nobody unless GPUs
    are lost, since running jobs are ahead of waiting ones.

    When not to use it: strict FIFO leaves GPUs idle behind every wide job; greedy can starve wide jobs for ever.
    """

    backfill: Skips = option("auto", "behind a head that does not fit: none or strict, greedy, easy; auto is as above")

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    @property
    def needs_oracle(self) -> bool:
        """EASY plans with run times."""
        return self.backfill == "easy"

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The job's number: they are given in order of submission."""
        return (state.job.id,)
