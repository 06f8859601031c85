"""Earliest deadline first, for those who can meet theirs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.policy.queue import Key
from fairlead.policy.saved_state import reading
from fairlead.policy.stages import Cut, Ordering, Skips, option
from fairlead.policy.view import JobState, View

_IN_TIME, _BEST_EFFORT = 0, 1


@dataclass
class Deadline(Ordering):
    """Earliest deadline first (EDF), with an admission test.

    A job with a deadline is accepted when it comes if it can still meet it, and if nobody who was accepted before would
    miss theirs by it: for every deadline up to any of theirs, the GPU-seconds that accepted jobs need by then fit into
    the GPUs that there are. Accepted jobs go first, the earliest deadline first. All others go behind them in order of
    submission: those without a deadline, those that were not accepted, and those that can no longer be in time even if
    they start now. So a job that is lost anyway takes nothing from one that is not.

    With `preempt=true` (default) an earlier deadline takes the GPUs of later ones at every event; whoever does not fit
    is skipped, or with `backfill=strict` nobody behind starts. `admission=false` accepts everybody who has a deadline.
    Run times are the oracle's, in a simulation the true ones.

    When not to use it: where few jobs have a deadline, or run times are a guess.
    """

    preempt: bool = option(True, "whether an earlier deadline takes GPUs from a later one")
    admission: bool = option(True, "whether jobs that cannot be in time, or would make others late, go behind")
    backfill: Cut = option("greedy", "behind a job that does not fit: greedy skips it, strict stops there")
    needs_oracle: ClassVar[bool] = True
    _accepted: dict[int, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    """Of each accepted job, its deadline on the clock and the GPU-seconds it needed when it was accepted."""
    _refused: set[int] = field(default_factory=set, init=False, repr=False)
    _hopeless: list[tuple[float, int]] = field(default_factory=list, init=False, repr=False)
    """(moment, job): from when on an accepted job that waits cannot be in time any more."""

    @property
    def preemptive(self) -> bool:
        """Whether earlier deadlines displace later ones, as the option says."""
        return self.preempt

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    def waits(self, state: JobState, view: View) -> None:
        """Test whoever comes; whoever is back may have lost so much that it cannot be in time any more."""
        job_id = state.job.id
        if state.job.deadline_s is None or job_id in self._refused:
            return
        if job_id not in self._accepted:
            self._test(state, view)
        if job_id in self._accepted and self.admission:
            if self._is_lost(state, view):
                self._give_up(job_id)
            else:
                heapq.heappush(self._hopeless, (self._latest_s(state, view), job_id))

    def watch(self, state: JobState, width: int, starts: int, view: View) -> None:
        """Test whoever ran already when this ordering was chosen."""
        job = state.job
        if job.deadline_s is not None and job.id not in self._accepted and job.id not in self._refused:
            self._test(state, view)

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Accepted or not, then the deadline, then submission."""
        job = state.job
        return (_IN_TIME, job.due_s, job.id) if job.id in self._accepted else (_BEST_EFFORT, 0.0, job.id)

    def expired(self, view: View) -> list[JobState]:
        """Forget who has ended; gives the accepted jobs that waited until it was too late."""
        for ended in view.changes.ended:
            self._accepted.pop(ended.job.id, None)
            self._refused.discard(ended.job.id)
        found = []
        while self._hopeless and self._hopeless[0][0] < view.now_s:
            _, job_id = heapq.heappop(self._hopeless)
            state = view.waiting.get(job_id)
            if state is not None and job_id in self._accepted and self._is_lost(state, view):
                self._give_up(job_id)
                found.append(state)
        return found

    def knowledge(self) -> dict[str, Any]:
        """Who was accepted, and who was not."""
        accepted = [[job_id, due_s, need] for job_id, (due_s, need) in self._accepted.items()]
        return {"accepted": accepted, "refused": sorted(self._refused)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here, or may come back."""
        with reading("deadline", saved, "accepted", "refused"):
            self._accepted = {int(j): (float(due_s), float(need)) for j, due_s, need in saved["accepted"]}
            self._refused = {int(j) for j in saved["refused"]}

    def _test(self, state: JobState, view: View) -> None:
        """Whether a job that comes can be in time, and leaves the others in time."""
        assert view.oracle is not None, "deadline was shown a view without an oracle"
        job, run_s = state.job, view.oracle.remaining_s(state)
        need = run_s * (len(state.gpus) or job.gpus) * job.gpu_frac
        fits = view.now_s + run_s <= job.due_s and self._all_fit(job.due_s, need, view)
        if fits or not self.admission:
            self._accepted[job.id] = (job.due_s, need)
        else:
            self._refused.add(job.id)

    def _all_fit(self, due_s: float, need_gpu_s: float, view: View) -> bool:
        """Whether what is needed by each deadline fits into the GPUs until then, this job's own included."""
        gpus = view.up_gpus + view.usable_gpus(view.asleep | view.waking)
        assert view.oracle is not None
        needed = []
        for job_id, (other_due_s, need_at_first) in self._accepted.items():
            running, waiting = view.running.get(job_id), view.waiting.get(job_id)
            if running is not None:
                needed.append((other_due_s, view.oracle.remaining_s(running) * len(running.gpus)))
            elif waiting is None:  # its owner holds it back for now
                needed.append((other_due_s, need_at_first))
            elif not self._is_lost(waiting, view):
                needed.append((other_due_s, view.oracle.remaining_s(waiting) * waiting.job.gpus))
        total = 0.0
        for other_due_s, left in sorted([*needed, (due_s, need_gpu_s)]):
            total += left
            if other_due_s >= due_s and total > gpus * (other_due_s - view.now_s):
                return False
        return True

    def _is_lost(self, state: JobState, view: View) -> bool:
        """Whether a waiting job is late even if it starts now."""
        return self._latest_s(state, view) < view.now_s

    def _give_up(self, job_id: int) -> None:
        del self._accepted[job_id]
        self._refused.add(job_id)

    def _latest_s(self, state: JobState, view: View) -> float:
        """The last moment at which a waiting job can start and be in time."""
        assert view.oracle is not None, "deadline was shown a view without an oracle"
        return state.job.due_s - view.oracle.remaining_s(state)
