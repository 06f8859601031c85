"""GPUs on offer, indexed so that a placement costs what it takes, not what the cluster holds.

Each node keeps a bit mask of its GPUs on offer, and each possible count of GPUs keeps a bit mask of the nodes that have
exactly so many. "The first node with the fewest GPUs that still fits" is then a walk over at most GPUs-per-node masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement


class Pool:
    """A set of GPUs that can be taken and given back; `begin` and `rollback` bracket a what-if."""

    __slots__ = ("_first", "_journal", "_node_of", "by_count", "count", "counts", "epoch", "masks", "touched")

    def __init__(self, cluster: Cluster, gpus: Iterable[int] | None = None) -> None:
        self._node_of = cluster.node_of
        self._first = cluster.first_gpu
        self.masks = [0] * len(cluster.nodes)
        """Bit i of masks[node]: its i-th GPU is on offer."""
        self.counts = [0] * len(cluster.nodes)
        """How many GPUs each node offers."""
        self.by_count = [0] * (1 + max(n.gpus for n in cluster.nodes))
        """Bit n of by_count[c]: node n offers exactly c GPUs."""
        self.by_count[0] = (1 << len(cluster.nodes)) - 1
        self.count = 0
        """GPUs on offer in all."""
        self._journal: list[tuple[bool, Placement]] | None = None
        self.touched: list[int] = []
        """Nodes that changed, in order, for indexes that catch up; cleared, with a new epoch, when it grows long."""
        self.epoch = 0
        self.give(tuple(range(cluster.gpus)) if gpus is None else tuple(gpus))

    def __contains__(self, gpu: int) -> bool:
        node = self._node_of[gpu]
        return bool(self.masks[node] >> (gpu - self._first[node]) & 1)

    def __iter__(self) -> Iterator[int]:
        for node, mask in enumerate(self.masks):
            if mask:
                yield from _bits(mask, self._first[node])

    def take(self, gpus: Placement) -> None:
        """Withdraw these GPUs; all must be on offer."""
        if self._journal is not None:
            self._journal.append((True, gpus))
        self._flip(gpus, -1)

    def give(self, gpus: Placement) -> None:
        """Offer these GPUs; none may be on offer."""
        if self._journal is not None:
            self._journal.append((False, gpus))
        self._flip(gpus, 1)

    def begin(self) -> None:
        """From here on remember what is done, to be undone by `rollback`."""
        self._journal = []

    def rollback(self) -> None:
        """Undo all that was taken and given since `begin`."""
        journal, self._journal = self._journal, None
        for taken, gpus in reversed(journal or ()):
            self._flip(gpus, 1 if taken else -1)

    def from_node(self, node: int, n: int) -> Placement:
        """The lowest n GPUs on offer on that node."""
        first = self._first[node]
        mask = self.masks[node]
        if n == 1:
            return (first + (mask & -mask).bit_length() - 1,)
        found = []
        for _ in range(n):
            low = mask & -mask
            found.append(first + low.bit_length() - 1)
            mask ^= low
        return tuple(found)

    def first_node_with(self, count: int) -> int | None:
        """The first node that offers exactly `count` GPUs."""
        nodes = self.by_count[count]
        return (nodes & -nodes).bit_length() - 1 if nodes else None

    def _flip(self, gpus: Placement, step: int) -> None:
        node_of, masks, touched = self._node_of, self.masks, self.touched
        if len(touched) > 64 + 4 * len(masks):
            touched.clear()
            self.epoch += 1
        i, n = 0, len(gpus)
        while i < n:
            node = node_of[gpus[i]]
            first = self._first[node]
            bits = 0
            while i < n and node_of[gpus[i]] == node:
                bits |= 1 << (gpus[i] - first)
                i += 1
            if masks[node] & bits != (bits if step < 0 else 0):
                state = "not on offer" if step < 0 else "on offer already"
                raise ValueError(f"GPUs of node {node} are {state}: {gpus}")
            masks[node] ^= bits
            touched.append(node)
            self._recount(node, step * bits.bit_count())

    def _recount(self, node: int, change: int) -> None:
        bit = 1 << node
        old = self.counts[node]
        self.by_count[old] ^= bit
        self.by_count[old + change] ^= bit
        self.counts[node] = old + change
        self.count += change


def _bits(mask: int, first: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield first + low.bit_length() - 1
        mask ^= low
