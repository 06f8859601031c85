"""Which jobs the agent itself starts again, and when. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.node.launch import JobStatus
from fairlead.node.spec import JobSpec, Restart
from fairlead.node.tenants import Tenant
from fairlead.policy.guarding import Backoff, EvictionConfig


class Comebacks:
    """Services come back at once, offline jobs when their GPUs accept them and they have stayed away for long enough.

    A service that ends by itself within `failing_s` of its start has failed to come up; after `most_failures` of these
    in a row it is given up.
    """

    def __init__(self, eviction: EvictionConfig, failing_s: float, most_failures: int) -> None:
        self._backoff = Backoff(eviction)
        self._failing_s, self._most_failures = failing_s, most_failures
        self._failures: dict[str, int] = {}
        self._waiting: dict[str, tuple[JobSpec, int]] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def ended(self, tenant: Tenant, status: JobStatus, now_s: float, *, by_itself: bool) -> bool:
        """It has ended; False where it was to come back and is given up.

        One that was evicted, or that MPS took with it, did not end by itself: that is not held against it.
        """
        spec = tenant.spec
        if spec.restart is Restart.NEVER or (spec.restart is Restart.ON_FAULT and status.has_succeeded):
            return True
        if not spec.is_service:
            self._backoff.evicted(spec.job_id, now_s)
        elif by_itself and self._is_hopeless(spec.job_id, status):
            return False
        self.wait(spec, tenant.attempt + 1)
        return True

    def wait(self, spec: JobSpec, attempt: int) -> None:
        """Start it again with this attempt."""
        self._waiting[spec.job_id] = (spec, attempt)

    def forget(self, job_id: str) -> bool:
        """It is no longer wanted; whether it was waiting."""
        return self._waiting.pop(job_id, None) is not None

    def ready(self, now_s: float, accepts: Callable[[JobSpec], bool]) -> list[tuple[JobSpec, int]]:
        """Those to start now, given which ones may; they wait no longer."""
        found = [
            (spec, attempt)
            for name, (spec, attempt) in self._waiting.items()
            if accepts(spec) and (spec.is_service or now_s >= self._backoff.ready_s(name))
        ]
        for spec, _ in found:
            del self._waiting[spec.job_id]
        return found

    def _is_hopeless(self, name: str, status: JobStatus) -> bool:
        ran_s = (status.ended_at_s or 0.0) - (status.started_at_s or 0.0)
        failures = self._failures.pop(name, 0) + 1 if ran_s < self._failing_s else 0
        if failures >= self._most_failures:
            return True
        self._failures[name] = failures
        return False
