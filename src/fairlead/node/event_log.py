"""What an agent tells: events, for logs and for whoever waits for news."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.node.gpu.gpus import NodeGpu
from fairlead.node.identity import AttemptId
from fairlead.node.running_jobs import RunningJob

_MOST_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for logs."""

    at_s: float
    gpu: str
    what: str
    """One kebab-case word."""
    attempt: AttemptId | None = None
    about: str = ""


class EventLog:
    """The last of them. `lock` is notified with every one."""

    def __init__(
        self, lock: threading.Condition, clock: Callable[[], float], on_event: Callable[[Event], None] | None
    ) -> None:
        self.events: list[Event] = []
        self._lock, self._clock, self._on_event = lock, clock, on_event

    def tell(self, what: str, about: str = "") -> None:
        """Something happened to the agent itself."""
        self._add(Event(self._clock(), "", what, about=about))

    def tell_gpu(self, node_gpu: NodeGpu, what: str, about: str = "") -> None:
        """Something happened to a GPU."""
        self._add(Event(self._clock(), node_gpu.uuid, what, about=about))

    def tell_job(self, running_job: RunningJob, what: str, about: str = "") -> None:
        """Of one job, on the first of its GPUs."""
        self._add(Event(self._clock(), running_job.order.gpus[0], what, running_job.id, about))

    def _add(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            if len(self.events) > _MOST_EVENTS:
                del self.events[: _MOST_EVENTS // 2]
            if self._on_event is not None:
                self._on_event(event)
            self._lock.notify_all()
