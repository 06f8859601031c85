"""What becomes of jobs: they are admitted, held, cancelled, end, fail, try again. The rules; the loop is elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from fairlead.live.control.clock import Clock
from fairlead.live.control.observations import Observations
from fairlead.live.engines.engine import AttemptState, AttemptStatus
from fairlead.live.jobs import outcome
from fairlead.live.jobs.deadlines import Deadlines
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.outcome import Verdict
from fairlead.live.jobs.states import Cause, State
from fairlead.live.storage.pending_writes import PendingWrites
from fairlead.live.storage.store import Attempt, EventRow, Store
from fairlead.model.catalogue import Catalogue
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.policy.driver import Driver
from fairlead.policy.working_job import NEVER

_PLACED = ("placed", "moved", "resized")
_STORY = 1000
"""Events of a job that an error tells at most."""


class Lifecycle:
    """All jobs that are not over."""

    def __init__(
        self,
        driver: Driver[LiveJob],
        pending_writes: PendingWrites,
        store: Store,
        clock: Clock,
        observations: Observations,
        tail: Callable[[AttemptId, Placement], str],
        catalogue: Catalogue,
    ) -> None:
        self._driver, self._pending_writes, self._store, self._clock, self._observations = (
            driver,
            pending_writes,
            store,
            clock,
            observations,
        )
        self._catalogue, self._tail = catalogue, tail
        """The last lines that an attempt wrote."""
        self.deadlines = Deadlines(pending_writes, clock, observations)
        self.aside: dict[int, LiveJob] = {}
        """Held, or backing off."""
        self.attempts: dict[AttemptId, Attempt] = {}
        """Those that are not over."""

    def get(self, job_id: int) -> LiveJob | None:
        """One that is not over."""
        return self._driver.jobs.get(job_id) or self.aside.get(job_id)

    def read(self, row: sqlite3.Row) -> LiveJob:
        """A job as it was saved, with the profile that its name stands for here."""
        return LiveJob.from_row(row, self._catalogue)

    # ---- by its user ----

    def admit(self, job: LiveJob) -> None:
        """Let a new job wait for GPUs, or keep it aside while it is held."""
        if self.get(job.job.id) is None:
            if job.state is State.HELD:
                self.aside[job.job.id] = job
            else:
                self._driver.arrived(job)

    def grant(self, job_id: int, wish: str) -> None:
        """Cancel, hold or release; what is over, or as it is wished already, stays as it is."""
        self._pending_writes.grant(job_id, wish)
        job = self.get(job_id)
        if job is None and wish == "release":
            job = self._parked(job_id)
        if job is None:
            return
        if wish == "cancel":
            self._take_off(job)
            self._settle(job, Cause.CANCELLED, "cancelled")
        elif wish == "hold" and job.state is not State.HELD:
            if job_id in self._driver.jobs:
                self._driver.withdrawn(job)
                self.aside[job_id] = job
            job.due_s = None
            self.change(job, Cause.HELD, "held")
        elif wish == "release" and job_id not in self._driver.jobs:
            job.failures = job.stops = job.early_ends = 0
            self._let_wait(job, Cause.RELEASED, "released")

    def _parked(self, job_id: int) -> LiveJob | None:
        job = self._settled(job_id)
        if job is None or job.state is not State.PARKED:
            return None
        job.ended_at_s = job.over_up_s = job.exit_code = None
        return job

    # ---- by its attempts ----

    def alive(self, attempt: Attempt, status: AttemptStatus) -> None:
        """It runs, and may have told something."""
        if attempt.started_at_s is None and status.started_at_s is not None:
            attempt.started_at_s = status.started_at_s
            self._pending_writes.touch_attempt(attempt)
        job = self._driver.jobs.get(attempt.id.job_id)
        if job is None or job.attempt != attempt.id:
            return
        phase = "stopping" if attempt.stopping else "starting" if status.state is AttemptState.STARTING else ""
        started_at_s = job.started_at_s if job.started_at_s is not None else status.started_at_s
        if (job.phase, job.started_at_s) != (phase, started_at_s):
            job.phase, job.started_at_s = phase, started_at_s
            self._pending_writes.touch(job)
        self._take_progress(job, status)

    def over(self, attempt: Attempt, status: AttemptStatus) -> None:
        """Nothing of it runs any more: write it down, and what it means for the job."""
        job = self.get(attempt.id.job_id) or self._settled(attempt.id.job_id)
        if not attempt.stopping and job is not None and not job.gpus:
            attempt.stopping = job.reason  # it was wished away in this very turn
        found = outcome.judge(attempt, status, job)
        attempt.is_over = True
        attempt.started_at_s, attempt.ended_at_s = status.started_at_s, status.ended_at_s
        attempt.exit_code, attempt.energy_j = status.exit_code, status.energy_j
        attempt.reason = found.reason if found.verdict is not Verdict.FINISHED else status.reason
        self._pending_writes.touch_attempt(attempt)
        del self.attempts[attempt.id]
        if job is None:
            return
        if status.energy_j is not None:
            job.energy_j = (job.energy_j or 0.0) + status.energy_j
        job.phase = "starting" if job.gpus and found.verdict is Verdict.STOPPED else ""
        self._pending_writes.touch(job)
        if not job.state.is_over:
            self._conclude(job, attempt, status, found)

    def _conclude(self, job: LiveJob, attempt: Attempt, status: AttemptStatus, found: outcome.Outcome) -> None:
        self._take_progress(job, status)
        job.started_at_s = job.started_at_s if job.started_at_s is not None else status.started_at_s
        if found.verdict is Verdict.STOPPED:
            return
        verdict, reason, code = found.verdict, found.reason, status.exit_code
        if verdict is Verdict.ENDED_EARLY and not outcome.note_early_end(job, status):
            verdict, reason = Verdict.FINISHED, "exited"
        wait_s = outcome.note_interruption(job, status) if verdict is Verdict.INTERRUPTED else 0.0
        if verdict is Verdict.FINISHED:
            job.exit_code = code
            self._take_off(job)
            self._settle(job, Cause.FINISHED, reason, status.ended_at_s)
            self.deadlines.finished(job, self._ended_s(status))
        elif verdict is Verdict.FAILED:
            job.exit_code = code
            self._fail(job, attempt, status, reason)
        elif wait_s > 0.0:
            self._back_off(job, reason, wait_s, f"{reason}, goes on in {wait_s:g} s")
        else:
            self._driver.returned(job)
            self.change(job, Cause.RETURNED, reason)

    def _fail(self, job: LiveJob, attempt: Attempt, status: AttemptStatus, reason: str) -> None:
        job.detail = self._tail(attempt.id, attempt.gpus) or status.detail
        if outcome.note_failure(job, status):
            wait_s = outcome.back_off_s(job.failures)
            self._back_off(job, reason, wait_s, f"{reason} {status.exit_code}, tries again in {wait_s:g} s")
        else:
            self._take_off(job)
            self._settle(job, Cause.GAVE_UP, reason, status.ended_at_s)

    def _back_off(self, job: LiveJob, reason: str, wait_s: float, about: str) -> None:
        self._driver.withdrawn(job)
        self.aside[job.job.id] = job
        job.due_s = self._driver.view.now_s + wait_s
        self.change(job, Cause.FAILED, reason, about)

    def _take_progress(self, job: LiveJob, status: AttemptStatus) -> None:
        if status.progress is None or status.progress == job.progress:
            return
        before, told, tells = self._observations.done(job), job.progress, status.progress
        job.progress = tells
        self._pending_writes.touch(job)
        if told is None or told.pace != tells.pace:
            job.told_s = self._driver.view.now_s
            self._observations.reported(job)
        if job.gpus and self._observations.done(job) > before:
            self._driver.turned(job)

    def _settled(self, job_id: int) -> LiveJob | None:
        """A job that is over, as it was left; what is not on the disk yet counts."""
        row = None
        touched = self._pending_writes.touched(job_id)
        if touched is None:
            row = self._store.job_row(job_id)
        return touched if row is None else self.read(row)

    # ---- by time, and by policy ----

    def resume_due(self, now_s: float) -> None:
        """Who has backed off long enough waits again."""
        for job in [j for j in self.aside.values() if j.due_s is not None and j.due_s <= now_s]:
            self._let_wait(job, Cause.RETRIED, "retry")

    def watch_deadlines(self, now_s: float) -> None:
        """Tell who has missed its deadline, and who will."""
        self.deadlines.look((*self._driver.jobs.values(), *self.aside.values()), now_s)

    def next_s(self) -> float:
        """When the next job has backed off long enough."""
        return min((j.due_s for j in self.aside.values() if j.due_s is not None), default=NEVER)

    def change(self, job: LiveJob, cause: Cause, reason: str, about: str = "") -> None:
        """Something happened to it, for this reason: what that makes of it, by the table of states."""
        job.change(cause, lambda: self._story(job))
        job.reason = reason
        if job.state is not State.RUNNING:
            job.phase = "stopping" if job.attempt in self.attempts else ""
        self._pending_writes.touch(job)
        what = reason if reason in _PLACED else str(job.state)
        self._pending_writes.tell(EventRow(self._clock.wall_s(), what, job.job.id, "", about or reason))

    def _story(self, job: LiveJob) -> list[str]:
        """All that is known to have happened to it, written or not."""
        told = [(row["at_s"], row["what"], row["about"]) for row in self._store.events(0, _STORY, job_id=job.job.id)]
        told += [(event.at_s, event.what, event.about) for event in self._pending_writes.events_of(job.job.id)]
        tried = [one for one in self.attempts.values() if one.id.job_id == job.job.id]
        return [
            *(f"{at_s:.3f} {what}{': ' * bool(about)}{about}" for at_s, what, about in told),
            *(f"attempt {one.id} on GPUs {one.gpus}, {one.stopping or 'to stay'}" for one in tried),
            f"on GPUs {job.gpus}, {job.phase or 'no phase'}, last attempt {job.attempt}, reason {job.reason!r}",
        ]

    def _settle(self, job: LiveJob, cause: Cause, reason: str, at_s: float | None = None) -> None:
        """Note that a job is over for good, and when."""
        job.ended_at_s = at_s if at_s is not None else self._clock.wall_s()
        job.over_up_s = self._clock.up_s()
        job.due_s = None
        self.change(job, cause, reason)

    def _ended_s(self, status: AttemptStatus) -> float:
        """When it ended, on the scheduler's clock; by the time of day only where its node knows nothing better."""
        if status.ended_ago_s is not None:
            return self._driver.view.now_s - status.ended_ago_s
        return self._clock.now_s() if status.ended_at_s is None else self._clock.at_s(status.ended_at_s)

    def _take_off(self, job: LiveJob) -> None:
        """Out of the policy's sight."""
        if job.job.id in self._driver.jobs:
            self._driver.ended(job)
        self.aside.pop(job.job.id, None)

    def _let_wait(self, job: LiveJob, cause: Cause, reason: str) -> None:
        self.aside.pop(job.job.id, None)
        job.due_s = None
        self.change(job, cause, reason)
        self._driver.arrived(job)
