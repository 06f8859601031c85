"""A job in the controller: what a policy sees, plus what its user asked for and what became of it."""

from __future__ import annotations

import enum
import json
import sqlite3
from typing import Any

from fairlead.live.engine import Progress
from fairlead.live.request import JobRequest
from fairlead.model.job import Job
from fairlead.policy.view import JobState


class State(enum.StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    HELD = "held"
    """By its user; does not wait for GPUs."""
    BACKING_OFF = "backing-off"
    """It failed, and will wait again in a while."""
    RUNNING = "running"
    """It has GPUs. `phase` tells whether it is starting or stopping there."""
    FINISHED = "finished"
    PARKED = "parked"
    """It kept failing; `fairlead release` lets it try again."""
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether it is no concern of the policy any more."""
        return self in (State.FINISHED, State.PARKED, State.CANCELLED)


_SERVICE_FIELDS = (
    "since_s", "banked_gpu_s", "starts", "first_width", "taken_gpus", "left_width", "alone_epoch_s", "failed_epochs",
)  # fmt: skip
"""The service that a job has had, and how far it came with it; saved together."""
COLUMNS = (
    "state", "phase", "reason", "detail", "attempt", "failures", "due_s", "gpus", "shared", "sm_share",
    "service", "progress", "energy_j", "started_at_s", "ended_at_s", "exit_code",
)  # fmt: skip
"""Of the table of jobs, those that the controller changes. Wishes are written by users, and granted one by one."""


class LiveJob(JobState):
    """A job whose life is on the disk."""

    __slots__ = (
        "alone_epoch_s", "attempt", "detail", "due_s", "ended_at_s", "energy_j", "exit_code", "failed_epochs",
        "failures", "phase", "progress", "reason", "request", "started_at_s", "state", "submitted_at_s", "user",
    )  # fmt: skip

    def __init__(self, job: Job, request: JobRequest, submitted_at_s: float) -> None:
        super().__init__(job)
        self.request = request
        self.user = job.user
        self.submitted_at_s = submitted_at_s
        self.state = State.WAITING
        self.phase = ""
        self.reason = ""
        """Why it is in this state, as a short word."""
        self.detail = ""
        """The same for people: the last lines of its log, say."""
        self.attempt = 0
        """The last attempt that was given out."""
        self.failures = 0
        """In a row, without progress."""
        self.failed_epochs = 0
        """The most epochs that were done when it failed."""
        self.due_s: float | None = None
        """When it waits again, while it backs off."""
        self.progress: Progress | None = None
        self.alone_epoch_s: float | None = None
        """How long an epoch takes alone on the GPUs asked for, measured."""
        self.energy_j: float | None = None
        """Of attempts that are over."""
        self.started_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.exit_code: int | None = None

    def row(self) -> tuple[Any, ...]:
        """The values of `COLUMNS`."""
        return (
            str(self.state), self.phase, self.reason, self.detail, self.attempt, self.failures, self.due_s,
            json.dumps(self.gpus), int(self.shared), self.sm_share,
            json.dumps({name: getattr(self, name) for name in _SERVICE_FIELDS}),
            None if self.progress is None else json.dumps(as_dict(self.progress)),
            self.energy_j, self.started_at_s, self.ended_at_s, self.exit_code,
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> LiveJob:
        """As it was saved, but on no GPUs: `placement_of` tells which it had, for the view to put it there."""
        request = JobRequest.model_validate_json(row["request"])
        made = cls(request.job(row["id"], row["user"], row["submit_s"]), request, row["submitted_at_s"])
        made.state = State(row["state"])
        plain = ("phase", "reason", "detail", "attempt", "failures", "due_s", "energy_j", "started_at_s", "ended_at_s")
        for name in (*plain, "exit_code"):
            setattr(made, name, row[name])
        made.recall_service(json.loads(row["service"]))
        if row["progress"] is not None:
            made.progress = Progress(**json.loads(row["progress"]))
        return made

    def recall_service(self, saved: dict[str, Any]) -> None:
        """What it had had when it was saved."""
        for name in _SERVICE_FIELDS:
            if name in saved:
                setattr(self, name, saved[name])


def placement_of(row: sqlite3.Row) -> tuple[int, ...]:
    """The GPUs that it was given when it was saved."""
    return tuple(json.loads(row["gpus"]))


def as_dict(progress: Progress) -> dict[str, Any]:
    """What is known."""
    return {name: value for name in Progress.__slots__ if (value := getattr(progress, name)) is not None}
