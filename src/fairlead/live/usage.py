"""Who uses what: jobs, GPUs and energy by user.

Read from all jobs at once, seldom: what was found is used again for as long as reading it took, fifty times over, so
that a million jobs cost no more than a few per cent of a core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.live.control.controller import Controller
from fairlead.live.jobs.job import DeadlineState
from fairlead.live.prices import gpu_hour_usd
from fairlead.live.storage.database import Database

_LEAST_S = 5.0
_TIMES = 50.0
_SQL = """
    SELECT user, state, count(*) AS jobs, total(energy_j) AS energy_j,
        total(json_extract(service, '$.banked_gpu_s')) AS gpu_s
    FROM jobs GROUP BY user, state
"""


@dataclass(slots=True)
class UserUsage:
    """One user's, since the database was made."""

    user: str
    jobs: dict[str, int] = field(default_factory=dict)
    """By state."""
    gpus: float = 0
    """Held now; a shared GPU counts for each job on it, by the part that it asked for where it did."""
    late_jobs: int = 0
    """Past their deadline and not over."""
    gpu_s: float = 0.0
    """Held; likewise."""
    energy_j: float = 0.0
    """Of its jobs' parts of the meters."""
    cost_usd: float | None = None
    """GPU-seconds at the list price; None where GPUs have none, or different ones."""


class Usage:
    """Of the users of one controller. Calls may come from any thread, and wait for the disk."""

    def __init__(
        self, controller: Controller, database: Database, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._controller, self._database, self._clock = controller, database, clock
        self._lock = threading.Lock()
        self._found: dict[str, UserUsage] = {}
        self._until_s = float("-inf")

    def by_user(self) -> dict[str, UserUsage]:
        """As of a moment ago; not to be changed."""
        with self._lock:
            began_s = self._clock()
            if began_s >= self._until_s:
                self._found = self._look()
                took_s = self._clock() - began_s
                self._until_s = began_s + max(_LEAST_S, _TIMES * took_s)
            return self._found

    def _look(self) -> dict[str, UserUsage]:
        found: dict[str, UserUsage] = {}
        for row in self._database.read(_SQL):
            one = found.setdefault(row["user"], UserUsage(row["user"]))
            one.jobs[row["state"]] = row["jobs"]
            one.energy_j += row["energy_j"]
            one.gpu_s += row["gpu_s"]
        self._add_running(found)
        price = gpu_hour_usd(self._controller.cluster)
        for one in found.values():
            one.cost_usd = None if price is None else one.gpu_s / 3600.0 * price
        return found

    def _add_running(self, found: dict[str, UserUsage]) -> None:
        """What is not in the books until an attempt is over."""
        controller = self._controller
        statuses, now_s = controller.poll.attempts, controller.clock.now_s()
        for job in (*tuple(controller.driver.jobs.values()), *tuple(controller.lifecycle.aside.values())):
            one = found.setdefault(job.user, UserUsage(job.user))
            one.late_jobs += job.deadline_state is DeadlineState.MISSED
            if job.gpus:
                one.gpus += job.held_gpus
                one.gpu_s += job.held_gpus * max(now_s - job.since_s, 0.0)
            status = statuses.get(job.attempt)
            if status is not None and not status.is_over:
                one.energy_j += status.energy_j or 0.0
