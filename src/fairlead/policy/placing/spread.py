"""Spread: one GPU at a time from the emptiest node."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Placing
from fairlead.policy.view import JobState, View


@dataclass
class Spread(Placing):
    """As many nodes as possible: GPUs one by one, each from the node that then has the most free (ties: the first).

    When not to use it: where spanning nodes costs speed. It is here as the opposite of packing, and for work that
    competes for a node's CPUs or host memory.
    """

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """One GPU each from the emptiest nodes, level by level."""
        if width > pool.count:
            return None
        taken: dict[int, int] = {}
        nodes, count = 0, len(pool.by_count)
        for _ in range(width):
            while not nodes:
                # Nodes drained to this level from above are level with those that started here.
                count -= 1
                nodes = pool.by_count[count]
                for node, had in taken.items():
                    if pool.counts[node] - had == count:
                        nodes |= 1 << node
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            taken[node] = taken.get(node, 0) + 1
        return tuple(sorted(g for node, n in taken.items() for g in pool.from_node(node, n)))
