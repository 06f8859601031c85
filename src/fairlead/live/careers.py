"""What becomes of jobs: they are admitted, held, cancelled, end, fail, try again. The rules; the loop is elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.live import outcome
from fairlead.live.clock import Clock
from fairlead.live.desk import NEVER, Desk
from fairlead.live.engine import AttemptState, AttemptStatus, Key
from fairlead.live.ledger import Ledger
from fairlead.live.livejob import LiveJob, State
from fairlead.live.observed import Observed
from fairlead.live.outcome import Verdict
from fairlead.live.store import Attempt, EventRow, Store

_PLACED = ("placed", "moved", "resized")


class Careers:
    """All jobs that are not over."""

    def __init__(
        self, desk: Desk, ledger: Ledger, store: Store, clock: Clock, observed: Observed, tail: Callable[[Key], str]
    ) -> None:
        self._desk, self._ledger, self._store, self._clock, self._observed = desk, ledger, store, clock, observed
        self._tail = tail
        """The last lines that an attempt wrote."""
        self.aside: dict[int, LiveJob] = {}
        """Held, or backing off."""
        self.attempts: dict[Key, Attempt] = {}
        """Those that are not over."""

    def get(self, job_id: int) -> LiveJob | None:
        """One that is not over."""
        return self._desk.jobs.get(job_id) or self.aside.get(job_id)

    # ---- by its user ----

    def admit(self, job: LiveJob) -> None:
        """It is new."""
        if self.get(job.job.id) is None:
            if job.state is State.HELD:
                self.aside[job.job.id] = job
            else:
                self._desk.arrived(job)

    def grant(self, job_id: int, wish: str) -> None:
        """Cancel, hold or release; what is over, or as it is wished already, stays as it is."""
        self._ledger.grant(job_id, wish)
        job = self.get(job_id)
        if job is None and wish == "release":
            job = self._parked(job_id)
        if job is None:
            return
        if wish == "cancel":
            self._take_off(job)
            self._settle(job, State.CANCELLED, "cancelled")
        elif wish == "hold" and job.state is not State.HELD:
            if job_id in self._desk.jobs:
                self._desk.withdrawn(job)
                self.aside[job_id] = job
            job.due_s = None
            self.set(job, State.HELD, "held")
        elif wish == "release" and job_id not in self._desk.jobs:
            job.failures = 0
            self._let_wait(job, "released")

    def _parked(self, job_id: int) -> LiveJob | None:
        job = self._settled(job_id)
        if job is None or job.state is not State.PARKED:
            return None
        job.ended_at_s = job.exit_code = None
        return job

    # ---- by its attempts ----

    def alive(self, attempt: Attempt, status: AttemptStatus) -> None:
        """It runs, and may have told something."""
        if attempt.started_at_s is None and status.started_at_s is not None:
            attempt.started_at_s = status.started_at_s
            self._ledger.touch_attempt(attempt)
        job = self._desk.jobs.get(attempt.job_id)
        if job is None or job.attempt != attempt.attempt:
            return
        phase = "stopping" if attempt.stopping else "starting" if status.state is AttemptState.STARTING else ""
        started_at_s = job.started_at_s if job.started_at_s is not None else status.started_at_s
        if (job.phase, job.started_at_s) != (phase, started_at_s):
            job.phase, job.started_at_s = phase, started_at_s
            self._ledger.touch(job)
        self._take_progress(job, status)

    def over(self, attempt: Attempt, status: AttemptStatus) -> None:
        """Nothing of it runs any more: write it down, and what it means for the job."""
        job = self.get(attempt.job_id) or self._settled(attempt.job_id)
        if not attempt.stopping and job is not None and not job.gpus:
            attempt.stopping = job.reason  # it was wished away in this very turn
        found = outcome.judge(attempt, status)
        attempt.is_over = True
        attempt.started_at_s, attempt.ended_at_s = status.started_at_s, status.ended_at_s
        attempt.exit_code, attempt.energy_j = status.exit_code, status.energy_j
        attempt.reason = found.reason if found.verdict is Verdict.LEFT else status.reason
        self._ledger.touch_attempt(attempt)
        del self.attempts[attempt.key]
        if job is None:
            return
        if status.energy_j is not None:
            job.energy_j = (job.energy_j or 0.0) + status.energy_j
        job.phase = "starting" if job.gpus and found.verdict is Verdict.LEFT else ""
        self._ledger.touch(job)
        if not job.state.is_over:
            self._conclude(job, attempt, status, found)

    def _conclude(self, job: LiveJob, attempt: Attempt, status: AttemptStatus, found: outcome.Outcome) -> None:
        self._take_progress(job, status)
        job.started_at_s = job.started_at_s if job.started_at_s is not None else status.started_at_s
        if found.verdict is Verdict.LEFT:
            return
        if found.verdict is not Verdict.RETURNED:
            job.exit_code = status.exit_code
        if found.verdict is Verdict.FINISHED:
            self._take_off(job)
            self._settle(job, State.FINISHED, found.reason, status.ended_at_s)
        elif found.verdict is Verdict.RETURNED:
            self._desk.returned(job)
            self.set(job, State.WAITING, found.reason)
        else:
            self._fail(job, attempt, status, found.reason)

    def _fail(self, job: LiveJob, attempt: Attempt, status: AttemptStatus, reason: str) -> None:
        job.detail = self._tail(attempt.key) or status.detail
        if outcome.note_failure(job, status):
            self._desk.withdrawn(job)
            self.aside[job.job.id] = job
            wait_s = outcome.back_off_s(job.failures)
            job.due_s = self._desk.view.now_s + wait_s
            about = f"{reason} {status.exit_code}, tries again in {wait_s:g} s"
            self.set(job, State.BACKING_OFF, reason, about)
        else:
            self._take_off(job)
            self._settle(job, State.PARKED, reason, status.ended_at_s)

    def _take_progress(self, job: LiveJob, status: AttemptStatus) -> None:
        if status.progress is None or status.progress == job.progress:
            return
        before = self._observed.done(job)
        job.progress = status.progress
        self._ledger.touch(job)
        if not job.gpus:
            return
        self._observed.note_alone(job)
        if self._observed.done(job) > before:
            self._desk.turned(job)

    def _settled(self, job_id: int) -> LiveJob | None:
        """A job that is over, as it was left; what is not on the disk yet counts."""
        row = None
        touched = self._ledger.touched(job_id)
        if touched is None:
            row = self._store.job_row(job_id)
        return touched if row is None else LiveJob.from_row(row)

    # ---- by time, and by policy ----

    def resume_due(self, now_s: float) -> None:
        """Who has backed off long enough waits again."""
        for job in [j for j in self.aside.values() if j.due_s is not None and j.due_s <= now_s]:
            self._let_wait(job, "retry")

    def next_s(self) -> float:
        """When somebody has."""
        return min((j.due_s for j in self.aside.values() if j.due_s is not None), default=NEVER)

    def set(self, job: LiveJob, state: State, reason: str, about: str = "") -> None:
        """It is in another state, or in the same for another reason."""
        job.state, job.reason = state, reason
        if state is not State.RUNNING:
            job.phase = "stopping" if (job.job.id, job.attempt) in self.attempts else ""
        self._ledger.touch(job)
        what = reason if reason in _PLACED else str(state)
        self._ledger.tell(EventRow(self._clock.wall_s(), what, job.job.id, "", about or reason))

    def _settle(self, job: LiveJob, state: State, reason: str, at_s: float | None = None) -> None:
        """For good."""
        job.ended_at_s = at_s if at_s is not None else self._clock.wall_s()
        job.due_s = None
        self.set(job, state, reason)

    def _take_off(self, job: LiveJob) -> None:
        """Out of the policy's sight."""
        if job.job.id in self._desk.jobs:
            self._desk.ended(job)
        self.aside.pop(job.job.id, None)

    def _let_wait(self, job: LiveJob, reason: str) -> None:
        self.aside.pop(job.job.id, None)
        job.due_s = None
        self.set(job, State.WAITING, reason)
        self._desk.arrived(job)
