"""What has changed and is not on the disk yet, and the log of what happened."""

from __future__ import annotations

import logging
from typing import Any

from fairlead.live.jobs.job import LiveJob
from fairlead.live.storage.store import Attempt, EventRow, Store
from fairlead.node.identity import AttemptId

log = logging.getLogger("fairlead")


class PendingWrites:
    """Gathers changes, and writes them all at once; what could not be written stays to be written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: dict[int, LiveJob] = {}
        self._attempts: dict[AttemptId, Attempt] = {}
        self._events: list[EventRow] = []
        self._facts: dict[str, Any] = {}
        self._granted: list[tuple[int, str]] = []

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""
        return any((self._jobs, self._attempts, self._events, self._facts, self._granted))

    def touch(self, job: LiveJob) -> None:
        """Save this job with the next write."""
        self._jobs[job.job.id] = job

    def touch_attempt(self, attempt: Attempt) -> None:
        """It is new, or has changed."""
        self._attempts[attempt.id] = attempt

    def touched(self, job_id: int) -> LiveJob | None:
        """A job that has changed since the last save."""
        return self._jobs.get(job_id)

    def know(self, name: str, value: Any) -> None:
        """A fact, in the place of the one that had this name."""
        self._facts[name] = value

    def grant(self, job_id: int, wish: str) -> None:
        """What its user wished has been seen to."""
        self._granted.append((job_id, wish))

    def tell(self, event: EventRow) -> None:
        """Something happened: for the table of events, and for whoever reads the log."""
        self._events.append(event)
        who = f"job {event.job_id} " if event.job_id is not None else f"node {event.node} " if event.node else ""
        log.info("%s%s%s", who, event.what, f": {event.about}" if event.about else "")

    def events_of(self, job_id: int) -> list[EventRow]:
        """What has happened to a job since the last save."""
        return [event for event in self._events if event.job_id == job_id]

    def save(self) -> None:
        """All of it, or a `StoreError` and it is all still here."""
        if self.has_news:
            self._store.save(
                self._jobs.values(), self._attempts.values(), self._events, self._facts, self._granted
            ).result()
            for one in (self._jobs, self._attempts, self._events, self._facts, self._granted):
                one.clear()
