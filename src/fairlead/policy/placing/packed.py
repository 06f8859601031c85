"""Pack: as few nodes as possible, the fullest that fit."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Placing
from fairlead.policy.view import JobState, View


@dataclass
class Packed(Placing):
    """Fewest nodes, fullest first.

    A node with exactly as many free GPUs as wanted; else the node with the fewest free that still fits; else, since no
    node holds the job, again and again from the node with the most free. Ties go to the first node, GPUs are taken in
    order of number.

    When not to use it: where GPUs differ in speed; packing does not look.
    """

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """The fullest node that fits, else the emptiest ones together."""
        for count in range(width, len(pool.by_count)):
            node = pool.first_node_with(count)
            if node is not None:
                return pool.from_node(node, width)
        return _gather(pool, width) if width <= pool.count else None


def _gather(pool: Pool, width: int) -> Placement:
    found: list[int] = []
    for count in range(len(pool.by_count) - 1, 0, -1):
        nodes = pool.by_count[count]
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            found.extend(pool.from_node(low.bit_length() - 1, min(count, width - len(found))))
            if len(found) == width:
                return tuple(sorted(found))
    raise AssertionError("the pool's count is wrong")
