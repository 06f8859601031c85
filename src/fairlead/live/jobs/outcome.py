"""What the end of an attempt means for its job. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fairlead.live.engines.engine import AttemptState, AttemptStatus, Progress, StoppedBy
from fairlead.live.jobs.job import LiveJob
from fairlead.live.storage.store import Attempt
from fairlead.node.stopping import OVER_QUOTA

HOPELESS = frozenset({"command-not-found", "no-such-folder", "not-permitted", "no-such-user", "cannot-execute"})
"""Starts that fail the same way every time."""
OWN_FAULTS = frozenset({OVER_QUOTA})
"""Evictions that a job has brought on itself: they count as failures, with the same wait before the next try."""
_BACK_OFF_S, _MOST_BACK_OFF_S = 10.0, 600.0
_LONG_RUN_S = 3600.0
"""Who ran this long before it failed has not been failing all the time."""
_SHORT_RUN_S = 60.0
"""A service that ends so soon after its start has not come up."""
_STOPS_AT_ONCE = 2
"""After so many stops in a row without progress the next ones are waited for a while."""


class Verdict(enum.Enum):
    """What becomes of the job."""

    FINISHED = enum.auto()
    STOPPED = enum.auto()
    """By us: its place in the queue, or elsewhere, is decided already."""
    RETURNED = enum.auto()
    """It lost its GPUs without fault of its own and waits again."""
    INTERRUPTED = enum.auto()
    """The same by somebody whom we don't know: it goes on, later each time if that is all that ever happens to it."""
    ENDED_EARLY = enum.auto()
    """It ended with 0, but not where it said that its end is: maybe a stop that we did not see."""
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with its reason."""

    verdict: Verdict
    reason: str


def judge(attempt: Attempt, status: AttemptStatus, job: LiveJob | None = None) -> Outcome:
    """What the end of an attempt means.

    Status 0 is the end of the job only where nobody stopped it, and where it has come as far as it said it would.
    Whoever says that all is done (`job.finished()`, or its last epoch) and ends with 0 has finished in any case.
    Whether a stop came before the end is for the node to say, which saw both: no clocks are compared.
    """
    progress = status.progress or (None if job is None else job.progress)
    is_clean = status.state is AttemptState.ENDED and status.exit_code == 0
    ends_here = not status.stopped_by and not _is_open(progress, job)
    if is_clean and (ends_here or (progress is not None and progress.has_finished)):
        return Outcome(Verdict.FINISHED, "exited")
    if attempt.stopping:
        return Outcome(Verdict.STOPPED, attempt.stopping)
    if status.evicted in OWN_FAULTS:
        return Outcome(Verdict.FAILED, status.evicted)
    if status.evicted:
        return Outcome(Verdict.RETURNED, f"evicted-{status.evicted}")
    match status.stopped_by:
        case StoppedBy.FAIRLEAD:
            return Outcome(Verdict.RETURNED, "stopped")
        case StoppedBy.MACHINE:
            is_lost = status.state is AttemptState.LOST
            return Outcome(Verdict.INTERRUPTED, (is_lost and status.reason) or "machine-stopped")
        case StoppedBy.SIGNAL:
            return Outcome(Verdict.INTERRUPTED, "interrupted")
    if is_clean:
        return Outcome(Verdict.ENDED_EARLY, "ended-early")
    return Outcome(Verdict.FAILED, status.reason or "failed")


def _is_open(progress: Progress | None, job: LiveJob | None) -> bool:
    """Whether there is more to come by its own words: epochs, or, of a service, requests without end."""
    if job is not None and job.job.kind == "service":
        return True
    return progress is not None and progress.epochs is not None and progress.epochs_done < progress.epochs


def note_failure(job: LiveJob, status: AttemptStatus) -> bool:
    """Count it; whether the job may try again. Epochs done since the last one, or a long run, forgive what was before.

    Who begins from nothing each time and fails at the same epoch has not got on.
    """
    epochs = _epochs_done(job)
    advanced = epochs > job.failed_epochs
    job.failures = 1 if advanced or (status.ran_s or 0.0) >= _LONG_RUN_S else job.failures + 1
    job.failed_epochs = max(epochs, job.failed_epochs)
    return status.reason not in HOPELESS and job.failures <= job.request.retries


def note_interruption(job: LiveJob, status: AttemptStatus) -> float:
    """Count it; how long the job stays away. It is never given up for this, but who is stopped whenever it starts, by
    itself for all we know, must not start all the time.
    """
    job.stops = 1 if _has_advanced(job, status) else job.stops + 1
    return 0.0 if job.stops <= _STOPS_AT_ONCE else back_off_s(job.stops - _STOPS_AT_ONCE)


def note_early_end(job: LiveJob, status: AttemptStatus) -> bool:
    """Whether the job goes on. The second time that it ends at the same epoch it means it, and so does a service that
    ends twice as soon as it has come up.
    """
    first = 0 if job.job.kind == "service" else 1
    job.early_ends = first if _has_advanced(job, status) else job.early_ends + 1
    return job.early_ends <= 1


def _has_advanced(job: LiveJob, status: AttemptStatus) -> bool:
    """Since it was last stopped, or ended early: by epochs, or by serving for a while."""
    epochs, ran_s = _epochs_done(job), status.ran_s or 0.0
    before, job.stopped_epochs = job.stopped_epochs, max(epochs, job.stopped_epochs)
    return epochs > before or ran_s >= (_SHORT_RUN_S if job.job.kind == "service" else _LONG_RUN_S)


def _epochs_done(job: LiveJob) -> int:
    return 0 if job.progress is None else job.progress.epochs_done


def back_off_s(failures: int) -> float:
    """How long a job waits after so many failures: twice as long each time, up to a limit."""
    return float(min(_BACK_OFF_S * 2.0 ** (failures - 1), _MOST_BACK_OFF_S))
