"""Who has missed a deadline, and who will by what is known now: each is told once, when it turns out.

A job that runs is expected to end at its present speed, one that waits as if it started now; one whose run time nobody
knows is only ever found late. A deadline counts from submission, on the scheduler's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.live.control.clock import Clock
from fairlead.live.control.observations import Observations
from fairlead.live.jobs.job import DeadlineState, LiveJob
from fairlead.live.storage.pending_writes import PendingWrites
from fairlead.live.storage.store import EventRow

WATCHED = (DeadlineState.ON_TIME, DeadlineState.AT_RISK, DeadlineState.MISSED)
"""The states of jobs that are not over."""
_LOOK_S = 1.0
_SLACK_S = 5e-7
"""As in results: a job that was promised its exact run time is not late by rounding."""


class Deadlines:
    """Those of the jobs that are not over."""

    def __init__(self, pending_writes: PendingWrites, clock: Clock, observations: Observations) -> None:
        self._pending_writes, self._clock, self._observations = pending_writes, clock, observations
        self._due_s = 0.0
        self.counts: Mapping[DeadlineState, int] = {}
        """Jobs in each state; replaced whole, so that any thread may read it."""

    def look(self, jobs: Iterable[LiveJob], now_s: float) -> None:
        """See how they stand; more often than every second it does nothing."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + _LOOK_S
        counts: Counter[DeadlineState] = Counter()
        for job in jobs:
            late_s = _late_s(job, now_s)
            if late_s is None:
                continue
            if late_s > _SLACK_S:
                self._set(job, DeadlineState.MISSED, "it has not ended")
            else:
                self._foresee(job, -late_s)
            counts[job.deadline_state] += 1
        self.counts = counts

    def finished(self, job: LiveJob, ended_s: float) -> None:
        """It has ended by itself then, on the scheduler's clock: in time or not."""
        late_s = _late_s(job, ended_s)
        if late_s is None:
            return
        if late_s > _SLACK_S:
            self._set(job, DeadlineState.MISSED, f"it ended {late_s:.0f} s late")
        else:
            self._set(job, DeadlineState.MET)

    def _foresee(self, job: LiveJob, left_s: float) -> None:
        expected_s = 0.0 if self._observations.is_guess(job) else self._observations.remaining_s(job)
        if expected_s <= left_s + _SLACK_S:
            self._set(job, DeadlineState.ON_TIME)
            return
        if_started = "" if job.gpus else ", even if it started now"
        self._set(job, DeadlineState.AT_RISK, f"it is expected to end {expected_s - left_s:.0f} s late{if_started}")

    def _set(self, job: LiveJob, state: DeadlineState, about: str = "") -> None:
        if state is job.deadline_state:
            return
        job.deadline_state = state
        self._pending_writes.touch(job)
        if state is DeadlineState.MISSED:
            self._tell(job, "deadline-missed", about)
        elif state is DeadlineState.AT_RISK and not job.was_at_risk:
            job.was_at_risk = True
            self._tell(job, "deadline-at-risk", about)

    def _tell(self, job: LiveJob, what: str, about: str) -> None:
        said = f"{job.request.deadline_s:g} s after submission: {about}"
        self._pending_writes.tell(EventRow(self._clock.wall_s(), what, job.job.id, "", said))


def _late_s(job: LiveJob, at_s: float) -> float | None:
    """By how much its deadline lies before a moment; None where it has none."""
    if job.job.deadline_s is None or job.job.kind != "training":
        return None
    return at_s - (job.job.submit_s + job.job.deadline_s)
