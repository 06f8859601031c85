"""What the end of an attempt means for its job. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fairlead.live.engine import AttemptState, AttemptStatus
from fairlead.live.livejob import LiveJob
from fairlead.live.store import Attempt

HOPELESS = frozenset({"command-not-found", "no-such-folder", "not-permitted", "no-such-user", "cannot-execute"})
"""Starts that fail the same way every time."""
_BACK_OFF_S, _MOST_BACK_OFF_S = 10.0, 600.0
_LONG_RUN_S = 3600.0
"""Who ran this long before it failed has not been failing all the time."""


class Verdict(enum.Enum):
    """What becomes of the job."""

    FINISHED = enum.auto()
    LEFT = enum.auto()
    """As it was asked to: its place in the queue, or elsewhere, is decided already."""
    RETURNED = enum.auto()
    """It lost its GPUs without fault of its own and waits again."""
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with its reason."""

    verdict: Verdict
    reason: str


def judge(attempt: Attempt, status: AttemptStatus) -> Outcome:
    """Status 0 is the end of the job, unless it was asked to leave: then it may have stopped half way, with 0 as well.

    Who was asked to leave and says that all is done (`job.finished()`, or its last epoch), or was through before it
    was asked, has finished all the same.
    """
    if status.state is AttemptState.ENDED and status.exit_code == 0:
        asked = attempt.stopping or status.evicted
        through = status.progress is not None and status.progress.has_finished
        asked_s, ended_s = status.stop_requested_at_s, status.ended_at_s
        before = asked_s is None or (ended_s is not None and ended_s < asked_s)
        if not asked or through or before:
            return Outcome(Verdict.FINISHED, "exited")
    if attempt.stopping:
        return Outcome(Verdict.LEFT, attempt.stopping)
    if status.evicted:
        return Outcome(Verdict.RETURNED, f"evicted-{status.evicted}")
    if status.state is AttemptState.LOST:
        return Outcome(Verdict.FAILED, status.reason or "lost")
    return Outcome(Verdict.FAILED, status.reason or "failed")


def note_failure(job: LiveJob, status: AttemptStatus) -> bool:
    """Count it; whether the job may try again. Epochs done since the last one, or a long run, forgive what was before.

    Who begins from nothing each time and fails at the same epoch has not got on.
    """
    ran_s = (status.ended_at_s or 0.0) - (status.started_at_s or 0.0)
    epochs = 0 if job.progress is None else job.progress.epochs_done
    advanced = epochs > job.failed_epochs
    job.failures = 1 if advanced or ran_s >= _LONG_RUN_S else job.failures + 1
    job.failed_epochs = max(epochs, job.failed_epochs)
    return status.reason not in HOPELESS and job.failures <= job.request.retries


def back_off_s(failures: int) -> float:
    """Longer each time."""
    return float(min(_BACK_OFF_S * 2.0 ** (failures - 1), _MOST_BACK_OFF_S))
