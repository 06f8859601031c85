"""Views: a read-only picture of now, kept up to date by a driver.

The simulator and the live controller each own one `View` and tell it what happened through the methods under "for
drivers". Policies read it and never write. What happened since the last decision is in `changes`, so that a policy can
do work in proportion to what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.model.application import Steps
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.placement import NOWHERE, Placement
from fairlead.policy.pool import Pool
from fairlead.policy.scores import Scores


class JobState:
    """A job that is in the system: what it is, where it runs and the service it has had."""

    __slots__ = (
        "banked_gpu_s", "first_width", "gpus", "job", "left_width", "shared", "since_s", "sm_share", "starts",
        "taken_gpus",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        self.job = job
        self.gpus: Placement = NOWHERE
        """Where it runs; empty while it waits."""
        self.shared = False
        self.sm_share = 1.0
        """The part of the SMs that it may use where it is."""
        self.since_s = job.submit_s
        """When it was placed there, or began to wait."""
        self.banked_gpu_s = 0.0
        self.starts = 0
        self.first_width = 0
        """GPUs of its first run; 0 until it has started."""
        self.taken_gpus = 0
        """GPUs that it has started on or grown by, all together."""
        self.left_width = 0
        """GPUs of the run that it left last."""

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of service so far."""
        return self.banked_gpu_s + len(self.gpus) * (now_s - self.since_s) if self.gpus else self.banked_gpu_s

    def __lt__(self, other: JobState) -> bool:
        # In heaps whose entries are equal so far: one job, made anew from what was saved of it.
        return self.job.id < other.job.id

    def __repr__(self) -> str:
        return f"<job {self.job.id} {self.job.name!r} on {self.gpus or 'nothing'}>"


class Epochs(Protocol):
    """What jobs report of themselves: epochs done, how long they take, how many are to come."""

    def done(self, state: JobState) -> int:
        """Whole epochs done."""
        ...

    def next_end_s(self, state: JobState) -> float:
        """When a running job's present epoch ends, at the speed it has now."""
        ...

    def left_s(self, state: JobState) -> float:
        """Seconds that the epochs to come take alone on the GPUs asked for."""
        ...

    def kept_speed(self, state: JobState) -> float:
        """Measured: a running job's speed beside its neighbours over its speed alone on the same GPUs."""
        ...

    def utilisation(self, gpu: int) -> float:
        """Measured: how busy a GPU is."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """What a running job says of its training: where it is, and how fast it goes there."""

    epoch: int
    """From 0."""
    epochs: int
    """In all, as its owner has declared."""
    samples: float
    """Of this epoch, as if the batch were the initial one."""
    nodes: int
    goodput: float
    """Samples per second that count, measured."""
    steps: Steps | None
    """Its iterations; None where it does not report them."""


class Reports(Protocol):
    """What jobs report of their training, for the sizings that fit curves to it."""

    def report(self, state: JobState) -> Report | None:
        """Of a job that runs and has made some progress there; None where it reports nothing."""
        ...


class Bill(Protocol):
    """What has been spent."""

    def paid_gpu_s(self) -> float:
        """GPU-seconds paid for so far, boot and idle included."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Metered: the services on their GPUs, one value each, in the order of the GPUs."""

    gpu: NDArray[np.int64]
    service: NDArray[np.int64]
    """Job numbers."""
    utilisation_frac: NDArray[np.float64]
    """The service's own, now; so are the next two."""
    sm_activity_frac: NDArray[np.float64]
    """NaN where it was not metered yet, or cannot be."""
    memory_frac: NDArray[np.float64]
    accepts: NDArray[np.bool_]
    """Whether the guard lets offline work on this GPU."""
    offline: NDArray[np.int64]
    """The offline job beside it, or -1."""


class Meter(Protocol):
    """What is metered of GPUs with services."""

    def fleet(self) -> Fleet:
        """Now."""
        ...


class Oracle(Protocol):
    """Knowledge of the future, for the policies that declare that they need it."""

    def remaining_s(self, state: JobState) -> float:
        """Run time left: at the speed it has now if it runs, at its nominal speed if it waits."""
        ...


@dataclass(slots=True)
class Changes:
    """What happened since the last decision, besides the last plan itself."""

    arrived: list[JobState] = field(default_factory=list)
    ended: list[JobState] = field(default_factory=list)
    """Finished or cancelled, from the queue or from GPUs."""
    returned: list[JobState] = field(default_factory=list)
    """Back in the queue through no decision of the policy: its node failed, its start failed."""
    withdrawn: list[JobState] = field(default_factory=list)
    """Out of the queue without having ended: held by its user, or kept back after a failure. It may arrive again."""
    retimed: list[JobState] = field(default_factory=list)
    """Running on at another speed, since its neighbours changed."""
    nodes: list[int] = field(default_factory=list)
    """Nodes that went down or came back, or of which a GPU was drained or may be used again."""
    rescored: set[str] = field(default_factory=set)
    """Classes for which something new is believed of the GPUs."""
    turned: list[JobState] = field(default_factory=list)
    """Running jobs that have begun a new epoch; told to elastic sizings only."""

    def __bool__(self) -> bool:
        happened = self.arrived or self.ended or self.returned or self.withdrawn or self.retimed or self.turned
        return bool(happened or self.nodes or self.rescored)


class View:
    """Now: the clock, the jobs, the GPUs and who is on them."""

    __slots__ = (
        "asleep", "bill", "changes", "cluster", "down", "drained", "epochs", "free", "group_epoch", "groups", "meter",
        "now_s", "on_gpu", "oracle", "regrouped", "rented_s", "reports", "running", "scores", "up_gpus", "waiting",
        "waking",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        oracle: Oracle | None = None,
        epochs: Epochs | None = None,
        reports: Reports | None = None,
        bill: Bill | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.now_s = 0.0
        self.cluster = cluster
        self.oracle = oracle
        self.epochs = epochs
        self.reports = reports
        self.bill = bill
        self.meter = meter
        """None where there are no services."""
        self.scores = Scores(cluster.variability) if cluster.variability is not None else None
        """What is believed of the GPUs' speeds; None where nothing is known."""
        self.free = Pool(cluster)
        """GPUs with nobody on them, on nodes that are up."""
        self.on_gpu: list[tuple[int, ...]] = [()] * cluster.gpus
        """The jobs on each GPU."""
        self.groups: dict[tuple[int, ...], set[int]] = {}
        """Shared GPUs by who is on them."""
        self.regrouped: list[tuple[int, ...]] = []
        """Keys of `groups` that changed, in order, for indexes that catch up; cleared, with a new epoch, when long."""
        self.group_epoch = 0
        self.waiting: dict[int, JobState] = {}
        self.running: dict[int, JobState] = {}
        self.down: set[int] = set()
        """Nodes that are down."""
        self.asleep: set[int] = set()
        """Nodes that sleep; of a rented cluster, those that are not rented."""
        self.rented_s: dict[int, float] = {}
        """Since when a node is rented."""
        self.waking: set[int] = set()
        """Nodes on their way from sleep; their GPUs are not on offer yet."""
        self.drained: set[int] = set()
        """GPUs that take no jobs, by word of the operator."""
        self.up_gpus = cluster.gpus
        """GPUs that take jobs: not drained, and on nodes that are up."""
        self.changes = Changes()

    def usable(self, gpus: Placement) -> Placement:
        """Those of a running job's GPUs that could be used again if it left them."""
        return tuple(g for g in gpus if g not in self.drained) if self.drained else gpus

    def usable_gpus(self, nodes: Collection[int]) -> int:
        """How many GPUs of these nodes take jobs as long as the nodes are on: not the drained ones."""
        gpus = sum(self.cluster.nodes[n].gpus for n in nodes)
        return gpus - sum(self.cluster.node_of[g] in nodes for g in self.drained)

    def drained_nodes(self) -> set[int]:
        """Nodes that are of no use, on or off: all their GPUs are drained."""
        drained = Counter(self.cluster.node_of[g] for g in self.drained)
        return {n for n, gpus in drained.items() if gpus == self.cluster.nodes[n].gpus}

    def here(self, job_id: int) -> bool:
        """Whether a job is in the system, and not withdrawn."""
        return job_id in self.running or job_id in self.waiting

    # -- for drivers -----------------------------------------------------------------------------------------------

    def arrive(self, state: JobState) -> None:
        """A job was submitted, or one that was withdrawn is back."""
        self.waiting[state.job.id] = state
        self.changes.arrived.append(state)

    def withdraw(self, state: JobState) -> None:
        """A waiting job leaves the queue without having ended."""
        del self.waiting[state.job.id]
        self.changes.withdrawn.append(state)

    def start(self, state: JobState, gpus: Placement, *, shared: bool = False, sm_share: float = 1.0) -> None:
        """A waiting job now runs on these GPUs."""
        state.sm_share = sm_share
        job_id = state.job.id
        del self.waiting[job_id]
        self.running[job_id] = state
        on_gpu = self.on_gpu
        if shared:
            self.free.take(tuple(g for g in gpus if not on_gpu[g]))
        else:
            self.free.take(gpus)
        if shared:
            self._regroup(gpus, lambda residents: tuple(sorted((*residents, job_id))))
        else:
            for g in gpus:
                on_gpu[g] = (job_id,)
        # A job that leaves and starts at one moment is resized or moved: it takes only what is new.
        had = state.left_width if state.since_s == self.now_s else 0
        state.taken_gpus += max(0, len(gpus) - had)
        state.gpus = gpus
        state.shared = shared
        state.since_s = self.now_s
        state.starts += 1
        state.first_width = state.first_width or len(gpus)

    def stop(self, state: JobState, *, returned: bool = False) -> None:
        """A running job is back in the queue; `returned` if no plan asked for it."""
        self._leave(state)
        self.waiting[state.job.id] = state
        if returned:
            self.changes.returned.append(state)

    def end(self, state: JobState) -> None:
        """A job finished or was cancelled, perhaps while it was withdrawn."""
        if state.gpus:
            self._leave(state)
        else:
            self.waiting.pop(state.job.id, None)
        self.changes.ended.append(state)

    def node_down(self, node: int) -> None:
        """A node is gone; its jobs have been stopped. One that sleeps or wakes offers nothing that could be lost."""
        gpus = self._idle_gpus_of(node)
        if self._is_on(node):
            self.up_gpus -= len(gpus)
            self.free.take(gpus)
        self.asleep.discard(node)
        self.waking.discard(node)
        self.down.add(node)
        self.changes.nodes.append(node)

    def node_up(self, node: int) -> None:
        """A node is back."""
        gpus = self._idle_gpus_of(node)
        self.down.remove(node)
        self.up_gpus += len(gpus)
        self.free.give(gpus)
        self.changes.nodes.append(node)

    def sleep(self, node: int) -> None:
        """An idle node goes to sleep."""
        gpus = self._idle_gpus_of(node)
        self.asleep.add(node)
        self.rented_s.pop(node, None)
        self.up_gpus -= len(gpus)
        self.free.take(gpus)

    def wake(self, node: int) -> None:
        """A sleeping node begins to wake."""
        self.asleep.remove(node)
        self.waking.add(node)
        if self.cluster.rental is not None:
            self.rented_s[node] = self.now_s

    def awake(self, node: int) -> None:
        """A node that was waking can be used."""
        self.waking.remove(node)
        gpus = self._idle_gpus_of(node)
        self.up_gpus += len(gpus)
        self.free.give(gpus)
        self.changes.nodes.append(node)

    def drain(self, gpu: int) -> None:
        """A GPU takes no jobs from now on; one that runs there may finish."""
        node = self.cluster.node_of[gpu]
        if gpu in self.drained:
            return
        self.drained.add(gpu)
        if self._is_on(node):
            self.up_gpus -= 1
            if not self.on_gpu[gpu]:
                self.free.take((gpu,))
        self.changes.nodes.append(node)

    def undrain(self, gpu: int) -> None:
        """A drained GPU takes jobs again, at once or as soon as its node is on."""
        node = self.cluster.node_of[gpu]
        if gpu not in self.drained:
            return
        self.drained.remove(gpu)
        if self._is_on(node):
            self.up_gpus += 1
            if not self.on_gpu[gpu]:
                self.free.give((gpu,))
        self.changes.nodes.append(node)

    def decided(self) -> None:
        """A decision was taken and applied: what happens next is new."""
        self.changes = Changes()

    def _leave(self, state: JobState) -> None:
        job_id, gpus, on_gpu = state.job.id, state.gpus, self.on_gpu
        del self.running[job_id]
        if state.shared:
            self._regroup(gpus, lambda residents: tuple(j for j in residents if j != job_id))
        else:
            for g in gpus:
                on_gpu[g] = ()
        freed = gpus if not state.shared else tuple(g for g in gpus if not on_gpu[g])
        if self.down or self.drained:
            node_of = self.cluster.node_of
            freed = tuple(g for g in freed if node_of[g] not in self.down and g not in self.drained)
        self.free.give(freed)
        state.banked_gpu_s += len(gpus) * (self.now_s - state.since_s)
        state.left_width = len(gpus)
        state.gpus = NOWHERE
        state.shared = False
        state.since_s = self.now_s

    def _regroup(self, gpus: Placement, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Other jobs on these GPUs: keep `on_gpu` and `groups` in step."""
        on_gpu, groups = self.on_gpu, self.groups
        if len(self.regrouped) > 256 + 4 * len(groups):
            self.regrouped.clear()
            self.group_epoch += 1
        for g in gpus:
            old = on_gpu[g]
            new = on_gpu[g] = change(old)
            if old:
                members = groups[old]
                members.discard(g)
                if not members:
                    del groups[old]
                self.regrouped.append(old)
            if new:
                groups.setdefault(new, set()).add(g)
                self.regrouped.append(new)

    def _is_on(self, node: int) -> bool:
        return node not in self.down and node not in self.asleep and node not in self.waking

    def _idle_gpus_of(self, node: int) -> Placement:
        gpus = range(self.cluster.first_gpu[node], self.cluster.first_gpu[node + 1])
        assert not any(self.on_gpu[g] for g in gpus), f"jobs still run on node {node}"
        return tuple(g for g in gpus if g not in self.drained)
