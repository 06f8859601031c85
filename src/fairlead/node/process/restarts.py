"""Which services the agent itself launches again. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchStatus
from fairlead.node.running_jobs import RunningJob


class Restarts:
    """A service that ended otherwise than by itself with 0 comes back at once, as the next launch of its attempt.

    One that ends by itself within `failing_s` of its start has failed to come up; after `most_failures` of these in a
    row it is given up. Trainings are the controller's to start again.
    """

    def __init__(self, failing_s: float, most_failures: int) -> None:
        self._failing_s, self._most_failures = failing_s, most_failures
        self._failures: dict[AttemptId, int] = {}
        self._waiting: dict[AttemptId, tuple[Order, LaunchId]] = {}

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def ended(self, running_job: RunningJob, status: LaunchStatus, *, by_itself: bool) -> bool:
        """It has ended; False where it was to come back and is given up.

        One that was evicted, or that MPS took with it, did not end by itself: that is not held against it.
        """
        order = running_job.order
        if not order.is_restarted or status.has_succeeded:
            return True
        if by_itself and self._is_hopeless(order.id, status):
            return False
        self.wait(order, running_job.launch.next)
        return True

    def wait(self, order: Order, launch: LaunchId) -> None:
        """Have it launched again, as this."""
        self._waiting[order.id] = (order, launch)

    def forget(self, attempt: AttemptId) -> bool:
        """It is no longer wanted; whether it was waiting."""
        return self._waiting.pop(attempt, None) is not None

    def ready(self, accepts: Callable[[Order], bool]) -> list[tuple[Order, LaunchId]]:
        """Those to launch now, given which ones may; they wait no longer."""
        found = [(order, launch) for order, launch in self._waiting.values() if accepts(order)]
        for order, _ in found:
            del self._waiting[order.id]
        return found

    def _is_hopeless(self, attempt: AttemptId, status: LaunchStatus) -> bool:
        failures = self._failures.pop(attempt, 0) + 1 if (status.ran_s or 0.0) < self._failing_s else 0
        if failures >= self._most_failures:
            return True
        self._failures[attempt] = failures
        return False
