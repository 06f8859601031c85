"""What nodes have left for jobs, for placings that weigh nodes against each other.

Nodes of which the same is left are weighed once. The index catches up with what changed when it is asked, so a
placement costs as much as there are different nodes, not as there are nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fairlead.policy.parts import WHOLE, Ask, Parts
from fairlead.policy.pool import Pool
from fairlead.policy.view import View


class Room(NamedTuple):
    """What is left of a node."""

    lefts: tuple[int, ...]
    """Of its GPUs of which anything is left, in millionths, ascending."""
    cpus: int
    """Thousandths of a core; 0 where the cluster does not say, and nobody is asked for any."""
    ram_kib: int

    def holds(self, ask: Ask, width: int) -> bool:
        """Whether a job fits, as far as its GPU's memory is not the matter; a width of 0 asks for no GPUs."""
        times, lefts = max(1, width), self.lefts
        if self.cpus < times * ask.cpus or self.ram_kib < times * ask.ram_kib:
            return False
        return width <= len(lefts) and (not width or lefts[-width] >= ask.part)

    def options(self, ask: Ask, width: int) -> list[int]:
        """Of a job that asks for a part of a GPU: what may be left of the GPU that it gets, each once, ascending."""
        return sorted({left for left in self.lefts if left >= ask.part}) if width and ask.part < WHOLE else [WHOLE]

    def after(self, ask: Ask, width: int, left: int) -> Room:
        """When a job has been given that: whole GPUs, none, or a part of one of which so much was left."""
        times, lefts = max(1, width), self.lefts
        if ask.part == WHOLE:
            kept = lefts[: len(lefts) - width]
        else:
            rest = list(lefts)
            rest.remove(left)
            kept = tuple(sorted([*rest, left - ask.part])) if left > ask.part else tuple(rest)
        return Room(kept, self.cpus - times * ask.cpus, self.ram_kib - times * ask.ram_kib)


class RoomIndex:
    """The nodes of a pool by what is left of them."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._parts: Parts | None = None
        self._seen = (-1, 0, -1, 0)
        self._of: list[Room] = []
        self._nodes: dict[Room, set[int]] = {}

    def fitting(self, ask: Ask, width: int, pool: Pool, view: View) -> Iterator[tuple[Room, set[int]]]:
        """What may be left of nodes that hold a job, and which nodes these are."""
        self._catch_up(pool, view)
        return ((room, nodes) for room, nodes in self._nodes.items() if room.holds(ask, width))

    def _catch_up(self, pool: Pool, view: View) -> None:
        parts = view.parts
        log = parts.touched if parts is not None else []
        seen = (pool.epoch, len(pool.touched), parts.epoch if parts is not None else -1, len(log))
        is_same = pool is self._pool and parts is self._parts
        if is_same and seen == self._seen:
            return
        if is_same and (seen[0], seen[2]) == (self._seen[0], self._seen[2]):
            changed = {*pool.touched[self._seen[1] :], *log[self._seen[3] :]}
        else:
            self._of, self._nodes = [Room((), 0, 0)] * len(pool.counts), {}
            changed = set(range(len(pool.counts)))
            for node in changed:
                self._nodes.setdefault(self._of[node], set()).add(node)
        self._pool, self._parts, self._seen = pool, parts, seen
        for node in changed:
            self._move(node, _room(node, pool, view))

    def _move(self, node: int, room: Room) -> None:
        before = self._of[node]
        if room == before:
            return
        self._nodes[before].discard(node)
        if not self._nodes[before]:
            del self._nodes[before]
        self._of[node] = room
        self._nodes.setdefault(room, set()).add(node)


def _room(node: int, pool: Pool, view: View) -> Room:
    parts = view.parts
    lefts = [WHOLE] * pool.counts[node]
    if parts is None:
        return Room(tuple(lefts), 0, 0)
    if node in parts.open_on:
        opened = (parts.left[g] for g in parts.open_on[node] if g not in view.drained)
        lefts = sorted([*(left for left in opened if left), *lefts])
    cpus, ram_kib = (parts.cpus[node], parts.ram_kib[node]) if view.cluster.states_hosts else (0, 0)
    return Room(tuple(lefts), cpus, ram_kib)


def gpus_with(left: int, node: int, ask: Ask, pool: Pool, view: View) -> Iterator[int]:
    """The GPUs of a node of which so much is left, and that hold a job, in order."""
    parts = view.parts
    assert parts is not None
    opened = [g for g in parts.open_on.get(node, ()) if parts.left[g] == left and g not in view.drained]
    free = pool.from_node(node, pool.counts[node]) if left == WHOLE and pool.counts[node] else ()
    return (g for g in sorted((*opened, *free)) if parts.holds(g, ask))
