"""What an agent tells: events, for logs and for whoever waits for news."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.node.seats import Seat
from fairlead.node.tenants import Tenant

_MOST_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for logs."""

    at_s: float
    gpu: str
    what: str
    """One kebab-case word."""
    job_id: str = ""
    about: str = ""


class Journal:
    """The last of them. `lock` is notified with every one."""

    def __init__(
        self, lock: threading.Condition, clock: Callable[[], float], on_event: Callable[[Event], None] | None
    ) -> None:
        self.events: list[Event] = []
        self._lock, self._clock, self._on_event = lock, clock, on_event

    def tell(self, what: str, about: str = "") -> None:
        """Of the agent itself."""
        self._add(Event(self._clock(), "", what, about=about))

    def tell_gpu(self, seat: Seat, what: str, about: str = "") -> None:
        """Of one GPU."""
        self._add(Event(self._clock(), seat.uuid, what, about=about))

    def tell_job(self, tenant: Tenant, what: str, about: str = "") -> None:
        """Of one job, on the first of its GPUs."""
        self._add(Event(self._clock(), tenant.spec.gpus[0], what, tenant.spec.job_id, about))

    def _add(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            if len(self.events) > _MOST_EVENTS:
                del self.events[: _MOST_EVENTS // 2]
            if self._on_event is not None:
                self._on_event(event)
            self._lock.notify_all()
