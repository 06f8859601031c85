"""The nodes of a plain run: how many GPUs each has free. It takes the nodes that `placing=packed` does."""

from __future__ import annotations

from fairlead.model.cluster import Cluster

Where = int | list[tuple[int, int]]
"""The node of a job, or its nodes, each with the GPUs that it has there."""


class PackedNodes:
    """Counts of free GPUs, and for every count a bit mask of the nodes that have so many."""

    __slots__ = ("_bits", "_by_count", "_counts")

    def __init__(self, cluster: Cluster) -> None:
        self._bits = [1 << node for node in range(len(cluster.nodes))]
        self._counts = [node.gpus for node in cluster.nodes]
        self._by_count = [0] * (1 + max(self._counts))
        for bit, count in zip(self._bits, self._counts, strict=True):
            self._by_count[count] |= bit

    def take(self, gpus: int) -> Where:
        """The fullest node that fits, else the emptiest ones together; so many must be free."""
        by_count = self._by_count
        for count in range(gpus, len(by_count)):
            nodes = by_count[count]
            if nodes:
                bit = nodes & -nodes
                by_count[count] = nodes ^ bit
                by_count[count - gpus] |= bit
                node = bit.bit_length() - 1
                self._counts[node] = count - gpus
                return node
        return self._gather(gpus)

    def give(self, where: Where, gpus: int) -> None:
        """A job has left its GPUs."""
        if isinstance(where, list):
            for node, count in where:
                self._change(node, count)
        else:
            self._change(where, gpus)

    def _gather(self, gpus: int) -> Where:
        found: list[tuple[int, int]] = []
        for count in range(len(self._by_count) - 1, 0, -1):
            nodes = self._by_count[count]
            while nodes:
                bit = nodes & -nodes
                nodes ^= bit
                taken = min(count, gpus)
                found.append((bit.bit_length() - 1, taken))
                gpus -= taken
                if not gpus:
                    for node, part in found:
                        self._change(node, -part)
                    return found
        raise AssertionError("too few GPUs are free")

    def _change(self, node: int, gpus: int) -> None:
        bit, count = self._bits[node], self._counts[node]
        self._by_count[count] ^= bit
        self._by_count[count + gpus] |= bit
        self._counts[node] = count + gpus
