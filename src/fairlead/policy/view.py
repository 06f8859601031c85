"""Views: a read-only picture of now, kept up to date by a driver.

The simulator and the live controller each own one `View` and tell it what happened through the methods under "for
drivers". Policies read it and never write. What happened since the last decision is in `changes`, so that a policy can
do work in proportion to what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from fairlead.model.cluster import Cluster
from fairlead.model.placement import NOWHERE, Placement
from fairlead.model.profile import Profile
from fairlead.policy.changes import Changes
from fairlead.policy.job_state import JobState as JobState  # policies import it from here
from fairlead.policy.parts import Parts
from fairlead.policy.pool import Pool
from fairlead.policy.scores import Scores
from fairlead.policy.sources import Bill, Epochs, Meter, Oracle, Reports
from fairlead.policy.usage import Usage


class View:
    """Now: the clock, the jobs, the GPUs and who is on them."""

    __slots__ = (
        "asking", "asleep", "bill", "changes", "cluster", "down", "drained", "epochs", "free", "group_epoch", "groups",
        "meter", "now_s", "on_gpu", "oracle", "parts", "regrouped", "rented_s", "reports", "running", "scores",
        "up_gpus", "usage", "waiting", "waking",
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
        self.usage: Usage | None = None
        """GPU-seconds that users have held; None where nobody asks (`count_usage`)."""
        self.parts = Parts(cluster) if cluster.states_hosts else None
        """What is left of GPUs and hosts; None as long as nobody has asked for a part of them."""
        self.asking: set[int] = set()
        """The jobs, waiting and running, that ask for a part of a GPU, or of hosts that say what they have."""
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

    def neighbours(self, state: JobState) -> list[Profile]:
        """The applications of the others on the most crowded of a running job's GPUs.

        Of a job that asked for a part of a GPU there are none: what it gets is its own.
        """
        if state.job.gpu_frac < 1.0:
            return []
        running, on_gpu, own = self.running, self.on_gpu, state.job.id
        others = ([running[j].job.profile for j in on_gpu[g] if j != own] for g in state.gpus)
        return max(others, key=lambda profiles: sum(p.activity_frac for p in profiles), default=[])

    def count_usage(self) -> Usage:
        """Count what users hold, from now on."""
        if self.usage is None:
            self.usage = Usage()
            for state in self.running.values():
                if not state.shared or state.job.gpu_frac < 1.0:
                    self.usage.change((state.job.group, state.job.user), state.held_gpus, self.now_s)
            for group, gpus in self.groups.items():
                for _ in gpus:
                    self.usage.regroup([], [self.running[j] for j in group], self.now_s)
        return self.usage

    # -- for drivers -----------------------------------------------------------------------------------------------

    def arrive(self, state: JobState) -> None:
        """A job was submitted, or one that was withdrawn is back."""
        self.enter(state)
        self.changes.arrived.append(state)

    def enter(self, state: JobState) -> None:
        """A job is in the system and waits; nothing has happened by that."""
        job = state.job
        self.waiting[job.id] = state
        if job.gpu_frac < 1.0:
            self.parts = self.parts or Parts(self.cluster)
            self.asking.add(job.id)
        elif (job.cpus or job.ram_mib) and self.cluster.states_hosts:
            self.asking.add(job.id)

    def withdraw(self, state: JobState) -> None:
        """A waiting job leaves the queue without having ended."""
        del self.waiting[state.job.id]
        self.asking.discard(state.job.id)
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
        if state.job.gpu_frac < 1.0:
            for g in gpus:
                on_gpu[g] = tuple(sorted((*on_gpu[g], job_id)))
        elif shared:
            self._regroup(gpus, lambda residents: tuple(sorted((*residents, job_id))))
        else:
            for g in gpus:
                on_gpu[g] = (job_id,)
        if self.usage is not None and (not shared or state.job.gpu_frac < 1.0):
            self.usage.change((state.job.group, state.job.user), len(gpus) * state.job.gpu_frac, self.now_s)
        if self.parts is not None:
            self.parts.take(state.job, gpus)
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
        self.asking.discard(state.job.id)
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
        """A node that was down is back, with all its GPUs free."""
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
        if self.parts is not None:
            self.parts.touch(node)
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
        if self.parts is not None:
            self.parts.touch(node)
        self.changes.nodes.append(node)

    def decided(self) -> None:
        """A decision was taken and applied: what happens next is new."""
        self.changes = Changes()

    def _leave(self, state: JobState) -> None:
        job_id, gpus, on_gpu = state.job.id, state.gpus, self.on_gpu
        if state.job.gpu_frac < 1.0:
            for g in gpus:
                on_gpu[g] = tuple(j for j in on_gpu[g] if j != job_id)
        elif state.shared:
            self._regroup(gpus, lambda residents: tuple(j for j in residents if j != job_id))
        else:
            for g in gpus:
                on_gpu[g] = ()
        if self.usage is not None and (not state.shared or state.job.gpu_frac < 1.0):
            self.usage.change((state.job.group, state.job.user), -state.held_gpus, self.now_s)
        if self.parts is not None:
            self.parts.give(state.job, gpus)
        del self.running[job_id]
        freed = gpus if not state.shared else tuple(g for g in gpus if not on_gpu[g])
        if self.down or self.drained:
            node_of = self.cluster.node_of
            freed = tuple(g for g in freed if node_of[g] not in self.down and g not in self.drained)
        self.free.give(freed)
        state.banked_gpu_s += len(gpus) * state.job.gpu_frac * (self.now_s - state.since_s)
        state.left_width = len(gpus)
        state.gpus = NOWHERE
        state.shared = False
        state.since_s = self.now_s

    def _regroup(self, gpus: Placement, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Other jobs on these GPUs: keep `on_gpu` and `groups` in step."""
        on_gpu, groups, running = self.on_gpu, self.groups, self.running
        if len(self.regrouped) > 256 + 4 * len(groups):
            self.regrouped.clear()
            self.group_epoch += 1
        for g in gpus:
            old = on_gpu[g]
            new = on_gpu[g] = change(old)
            if self.usage is not None:
                self.usage.regroup([running[j] for j in old], [running[j] for j in new], self.now_s)
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
