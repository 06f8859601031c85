"""A job in the controller: what a policy sees, plus what its user asked for and what became of it."""

from __future__ import annotations

import enum
import json
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from fairlead.live.engines.engine import Progress
from fairlead.live.jobs import states
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import Cause, State
from fairlead.model.catalogue import BUILT_IN, Catalogue
from fairlead.model.job import Job
from fairlead.node.identity import AttemptId
from fairlead.policy.working_job import WorkingJob


class DeadlineState(enum.StrEnum):
    """How a job stands to its deadline."""

    NONE = ""
    """It has none, or nobody has looked yet."""
    ON_TIME = "on-time"
    AT_RISK = "at-risk"
    """It has not passed, but will have when the job ends, by what is known now."""
    MISSED = "missed"
    MET = "met"


_SERVICE_FIELDS = (
    "since_s", "banked_gpu_s", "starts", "first_width", "taken_gpus", "left_width", "alone_epoch_s", "failed_epochs",
    "told_s", "stops", "stopped_epochs", "early_ends", "duration_s", "left_s", "progress_from_s", "epoch_s",
    "deadline_state", "was_at_risk",
)  # fmt: skip
"""The service that a job has had, and how far it came with it; saved together."""
COLUMNS = (
    "state", "phase", "reason", "detail", "attempt", "epoch", "failures", "due_s", "gpus", "shared", "sm_share",
    "service", "progress", "energy_j", "started_at_s", "ended_at_s", "over_up_s", "exit_code",
)  # fmt: skip
"""Of the table of jobs, those that the controller changes. Wishes are written by users, and granted one by one."""


class LiveJob(WorkingJob):
    """A job whose life is on the disk. What is left of its work is what is believed: as estimated, as reported."""

    __slots__ = (
        "_state",
        "alone_epoch_s",
        "attempt",
        "deadline_state",
        "detail",
        "due_s",
        "early_ends",
        "ended_at_s",
        "energy_j",
        "exit_code",
        "failed_epochs",
        "failures",
        "over_up_s",
        "phase",
        "progress",
        "reason",
        "request",
        "started_at_s",
        "stopped_epochs",
        "stops",
        "submitted_at_s",
        "told_s",
        "user",
        "was_at_risk",
    )  # fmt: skip

    def __init__(self, job: Job, request: JobRequest, submitted_at_s: float) -> None:
        # Without an estimate its work counts from 0 down: what is done is known, what is left is not.
        super().__init__(job, request.estimate_s or 0.0)
        self.request = request.light()
        """What it needs and is worth; how it is started is on the disk."""
        self.user = job.user
        self.submitted_at_s = submitted_at_s
        self._state = states.first(request.hold)
        self.phase = ""
        self.reason = ""
        """Why it is in this state, as a short word."""
        self.detail = ""
        """The same for people: the last lines of its log, say."""
        self.attempt = AttemptId(job.id, 0)
        """The last attempt that was given out; number 0 before the first."""
        self.failures = 0
        """In a row, without progress."""
        self.failed_epochs = 0
        """The most epochs that were done when it failed."""
        self.stops = 0
        """By somebody else than us, in a row, without progress."""
        self.early_ends = 0
        """With status 0 before its own last epoch, or of a service; likewise."""
        self.stopped_epochs = 0
        """The most epochs that were done at one of these."""
        self.due_s: float | None = None
        """When it waits again, while it backs off."""
        self.progress: Progress | None = None
        self.told_s: float | None = None
        """When its progress was last heard of, on the scheduler's clock."""
        self.alone_epoch_s: float | None = None
        """How long an epoch takes alone on the GPUs asked for, measured."""
        self.deadline_state = DeadlineState.NONE
        self.was_at_risk = False
        """Whether anybody was told that it may miss its deadline."""
        self.energy_j: float | None = None
        """Of attempts that are over."""
        self.started_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.over_up_s: float | None = None
        """The same by the clock that counts how old logs are."""
        self.exit_code: int | None = None

    @property
    def state(self) -> State:
        """Where it stands; `change` changes it."""
        return self._state

    def change(self, cause: Cause, story: Callable[[], Iterable[str]] = tuple) -> None:
        """Something happened to it; an `IllegalTransitionError` with its story where that cannot be."""
        self._state = states.after(self.job.id, self._state, cause, story)

    def row(self) -> tuple[Any, ...]:
        """What is saved of it: the values of `COLUMNS`."""
        return (
            str(self.state), self.phase, self.reason, self.detail, self.attempt.attempt, self.attempt.epoch,
            self.failures, self.due_s, json.dumps(self.gpus), int(self.shared), self.sm_share,
            json.dumps({name: getattr(self, name) for name in _SERVICE_FIELDS}),
            None if self.progress is None else json.dumps(as_dict(self.progress)),
            self.energy_j, self.started_at_s, self.ended_at_s, self.over_up_s, self.exit_code,
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: sqlite3.Row, catalogue: Catalogue = BUILT_IN) -> LiveJob:
        """As it was saved, but on no GPUs: `placement_of` tells which it had, for the view to put it there."""
        request = JobRequest.model_validate_json(row["request"])
        job = request.job(row["id"], row["user"], row["submit_s"], catalogue)
        made = cls(job, request, row["submitted_at_s"])
        made._state = State(row["state"])
        made.attempt = AttemptId(row["id"], row["attempt"], row["epoch"])
        plain = ("phase", "reason", "detail", "failures", "due_s", "energy_j", "started_at_s", "ended_at_s")
        for name in (*plain, "over_up_s", "exit_code"):
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
        if self.starts and "left_s" not in saved:  # by a controller that did not keep it
            self.left_s -= self.banked_gpu_s / (self.job.gpus * self.job.gpu_frac)
            self.progress_from_s = self.since_s
        self.deadline_state = DeadlineState(self.deadline_state)


def placement_of(row: sqlite3.Row) -> tuple[int, ...]:
    """The GPUs that it was given when it was saved."""
    return tuple(json.loads(row["gpus"]))


def as_dict(progress: Progress) -> dict[str, Any]:
    """The fields of a progress that are known."""
    return {name: value for name in Progress.__slots__ if (value := getattr(progress, name)) is not None}
