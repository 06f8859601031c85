"""Consolidated: as few nodes as the job can be on at all, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Placing
from fairlead.policy.view import JobState, View


@dataclass
class Consolidated(Placing):
    """A job waits until it can be on the fewest nodes that hold it (the default of Helios' and Lucid's simulators).

    A job that fits into one node is placed on one: on the node with the fewest free GPUs that still holds it, the first
    of equals. A wider one gets whole nodes, and the rest of its GPUs on one more: on nodes of g GPUs a job of width w
    has exactly ceil(w/g) of them. Where nodes differ in size, the largest empty ones are taken first. If there is no
    such set the job waits, even if enough GPUs are free elsewhere. Nodes that are down do not count, nor do GPUs that
    are drained or too small for the job.

    An ordering that preempts evicts jobs behind a job until it has its nodes; whoever must leave for that is placed
    anew where there is room. `backfill=easy` counts GPUs, not nodes, for its reservation.

    When not to use it: where jobs lose little by spanning nodes; `packed` prefers one node and does not wait for it.
    """

    may_refuse: ClassVar[bool] = True

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """One node, or whole nodes and a rest."""
        node = self.node_for(state, width, pool, view, but=0)
        if node is not None:
            return pool.from_node(node, width)
        sizes = _usable_gpus(state, view)
        if width > pool.count or width <= max(sizes):
            return None
        found: list[int] = []
        taken = 0
        for whole in _empty_nodes(pool, sizes):
            found.extend(pool.from_node(whole, sizes[whole]))
            taken |= 1 << whole
            rest = width - len(found)
            node = self.node_for(state, rest, pool, view, but=taken)
            if node is not None:
                nodes = taken.bit_count() + 1
                fewest = _fewest_nodes(width, sizes)
                return tuple(sorted((*found, *pool.from_node(node, rest)))) if nodes == fewest else None
        return None

    def node_for(self, state: JobState, width: int, pool: Pool, view: View, *, but: int) -> int | None:
        """The best node that holds so many GPUs of a job by itself; `but` is a bit mask of nodes that are taken."""
        for count in range(width, len(pool.by_count)):
            nodes = pool.by_count[count] & ~but
            if nodes:
                return (nodes & -nodes).bit_length() - 1
        return None


def _usable_gpus(state: JobState, view: View) -> list[int]:
    """Of each node, the GPUs that a job could have if nobody else were there."""
    need_mib, node_of = state.job.memory_mib, view.cluster.node_of
    sizes = [
        0 if n in view.down or node.gpu_model.memory_mib < need_mib else node.gpus
        for n, node in enumerate(view.cluster.nodes)
    ]
    for gpu in view.drained:
        sizes[node_of[gpu]] = max(0, sizes[node_of[gpu]] - 1)
    return sizes


def _fewest_nodes(width: int, sizes: list[int]) -> int:
    """How many nodes hold that many GPUs, the largest first."""
    total = 0
    for nodes, size in enumerate(sorted(sizes, reverse=True), start=1):
        total += size
        if total >= width:
            return nodes
    return len(sizes)


def _empty_nodes(pool: Pool, sizes: list[int]) -> Iterator[int]:
    """Nodes of which all usable GPUs are free, the largest first, the first of equals."""
    for count in range(len(pool.by_count) - 1, 0, -1):
        nodes = pool.by_count[count]
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            if sizes[node] == count:
                yield node
