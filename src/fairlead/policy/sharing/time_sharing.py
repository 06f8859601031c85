"""Offline jobs beside services in time slices: what MuxFlow is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.contention import Mode
from fairlead.policy.ranking import Ranking
from fairlead.policy.sharing.with_services import WithServices
from fairlead.policy.stages import Sharing
from fairlead.policy.view import JobState, View


@dataclass
class TimeSharing(WithServices):
    """An offline job beside every service, first come, first served, in equal time slices.

    The next waiting job goes to the first GPU with a service and no offline job whose memory holds both. Nobody is
    protected, nothing is evicted.

    When not to use it: beside anything whose latency matters.
    """

    mode: ClassVar[Mode] = "time"

    def assign(self, ranking: Ranking, view: View) -> None:
        """Give each waiting job, in order, the first open GPU that holds it."""
        assert view.meter is not None
        self._assigned.clear()
        fleet = view.meter.fleet()
        places = self.open_gpus(fleet)
        if len(places) and len(ranking):
            waiting = self.candidates(ranking, 2 * len(places) + 16)
            self.first_fit(waiting, self.part(fleet, places), [1.0] * len(places), view)


@dataclass
class PriorityTimeSharing(TimeSharing):
    """The same, but offline jobs launch only while the service is idle.

    When not to use it: where services are busy half of the time; offline jobs then hardly move.
    """

    mode: ClassVar[Mode] = "priority"


@dataclass
class OnlineOnly(WithServices):
    """Nothing beside services: offline jobs use GPUs that have none.

    When not to use it: where services leave GPUs half idle, which is nearly always.
    """

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """Say why it waits as if there were no services: none is ever shared."""
        return Sharing.why_waits(self, state, width, view)
