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

    - `backfill=none` (default): it blocks. Nobody behind it starts, however small.
    - `backfill=greedy`: it is skipped, and so is everyone who does not fit; the rest start in order.
    - `backfill=easy`: it gets a reservation at the earliest moment at which enough GPUs will be free. Others start in
      order only if they fit now and do not delay that moment: they end before it, or use GPUs that it leaves over.
      Needs run times: here the true ones (an oracle), where a live cluster has its users' estimates.

    In rounds (`--round-s`) the queue of all active jobs is cut at the first that exceeds the cluster (greedy: it is
    skipped), and a sticky placing evicts from the tail, as in PAL's simulator; FIFO then still preempts nobody, since
    running jobs are ahead of waiting ones, except under greedy, where an early wide job takes its turn when it fits.

    When not to use it: strict FIFO leaves GPUs idle behind every wide job; greedy can starve wide jobs for ever.
    """

    backfill: Skips = option("none", "behind a head that does not fit: none, greedy, easy")

    @property
    def skips(self) -> Skips:
        """As the option says."""
        return self.backfill

    @property
    def needs_oracle(self) -> bool:
        """EASY plans with run times."""
        return self.backfill == "easy"

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Order of submission."""
        return (state.job.id,)
