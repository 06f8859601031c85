"""Offline jobs beside services in time slices: what MuxFlow is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.contention import Mode
from fairlead.policy.queue import Queue
from fairlead.policy.sharing.beside import Beside
from fairlead.policy.stages import Sharing
from fairlead.policy.view import JobState, View


@dataclass
class TimeSharing(Beside):
    """An offline job beside every service, first come, first served, in equal time slices.

    The next waiting job goes to the first GPU with a service and no offline job whose memory holds both. Nobody is
    protected, nothing is evicted.

    When not to use it: beside anything whose latency matters.
    """

    mode: ClassVar[Mode] = "time"

    def assign(self, queue: Queue, view: View) -> None:
        """First fit."""
        assert view.meter is not None
        self._assigned.clear()
        fleet = view.meter.fleet()
        places = self.open_gpus(fleet)
        if len(places) and len(queue):
            waiting = self.candidates(queue, 2 * len(places) + 16)
            self.first_fit(waiting, self.part(fleet, places), [1.0] * len(places), view)


@dataclass
class PriorityTimeSharing(TimeSharing):
    """The same, but offline jobs launch only while the service is idle.

    When not to use it: where services are busy half of the time; offline jobs then hardly move.
    """

    mode: ClassVar[Mode] = "priority"


@dataclass
class OnlineOnly(Beside):
    """Nothing beside services: offline jobs use GPUs that have none.

    When not to use it: where services leave GPUs half idle, which is nearly always.
    """

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """Services are not considered."""
        return Sharing.why_waits(self, state, width, view)
