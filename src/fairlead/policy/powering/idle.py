"""Since when nodes are idle, kept up with work in proportion to what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fairlead.policy.saved_state import reading
from fairlead.policy.view import View


class IdleNodes:
    """The nodes with all their GPUs free, or drained and empty, as of the last look at the pool."""

    def __init__(self) -> None:
        self.since_s: dict[int, float] = {}
        """Idle nodes, longest idle first: a dict keeps the order in which they became so."""
        self._idle = 0
        """Bit mask of the same nodes."""
        self._of_size: dict[int, int] = {}
        self._drained: set[int] = set()

    def notice(self, view: View) -> None:
        """Look at the pool as it is now."""
        if not self._of_size or view.drained != self._drained:
            self._measure(view)
        idle = 0
        for gpus, nodes in self._of_size.items():
            idle |= view.free.by_count[gpus] & nodes
        for gpu in view.drained:
            # The pool does not show these: a job may still be there, and a node without others looks idle when off.
            node = view.cluster.node_of[gpu]
            if view.on_gpu[gpu] or node in view.asleep or node in view.waking or node in view.down:
                idle &= ~(1 << node)
        changed, self._idle = idle ^ self._idle, idle
        while changed:
            low = changed & -changed
            changed ^= low
            node = low.bit_length() - 1
            if idle & low:
                self.since_s[node] = view.now_s
            else:
                self.since_s.pop(node, None)

    def knowledge(self) -> dict[str, Any]:
        """Since when nodes are idle, in that order."""
        return {"idle": [[node, since_s] for node, since_s in self.since_s.items()]}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Those that are in use by now are dropped at the next look."""
        with reading("idle nodes", saved, "idle"):
            since_s = {int(node): float(at_s) for node, at_s in saved["idle"]}
        self.since_s = {node: at_s for node, at_s in since_s.items() if 0 <= node < len(view.cluster.nodes)}
        self._idle = sum(1 << node for node in self.since_s)

    def _measure(self, view: View) -> None:
        self._drained = set(view.drained)
        drained = Counter(view.cluster.node_of[g] for g in view.drained)
        self._of_size.clear()
        for number, spec in enumerate(view.cluster.nodes):
            usable = spec.gpus - drained[number]
            self._of_size[usable] = self._of_size.get(usable, 0) | 1 << number
