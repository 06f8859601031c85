"""Between what is wanted and what is true: which attempts to start and which to stop. Pure.

The rules, from which safety follows whatever was interrupted before:

1. A job has at most one attempt that is not over. The next one is made only when that is over.
2. An attempt may stay if its job wants these very GPUs in this very way; else it is stopped.
3. A job starts only when every attempt on its GPUs may stay and shares them: what was stopped has ended. Of an attempt
   on several nodes, each part by itself: one that does not answer keeps nobody else's GPUs.
4. An attempt of which only a node knows (a stray) is stopped: its job and its GPUs wait for its end.
5. An attempt that is to be stopped and that nobody knows of is stopped all the same, so that it can never start late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from fairlead.live.engines.engine import Stray
from fairlead.live.jobs.job import LiveJob
from fairlead.live.storage.store import Attempt
from fairlead.node.identity import AttemptId


@dataclass(slots=True)
class Steps:
    """What brings the attempts nearer to what the view wants."""

    begin: list[LiveJob] = field(default_factory=list)
    """Jobs to make an attempt for, on the GPUs that they have in the view."""
    stop: list[Attempt] = field(default_factory=list)
    """Attempts that are no longer wanted, and have not been stopped yet."""


def may_stay(attempt: Attempt, job: LiveJob | None) -> bool:
    """Whether its job wants it as it is."""
    if attempt.stopping or job is None or not job.gpus or job.attempt != attempt.id:
        return False
    return (job.gpus, job.shared, job.sm_share) == (attempt.gpus, attempt.shared, attempt.sm_share)


def steps(
    running: Iterable[LiveJob],
    attempts: Mapping[AttemptId, Attempt],
    jobs: Mapping[int, LiveJob],
    freed: Mapping[AttemptId, AbstractSet[int]] = MappingProxyType({}),
    strays: Iterable[Stray] = (),
) -> Steps:
    """`running` are the jobs that have GPUs in the view, `attempts` those that are not over, and `freed` the GPUs on
    which parts of them have ended already.
    """
    found = Steps()
    held: set[int] = set()
    """GPUs of attempts that are stopped and not over."""
    busy: set[int] = set()
    """Jobs with an attempt that is not over."""
    for stray in strays:
        if not stray.is_over:
            busy.add(stray.id.job_id)
            held.update(stray.gpus)
    for attempt in attempts.values():
        busy.add(attempt.id.job_id)
        if not may_stay(attempt, jobs.get(attempt.id.job_id)):
            held.update(set(attempt.gpus) - freed.get(attempt.id, set()))
            if not attempt.stopping:
                found.stop.append(attempt)
    found.begin = [job for job in running if job.job.id not in busy and held.isdisjoint(job.gpus)]
    return found
