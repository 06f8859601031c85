"""What is left of GPUs and hosts where jobs ask for parts of them.

A job that asks for a part of a GPU holds that part, and others that ask for parts may be beside it: up to the whole GPU
and up to its memory. Who does not say how much memory it needs holds as large a part of that. A GPU of which somebody
holds a part is *open* here, and is not in the pool of free GPUs. CPUs and memory of hosts are counted of all jobs that
ask for some, on nodes that say what they have; a job on several nodes has its CPUs where it has its GPUs.

Everything is counted in whole numbers (millionths of a GPU, thousandths of a core, KiB), so that what was taken and
given back leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool

WHOLE = 1_000_000
"""A whole GPU."""
_UNLIMITED = 1 << 60
"""What a node has of which it does not say how much."""


class Ask(NamedTuple):
    """What a job asks for on each of its GPUs."""

    part: int
    memory_kib: int
    """0: in proportion to the part."""
    cpus: int
    ram_kib: int


@lru_cache(maxsize=4096)
def _ask(gpu_frac: float, memory_mib: float, cpus: float, ram_mib: float) -> Ask:
    return Ask(round(gpu_frac * WHOLE), round(memory_mib * 1024), round(cpus * 1000), round(ram_mib * 1024))


def ask_of(job: Job) -> Ask:
    """What a job asks for on each GPU; on more GPUs than it asked for it gets as many more CPUs."""
    return _ask(job.gpu_frac, job.memory_mib, job.cpus / job.gpus, job.ram_mib / job.gpus)


class Parts:
    """What is left; `begin` and `rollback` bracket a what-if, as in a pool."""

    __slots__ = (
        "_cluster",
        "_journal",
        "_memory_kib",
        "by_left",
        "cpus",
        "epoch",
        "left",
        "left_kib",
        "open_on",
        "ram_kib",
        "sharers",
        "touched",
    )  # fmt: skip

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.left: dict[int, int] = {}
        """Of open GPUs: the part that nobody holds."""
        self.left_kib: dict[int, int] = {}
        """Of open GPUs: the memory that nobody holds."""
        self.sharers: dict[int, int] = {}
        """Of open GPUs: how many jobs are there."""
        self.by_left: dict[int, set[int]] = {}
        """Open GPUs by what is left of them."""
        self.open_on: dict[int, set[int]] = {}
        """Open GPUs by their node."""
        self.cpus = [_limit(node.cpus, 1000) for node in cluster.nodes]
        """Of each node, thousandths of a core that nobody has asked for."""
        self.ram_kib = [_limit(node.ram_mib, 1024) for node in cluster.nodes]
        self._memory_kib = [round(node.gpu_model.memory_mib * 1024) for node in cluster.nodes]
        self._journal: list[tuple[bool, Job, Placement]] | None = None
        self.touched: list[int] = []
        """Nodes that changed, in order, for indexes that catch up; cleared, with a new epoch, when it grows long."""
        self.epoch = 0

    # -- who fits --------------------------------------------------------------------------------------------------

    def holds_host(self, node: int, ask: Ask, gpus: int = 1) -> bool:
        """Whether a node has the CPUs and the memory for so many GPUs of a job."""
        return self.cpus[node] >= gpus * ask.cpus and self.ram_kib[node] >= gpus * ask.ram_kib

    def hosts(self, job: Job, gpus: Placement) -> bool:
        """Whether the nodes of these GPUs have the CPUs and the memory that a job asks for."""
        ask = ask_of(job)
        return all(self.holds_host(node, ask, count) for node, count in self._by_node(gpus).items())

    def holds(self, gpu: int, ask: Ask) -> bool:
        """Whether a job could be on this GPU, open or empty."""
        node = self._cluster.node_of[gpu]
        memory_kib = self._memory_of(node, ask)
        room_kib = self.left_kib.get(gpu, self._memory_kib[node])
        return self.left.get(gpu, WHOLE) >= ask.part and room_kib >= memory_kib and self.holds_host(node, ask)

    def fullest(self, ask: Ask) -> Iterator[int]:
        """The open GPUs that hold a job, those first of which least is left, the first of equals."""
        for left in sorted(left for left in self.by_left if left >= ask.part):
            for gpu in sorted(self.by_left[left]):
                if self.holds(gpu, ask):
                    yield gpu

    def offered(self, job: Job, width: int, pool: Pool) -> Pool:
        """The GPUs of a pool that a job can have as far as hosts and memory go; the pool itself where that is all."""
        ask, cluster = ask_of(job), self._cluster
        if not (ask.cpus or ask.ram_kib) and (ask.part == WHOLE or job.memory_mib <= cluster.least_memory_mib):
            return pool
        found: list[int] = []
        for node, count in enumerate(pool.counts):
            if count and self._memory_kib[node] >= ask.memory_kib:
                fitting = min(count, width, self._fitting(node, ask))
                found.extend(pool.from_node(node, count if fitting == width else fitting))
        return Pool(cluster, found)

    def _fitting(self, node: int, ask: Ask) -> int:
        by_cpus = self.cpus[node] // ask.cpus if ask.cpus else _UNLIMITED
        return min(by_cpus, self.ram_kib[node] // ask.ram_kib if ask.ram_kib else _UNLIMITED)

    # -- taking and giving -------------------------------------------------------------------------------------------

    def take(self, job: Job, gpus: Placement) -> None:
        """A job holds its part of these GPUs, and of their hosts."""
        if self._journal is not None:
            self._journal.append((True, job, gpus))
        self._change(job, gpus, -1)

    def give(self, job: Job, gpus: Placement) -> Placement:
        """A job leaves these GPUs; those of which nobody holds a part any more are told."""
        if self._journal is not None:
            self._journal.append((False, job, gpus))
        self._change(job, gpus, 1)
        return tuple(g for g in gpus if g not in self.left)

    def reserve(self, node: int, ask: Ask) -> None:
        """Others than jobs use so much of a host from now on."""
        self.cpus[node] -= ask.cpus
        self.ram_kib[node] -= ask.ram_kib
        self.touch(node)

    def touch(self, node: int) -> None:
        """Something is different there."""
        if len(self.touched) > 64 + 4 * len(self.cpus):
            self.touched.clear()
            self.epoch += 1
        self.touched.append(node)

    def begin(self) -> None:
        """From here on remember what is done, to be undone by `rollback`."""
        self._journal = []

    def rollback(self) -> None:
        """Undo everything since `begin`."""
        journal, self._journal = self._journal, None
        for taken, job, gpus in reversed(journal or ()):
            self._change(job, gpus, 1 if taken else -1)

    def _change(self, job: Job, gpus: Placement, sign: int) -> None:
        ask = ask_of(job)
        if ask.cpus or ask.ram_kib:
            for node, count in self._by_node(gpus).items():
                self.cpus[node] += sign * count * ask.cpus
                self.ram_kib[node] += sign * count * ask.ram_kib
                self.touch(node)
        if ask.part < WHOLE:
            for gpu in gpus:
                self._change_gpu(gpu, ask, sign)

    def _change_gpu(self, gpu: int, ask: Ask, sign: int) -> None:
        node = self._cluster.node_of[gpu]
        self.touch(node)
        before = self.left.get(gpu, WHOLE)
        sharers = self.sharers.get(gpu, 0) - sign
        if gpu in self.left:
            self.by_left[before].discard(gpu)
            if not self.by_left[before]:
                del self.by_left[before]
        if not sharers:
            del self.left[gpu], self.left_kib[gpu], self.sharers[gpu]
            self.open_on[node].discard(gpu)
            if not self.open_on[node]:
                del self.open_on[node]
            return
        self.open_on.setdefault(node, set()).add(gpu)
        self.sharers[gpu] = sharers
        self.left_kib[gpu] = self.left_kib.get(gpu, self._memory_kib[node]) + sign * self._memory_of(node, ask)
        after = self.left[gpu] = before + sign * ask.part
        self.by_left.setdefault(after, set()).add(gpu)

    def _memory_of(self, node: int, ask: Ask) -> int:
        return ask.memory_kib or ask.part * self._memory_kib[node] // WHOLE

    def _by_node(self, gpus: Placement) -> dict[int, int]:
        found: dict[int, int] = {}
        for gpu in gpus:
            node = self._cluster.node_of[gpu]
            found[node] = found.get(node, 0) + 1
        return found


def _limit(stated: float, units: int) -> int:
    return round(stated * units) if stated else _UNLIMITED
