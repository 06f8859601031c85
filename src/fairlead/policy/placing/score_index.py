"""Free GPUs of a pool by how fast they are for one class, so that PM-First and PAL need no walk over GPUs or subsets.

Per bin and count, a bit mask of the nodes that have exactly so many free GPUs of that bin; per rank n and bin, a bit
mask of the nodes whose n-th best free GPU is in that bin. A GPU taken or given changes at most GPUs-per-node masks of
its node. The index catches up with the pool when it is asked, so classes that nobody places cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.model.binning import Bins
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool


class ScoreIndex:
    """Free GPUs of one pool for one class."""

    def __init__(self, cluster: Cluster, bins: Bins, pool: Pool) -> None:
        self.values = bins.values
        self._pool = pool
        self._first = cluster.first_gpu
        self._widest = len(pool.by_count) - 1
        k = len(bins.values)
        # Of each node: (bin, mask of its GPUs in that bin), best bin first.
        self._bins_of: list[list[tuple[int, int]]] = []
        for node in range(len(cluster.nodes)):
            masks: dict[int, int] = {}
            for gpu in range(self._first[node], self._first[node + 1]):
                masks[bins.of[gpu]] = masks.get(bins.of[gpu], 0) | 1 << (gpu - self._first[node])
            self._bins_of.append(sorted(masks.items()))
        self._seen = [0] * len(cluster.nodes)
        """The pool's masks as they were when the index caught up."""
        self.free = [0] * k
        """Free GPUs of each bin."""
        self._exact = [[0] * (self._widest + 1) for _ in range(k)]
        self._nth = [[0] * k for _ in range(self._widest + 1)]
        self._position = -1
        self._epoch = -1

    def catch_up(self) -> None:
        """Take in what was taken from and given to the pool since the last time."""
        pool = self._pool
        if pool.epoch != self._epoch:
            self._epoch = pool.epoch
            changed: range | set[int] = range(len(self._seen))
        elif self._position == len(pool.touched):
            return
        else:
            changed = set(pool.touched[self._position :])
        self._position = len(pool.touched)
        for node in changed:
            if self._seen[node] != pool.masks[node]:
                self._update(node, self._seen[node], pool.masks[node])
                self._seen[node] = pool.masks[node]

    def best_within(self, n: int) -> tuple[int, int] | None:
        """The best bin b for which one node has n free GPUs no worse than b, and that node: the one with most such."""
        if n > self._widest:
            return None
        for b, nodes in enumerate(self._nth[n]):
            if nodes:
                for more in range(self._widest, n, -1):
                    if nodes & self._nth[more][b]:
                        nodes &= self._nth[more][b]
                        break
                # Of equal nodes the last: so does the published code, whose figures this gives to the second.
                return b, nodes.bit_length() - 1
        return None

    def best_gathered(self, n: int, weight: float) -> tuple[float, int] | None:
        """The node with the least product of slowness and `1 + weight x part of the node left free`, and that product.

        Of equals the first; only nodes with n free GPUs count.
        """
        best: tuple[float, int] | None = None
        for left in range(self._widest - n + 1):
            having = self._pool.by_count[n + left]
            for b, nodes in enumerate(self._nth[n]) if having else ():
                if found := nodes & having:
                    cost = self.values[b] * (1.0 + weight * left / self._widest)
                    if best is None or cost < best[0]:
                        best = cost, (found & -found).bit_length() - 1
                    break
        return best

    def best_across(self, n: int) -> int | None:
        """The best bin b for which there are n free GPUs no worse than b anywhere."""
        total = 0
        for b, free in enumerate(self.free):
            total += free
            if total >= n:
                return b
        return None

    def from_node(self, node: int, n: int) -> Placement:
        """The n best free GPUs of a node."""
        mask, first = self._pool.masks[node], self._first[node]
        found: list[int] = []
        for _, of_bin in self._bins_of[node]:
            found.extend(_lowest(mask & of_bin, first, n - len(found)))
            if len(found) == n:
                break
        return tuple(sorted(found))

    def best(self, n: int) -> Placement | None:
        """The n best free GPUs anywhere; within a bin, from nodes that have closest to n of them, then in order."""
        found: list[int] = []
        for b, free in enumerate(self.free):
            if free:
                for node in self._nodes_by_distance(b, n):
                    of_bin = next(mask for which, mask in self._bins_of[node] if which == b)
                    mask = self._pool.masks[node] & of_bin
                    found.extend(_lowest(mask, self._first[node], n - len(found)))
                    if len(found) == n:
                        return tuple(sorted(found))
        return None

    def _nodes_by_distance(self, b: int, n: int) -> Iterator[int]:
        exact, widest = self._exact[b], self._widest
        for distance in range(max(0, n - widest), max(n, widest)):
            nodes = exact[n - distance] if n - distance > 0 else 0
            if 0 < distance <= widest - n:
                nodes |= exact[n + distance]
            while nodes:
                low = nodes & -nodes
                nodes ^= low
                yield low.bit_length() - 1

    def _update(self, node: int, old: int, new: int) -> None:
        bit = 1 << node
        rank_old = rank_new = 1
        nth = self._nth
        for b, of_bin in self._bins_of[node]:
            had, has = (old & of_bin).bit_count(), (new & of_bin).bit_count()
            if had != has:
                exact = self._exact[b]
                if had:
                    exact[had] ^= bit
                if has:
                    exact[has] ^= bit
                self.free[b] += has - had
            if had != has or rank_old != rank_new:
                # Ranks that this bin filled before and does not now, and the other way round.
                before, after = range(rank_old, rank_old + had), range(rank_new, rank_new + has)
                for rank in before:
                    if rank not in after:
                        nth[rank][b] ^= bit
                for rank in after:
                    if rank not in before:
                        nth[rank][b] ^= bit
            rank_old += had
            rank_new += has


def _lowest(mask: int, first: int, n: int) -> Iterator[int]:
    while mask and n > 0:
        low = mask & -mask
        mask ^= low
        n -= 1
        yield first + low.bit_length() - 1
