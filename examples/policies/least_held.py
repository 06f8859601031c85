"""An ordering for Fairlead: whoever holds the fewest GPUs is next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering
from fairlead.policy.view import JobState, View


@dataclass
class LeastHeld(Ordering):
    """The user who holds the fewest GPUs now goes first; inside a user, order of submission.

    When not to use it: where usage of the past should count; `fair` counts it.
    """

    lanes: ClassVar[bool] = True
    _given: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    """GPUs given in the present decision: the view shows them with the next one."""

    def expired(self, view: View) -> list[JobState]:
        """A new decision begins; single jobs never change their lane."""
        self._given.clear()
        view.count_usage()
        return []

    def lane(self, state: JobState) -> Hashable:
        """A lane for each user."""
        return state.job.user

    def lane_key(self, lane: Hashable, view: View) -> Any:
        """What the user holds, then the name, since no two lanes may have the same key."""
        held = sum(gpus for (_, user), gpus in view.count_usage().held_gpus.items() if user == lane)
        return (held + self._given.get(str(lane), 0), lane)

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The lane's key, then submission."""
        return (self.lane_key(state.job.user, view), state.job.id)

    def took(self, state: JobState, width: int, view: View) -> Iterable[Hashable]:
        """It holds more from now on: its lane moves."""
        self._given[state.job.user] = self._given.get(state.job.user, 0) + width
        return (state.job.user,)
