"""The driver: asks a stack, checks the laws, and holds what it has decided to be true. No I/O, no clock, no processes.

The simulator and the live controller each own one. They tell it what happened, and when it is (`view.now_s`); at every
event of theirs they ask whether the stack is to be asked (`is_due`). They differ in how effects happen: for the
simulator a job that is placed runs, for the controller the view is what is *wanted*, and making it true takes a while.

With rounds the stack is asked at multiples of an interval only: at the first one after something happened. A sizing
that changes widths is asked at the end of an epoch too, as that is when a change costs least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.model.interference import Interference
from fairlead.model.placement import Placement
from fairlead.policy import laws
from fairlead.policy.job_state import JobState
from fairlead.policy.plan import Place, Plan
from fairlead.policy.sources import Bill, Epochs, Meter, Oracle, Reports
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.policy.working_job import NEVER

J = TypeVar("J", bound=JobState)
Put = tuple[J, Placement, bool, float]
"""A job, its GPUs, whether it shares them, and its share of the SMs."""
_HAIR = 1e-9
"""A moment that is this part of a round past one, by rounding errors, is that round."""


def at_round(moment_s: float, round_s: float | None, slack: float = 0.0) -> float:
    """The first round at or after a moment; the moment itself where there are no rounds."""
    if round_s is None or moment_s == NEVER:
        return moment_s
    return math.ceil(moment_s / round_s - slack) * round_s


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a view has its knowledge from."""

    epochs: Epochs | None = None
    reports: Reports | None = None
    bill: Bill | None = None
    meter: Meter | None = None
    oracle: Oracle | None = None
    """Shown to policies that declare that they need one."""


def _nothing(*_: Any) -> None:
    """Where a world has nothing to do."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a world does about decisions; each is called with a job of the world's own kind, or a node."""

    leaves: Callable[[Any], None] = _nothing
    """It is about to leave its GPUs, or to end there."""
    left: Callable[[Any, Placement], None] = _nothing
    """It has left these."""
    started: Callable[[Any], None] = _nothing
    """It has GPUs from now on."""
    retimed: Callable[[Any], None] = _nothing
    """Somebody came to its GPUs, or left them: its speed is another one."""
    regauged: Callable[[Any], None] = _nothing
    """Somebody came to the GPU of which it holds a part, or left: its speed stays, its part of the power does not."""
    planned: Callable[[Plan], None] = _nothing
    """The plan is lawful and comes true next."""
    slept: Callable[[int, float], None] = _nothing
    """A node is off from now on, after so many seconds of rent."""
    woke: Callable[[int], None] = _nothing
    """A node is on its way."""


class Driver(Generic[J]):
    """The jobs that are waiting or running, what the policy wants for them, and when it is to be asked."""

    def __init__(
        self,
        cluster: Cluster,
        stack: Stack,
        sources: Sources | None = None,
        ask: Callable[[Stack, View], Plan] = lambda stack, view: stack.decide(view),
    ) -> None:
        if stack.powering.rents and cluster.rental is None:
            raise InputError(
                "the policy rents nodes, but the cluster has no rental terms",
                hint='give --rent, a table [rental] in the cluster\'s file, or engine.rent = "default"',
            )
        self.stack = stack
        self.view = View(cluster)
        self.effects = Effects()
        self.jobs: dict[int, J] = {}
        """Waiting and running."""
        self.wake_s = NEVER
        """The policy asked to be asked again then."""
        self.news_s = NEVER
        """When something happened first since it was asked."""
        self.woken_s: dict[int, float] = {}
        """Since when nodes are on their way."""
        self.waits: dict[int, str] = {}
        """Of a stack that explains: why jobs wait, as of the last decision that looked at them."""
        self.rejected: dict[int, list[tuple[str, str]]] = {}
        self._ask = ask
        if sources is not None:
            self.inform(sources)

    def inform(self, sources: Sources) -> None:
        """Say where the view has its knowledge from."""
        view = self.view
        view.oracle = sources.oracle if self.stack.needs_oracle else None
        view.epochs, view.reports, view.bill, view.meter = sources.epochs, sources.reports, sources.bill, sources.meter

    # ---- what happened to jobs ----

    def happened(self) -> None:
        """The policy is to be asked."""
        if self.view.now_s < self.news_s:
            self.news_s = self.view.now_s

    def arrived(self, job: J) -> None:
        """It waits for GPUs from now on."""
        self.happened()
        self.jobs[job.job.id] = job
        self.view.arrive(job)

    def ended(self, job: J) -> None:
        """It is over, whatever came of it."""
        self.happened()
        if job.gpus:
            self._leave(job, self.view.end)
        else:
            self.view.end(job)
        self._forget(job)

    def returned(self, job: J) -> None:
        """It left its GPUs, and not since the policy wanted it to: it waits again."""
        self.happened()
        self._leave(job, self._take_back)

    def withdrawn(self, job: J) -> None:
        """It waits no longer, but has not ended: held, or backing off."""
        self.happened()
        if job.gpus:
            self.returned(job)
        self.view.withdraw(job)
        self._forget(job)

    def turned(self, job: J) -> None:
        """It has begun a new epoch: where trials are looked at, and a move costs least. No sizing changes a service."""
        self.happened()
        if self.stack.sizing.elastic and job.job.kind != "service":
            self.wake_s = min(self.wake_s, self.view.now_s)
            self.view.changes.turned.append(job)

    def retimed(self, job: J) -> None:
        """It runs on at another speed."""
        self.happened()
        self.view.changes.retimed.append(job)

    # ---- what happened to nodes and GPUs ----

    def node_down(self, node: int) -> None:
        """It is gone; its jobs have returned."""
        self.happened()
        self.woken_s.pop(node, None)
        self.view.node_down(node)

    def node_up(self, node: int) -> None:
        """A node that was down is back."""
        self.happened()
        self.view.node_up(node)

    def awake(self, node: int) -> None:
        """It was on its way, and can be used."""
        self.happened()
        self.woken_s.pop(node, None)
        self.view.awake(node)

    def drain(self, gpu: int) -> None:
        """It takes no jobs from now on."""
        self.happened()
        self.view.drain(gpu)

    def undrain(self, gpu: int) -> None:
        """A drained GPU takes jobs again."""
        self.happened()
        self.view.undrain(gpu)

    def wake(self, node: int) -> None:
        """It is woken, or rented."""
        self.view.wake(node)
        self.woken_s[node] = self.view.now_s
        self.effects.woke(node)

    def rescored(self, app_class: str) -> None:
        """Something new is believed of the GPUs, for jobs of that class."""
        self.happened()
        self.view.changes.rescored.add(app_class)

    def opened(self, gpu: int) -> None:
        """Its guard lets offline work on it again."""
        self.happened()
        self.view.changes.nodes.append(self.view.cluster.node_of[gpu])

    # ---- beginning in the middle ----

    def restore(self, waiting: Iterable[J], running: Iterable[Put[J]]) -> None:
        """Everybody where they were, with the service that they have had; nothing has happened by that."""
        running, view = list(running), self.view
        for job in sorted((*waiting, *(put[0] for put in running)), key=lambda j: j.job.id):
            self.jobs[job.job.id] = job
            view.enter(job)
        for job, gpus, shared, sm_share in running:
            since_s, starts, taken, first = job.since_s, job.starts, job.taken_gpus, job.first_width
            view.start(job, gpus, shared=shared, sm_share=sm_share)
            job.since_s, job.starts, job.taken_gpus, job.first_width = since_s, starts, taken, first

    def separate(self) -> list[J]:
        """A policy before this one may have shared GPUs; where this one does not, one job stays on each.

        Services stay first, then whoever has been there longest. The others wait again; they are given back.
        """
        taken: set[int] = set()
        leaving: list[J] = []
        if not self.stack.sharing.shares:
            running = (self.jobs[job_id] for job_id in self.view.running)
            for job in sorted(running, key=lambda j: (j.job.kind != "service", j.since_s, j.job.id)):
                if job.job.gpu_frac < 1.0:
                    continue  # whoever holds a part goes by its own rules
                if taken.isdisjoint(job.gpus):
                    taken.update(job.gpus)
                else:
                    leaving.append(job)
        for job in leaving:
            self.returned(job)
        return leaving

    def restore_nodes(
        self, down: Iterable[int], asleep: Iterable[int], awake_s: Mapping[int, float], rented_s: Mapping[int, float]
    ) -> None:
        """Nodes as they were; `awake_s` has those on their way with the moment when they can be used."""
        view = self.view
        for node in down:
            view.node_down(node)
        for node in (*asleep, *awake_s):
            view.sleep(node)
        for node, at_s in awake_s.items():
            view.wake(node)
            self.woken_s[node] = at_s - self._wake_delay_s(node)
        if self.stack.powering.active and view.cluster.rental is not None:
            on = [node for node in range(len(view.cluster.nodes)) if node not in view.asleep]
            view.rented_s = {node: rented_s.get(node, view.now_s) for node in on}

    def recall(
        self,
        policy: str,
        knowledge: Mapping[str, Any] | None,
        history: Mapping[str, Any] | None = None,
        *,
        missed: bool = True,
    ) -> bool:
        """Take over what the policy that was there before had learnt; tells whether it is the same that goes on.

        Another one starts from what was measured of jobs beside each other, if that is of use to it.
        """
        if knowledge is not None and policy == self.stack.spec:
            self.stack.recall(knowledge, self.view, missed=missed)
            return True
        if history is not None and self.stack.sharing.learnt is not None:
            self.stack.sharing.learn_from(Interference.from_dict(history))
        return False

    # ---- decisions ----

    def awake_s(self, node: int) -> float:
        """When a node that is on its way can be used."""
        return self.woken_s[node] + self._wake_delay_s(node)

    def _wake_delay_s(self, node: int) -> float:
        cluster = self.view.cluster
        if self.stack.powering.rents and cluster.rental is not None:
            return cluster.rental.boot_s
        return cluster.nodes[node].wake_s

    @property
    def next_s(self) -> float:
        """When the policy is to be asked as things stand: as soon as something happened, or when it wants to be."""
        news_s = self.news_s
        return self.wake_s if news_s == NEVER else min(at_round(news_s, self.stack.round_s, _HAIR), self.wake_s)

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be asked at this event.

        What a plan itself has changed for neighbours is no reason to ask by itself, but at the next event it counts.
        """
        if self.next_s <= now_s:
            return True
        return bool(self.view.changes) and at_round(now_s, self.stack.round_s, _HAIR) <= now_s

    def put_off(self, until_s: float) -> None:
        """Ask no more until then, unless something happens."""
        self.view.decided()
        self.news_s, self.wake_s = NEVER, until_s

    def decide(self) -> Plan:
        """Ask the policy, and hold what it wants to be true. A plan that breaks a law is refused whole."""
        view = self.view
        plan = self._ask(self.stack, view)
        laws.check(view, plan)
        view.decided()
        self.news_s = NEVER
        self.effects.planned(plan)
        self._apply(plan)
        if self.stack.explains:
            self.waits.update(plan.waits)
            self.rejected.update(plan.rejected)
        wake_s = plan.wake_s
        self.wake_s = NEVER if wake_s is None else max(at_round(wake_s, self.stack.round_s), view.now_s)
        return plan

    def _apply(self, plan: Plan) -> None:
        jobs, view = self.jobs, self.view
        for job_id in plan.evict:
            self._leave(jobs[job_id], view.stop)
        for place in plan.place:
            if place.job_id in view.running:  # all leave before any arrives: two jobs may change places
                self._leave(jobs[place.job_id], view.stop)
        for place in plan.place:
            self._start(jobs[place.job_id], place)
        for node in plan.sleep:
            rented_s = view.now_s - view.rented_s.get(node, view.now_s)
            view.sleep(node)
            self.effects.slept(node, rented_s)
        for node in plan.wake:
            self.wake(node)

    def _start(self, job: J, place: Place) -> None:
        self.view.start(job, place.gpus, shared=place.shared, sm_share=place.sm_share)
        if self.stack.explains:
            self.waits.pop(place.job_id, None)
            self.rejected.pop(place.job_id, None)
        self.effects.started(job)
        if place.shared:
            self._retime_neighbours(place.gpus, job)

    def _leave(self, job: J, how: Callable[[JobState], None]) -> None:
        gpus, shared = job.gpus, job.shared
        self.effects.leaves(job)
        how(job)
        self.effects.left(job, gpus)
        if shared:
            self._retime_neighbours(gpus, job)

    def _take_back(self, job: JobState) -> None:
        self.view.stop(job, returned=True)

    def _retime_neighbours(self, gpus: Placement, job: J) -> None:
        """Whoever is on these GPUs runs on at another speed. A service whose latency is metered has no speed."""
        view, own = self.view, job.job.id
        on_gpu, is_metered = view.on_gpu, view.meter is not None
        for job_id in dict.fromkeys(j for g in gpus for j in on_gpu[g] if j != own):
            neighbour = self.jobs[job_id]
            if neighbour.job.gpu_frac < 1.0:
                self.effects.regauged(neighbour)
                continue
            self.effects.retimed(neighbour)
            if neighbour.job.kind != "service" or not is_metered:
                view.changes.retimed.append(neighbour)

    def _forget(self, job: J) -> None:
        del self.jobs[job.job.id]
        if self.stack.explains:
            self.waits.pop(job.job.id, None)
            self.rejected.pop(job.job.id, None)
