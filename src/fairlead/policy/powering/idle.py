"""Since when nodes are idle, kept up with work in proportion to what changed."""

from __future__ import annotations

from fairlead.policy.view import View


class IdleNodes:
    """The nodes with all their GPUs free, as of the last look at the pool."""

    def __init__(self) -> None:
        self.since_s: dict[int, float] = {}
        """Idle nodes, longest idle first: a dict keeps the order in which they became so."""
        self._idle = 0
        """Bit mask of the same nodes."""
        self._of_size: dict[int, int] = {}

    def notice(self, view: View) -> None:
        """Look at the pool as it is now."""
        if not self._of_size:
            for number, spec in enumerate(view.cluster.nodes):
                self._of_size[spec.gpus] = self._of_size.get(spec.gpus, 0) | 1 << number
        idle = 0
        for gpus, nodes in self._of_size.items():
            idle |= view.free.by_count[gpus] & nodes
        changed, self._idle = idle ^ self._idle, idle
        while changed:
            low = changed & -changed
            changed ^= low
            node = low.bit_length() - 1
            if idle & low:
                self.since_s[node] = view.now_s
            else:
                self.since_s.pop(node, None)
