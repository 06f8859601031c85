"""Placings that give a job to the node where it costs least, by a measure of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fairlead.policy.parts import WHOLE, Ask, ask_of
from fairlead.policy.placing.consolidated import Consolidated
from fairlead.policy.placing.rooms import Room, RoomIndex, gpus_with
from fairlead.policy.pool import Pool
from fairlead.policy.view import JobState, View

_REMEMBERED = 200_000
"""Costs that are remembered."""


class Choice(NamedTuple):
    """A node, and of a job that asks for a part of a GPU which one."""

    node: int
    gpu: int | None


@dataclass
class Weighed(Consolidated):
    """A job that fits into one node goes to the one whose `cost` is least; a wider one as in `consolidated`."""

    weighs_hosts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._rooms = RoomIndex()
        self._costs: dict[tuple[Room, Ask, int], tuple[tuple[float, int], ...]] = {}

    def cost(self, before: Room, after: Room) -> float:
        """What it costs that a node is left so, smallest first."""
        raise NotImplementedError

    def choose(self, ask: Ask, width: int, pool: Pool, view: View, but: int = 0) -> Choice | None:
        """The node for a job, the first of equals, and on it the fullest GPU of equals."""
        rooms = self._rooms if pool is view.free else RoomIndex()
        options = [
            (cost, left, nodes)
            for room, nodes in rooms.fitting(ask, width, pool, view)
            for cost, left in self._options(room, ask, width)
        ]
        while options:
            least = min(option[:2] for option in options)
            nodes = sorted(node for *option, found in options if tuple(option) == least for node in found)
            for node in nodes:
                if not but >> node & 1 and (choice := _on(node, least[1], ask, width, pool, view)) is not None:
                    return choice
            options = [option for option in options if option[:2] != least]
        return None

    def _options(self, room: Room, ask: Ask, width: int) -> tuple[tuple[float, int], ...]:
        """(cost, what is left of the GPU before) of all that a job could be given of such a node."""
        key = (room, ask, width)
        found = self._costs.get(key)
        if found is None:
            if len(self._costs) >= _REMEMBERED:
                self._costs.clear()
            found = self._costs[key] = tuple(
                (self.cost(room, room.after(ask, width, left)), left) for left in room.options(ask, width)
            )
        return found

    def node_for(self, state: JobState, width: int, pool: Pool, view: View, *, but: int) -> int | None:
        """The node that costs least."""
        if not width:
            return None
        found = self.choose(ask_of(state.job), width, pool, view, but)
        return None if found is None else found.node

    def pick_part(self, state: JobState, pool: Pool, view: View) -> int | None:
        """The GPU that costs least."""
        found = self.choose(ask_of(state.job), 1, pool, view)
        return None if found is None else found.gpu


def _on(node: int, left: int, ask: Ask, width: int, pool: Pool, view: View) -> Choice | None:
    if ask.part == WHOLE:
        return Choice(node, None)
    gpu = next(gpus_with(left, node, ask, pool, view), None)
    return None if gpu is None else Choice(node, gpu)
