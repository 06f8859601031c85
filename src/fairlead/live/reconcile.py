"""Between what is wanted and what is true: which attempts to start and which to stop. Pure.

The rules, from which safety follows whatever was interrupted before:

1. A job has at most one attempt that is not over. The next one is made only when that is over.
2. An attempt may stay if its job wants these very GPUs in this very way; else it is asked to leave.
3. A job starts only when every attempt on its GPUs may stay and shares them: who is to leave has left.
4. An attempt that is to leave and that nobody knows of is stopped all the same, so that it can never start late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.live.engine import Key
from fairlead.live.livejob import LiveJob
from fairlead.live.store import Attempt


@dataclass(slots=True)
class Steps:
    """What to do next."""

    begin: list[LiveJob] = field(default_factory=list)
    """Jobs to make an attempt for, on the GPUs that they have in the view."""
    leave: list[Attempt] = field(default_factory=list)
    """Attempts that are no longer wanted, and have not been asked to leave yet."""


def may_stay(attempt: Attempt, job: LiveJob | None) -> bool:
    """Whether its job wants it as it is."""
    if attempt.stopping or job is None or not job.gpus or job.attempt != attempt.attempt:
        return False
    return (job.gpus, job.shared, job.sm_share) == (attempt.gpus, attempt.shared, attempt.sm_share)


def steps(running: Iterable[LiveJob], attempts: Mapping[Key, Attempt], jobs: Mapping[int, LiveJob]) -> Steps:
    """`running` are the jobs that have GPUs in the view, `attempts` those that are not over."""
    found = Steps()
    leaving: set[int] = set()
    """GPUs that somebody has still to leave."""
    busy: set[int] = set()
    """Jobs with an attempt that is not over."""
    for attempt in attempts.values():
        busy.add(attempt.job_id)
        if not may_stay(attempt, jobs.get(attempt.job_id)):
            leaving.update(attempt.gpus)
            if not attempt.stopping:
                found.leave.append(attempt)
    found.begin = [job for job in running if job.job.id not in busy and leaving.isdisjoint(job.gpus)]
    return found
