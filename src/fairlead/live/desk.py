"""Where decisions are made: a view, a policy stack, and what happened in between. No I/O, no clock, no processes.

The twin of the simulator's loop: the same events lead to the same plans. The view is what is *wanted*; making it true
takes a while, and is the controller's concern.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.errors import InputError
from fairlead.live.livejob import LiveJob
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.policy import laws
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import Bill, Epochs, Meter, Oracle, Reports, View

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a view has its knowledge from."""

    epochs: Epochs | None = None
    reports: Reports | None = None
    bill: Bill | None = None
    meter: Meter | None = None
    oracle: Oracle | None = None
    """Shown to policies that declare that they need one."""


class Desk:
    """The jobs that are not over, and what the policy wants for them."""

    def __init__(self, cluster: Cluster, stack: Stack, sources: Sources) -> None:
        if stack.powering.rents and cluster.rental is None:
            raise InputError(
                "the policy rents nodes, but the cluster has no rental terms",
                hint='give rent = "default", or another powering',
            )
        self.stack = stack
        s = sources
        self.view = View(cluster, s.oracle if stack.needs_oracle else None, s.epochs, s.reports, s.bill, s.meter)
        self.jobs: dict[int, LiveJob] = {}
        """Waiting and running."""
        self.wake_s = NEVER
        """The policy asked to be asked again then."""
        self.is_news = True
        """Whether anything happened since it was asked. What a plan itself changes for neighbours can wait."""
        self.waits: dict[int, str] = {}
        """Why jobs that were looked at wait, as of the last decision that looked at them."""
        self.rejected: dict[int, list[tuple[str, str]]] = {}

    # ---- what happened ----

    def arrived(self, job: LiveJob) -> None:
        """It waits for GPUs from now on."""
        self.is_news = True
        self.jobs[job.job.id] = job
        self.view.arrive(job)

    def ended(self, job: LiveJob) -> None:
        """It is over, whatever came of it."""
        self.is_news = True
        gpus, shared = job.gpus, job.shared
        self.view.end(job)
        self._forget(job)
        if shared:
            self._retime_neighbours(gpus, job)

    def returned(self, job: LiveJob) -> None:
        """It left its GPUs, and not since the policy wanted it to: it waits again."""
        self.is_news = True
        gpus, shared = job.gpus, job.shared
        self.view.stop(job, returned=True)
        if shared:
            self._retime_neighbours(gpus, job)

    def withdrawn(self, job: LiveJob) -> None:
        """It waits no longer, but has not ended: held, or backing off."""
        self.is_news = True
        if job.gpus:
            self.returned(job)
        self.view.withdraw(job)
        self._forget(job)

    def turned(self, job: LiveJob) -> None:
        """It has begun a new epoch: where trials are looked at, and a move costs least."""
        self.is_news = True
        if self.stack.sizing.elastic:
            self.view.changes.turned.append(job)

    def opened(self, gpu: int) -> None:
        """Its guard lets offline work on it again."""
        self.is_news = True
        self.view.changes.nodes.append(self.view.cluster.node_of[gpu])

    def restore(self, waiting: Iterable[LiveJob], running: Iterable[tuple[LiveJob, Placement, bool, float]]) -> None:
        """After a restart: everybody where they were. `running` has the placement, whether shared, and the SM share."""
        running, view = list(running), self.view
        for job in sorted((*waiting, *(one[0] for one in running)), key=lambda j: j.job.id):
            self.jobs[job.job.id] = job
            view.waiting[job.job.id] = job
        for job, gpus, shared, sm_share in running:
            since_s, starts, taken, first = job.since_s, job.starts, job.taken_gpus, job.first_width
            view.start(job, gpus, shared=shared, sm_share=sm_share)
            job.since_s, job.starts, job.taken_gpus, job.first_width = since_s, starts, taken, first

    # ---- decisions ----

    def next_s(self, now_s: float) -> float:
        """When the policy is to be asked: at once where something happened, but on a round where there are rounds."""
        return self.at_round(now_s if self.is_news else self.wake_s)

    def put_off(self, until_s: float) -> None:
        """Ask no more until then, unless something happens."""
        self.view.decided()
        self.is_news = False
        self.wake_s = until_s

    def at_round(self, moment_s: float) -> float:
        """The first round at or after a moment; the moment itself where there are no rounds."""
        round_s = self.stack.round_s
        return moment_s if round_s is None or moment_s == NEVER else math.ceil(moment_s / round_s) * round_s

    def decide(self) -> Plan:
        """Ask the policy, and hold what it wants to be true. A plan that breaks a law is refused whole."""
        view = self.view
        plan = self.stack.decide(view)
        laws.check(view, plan)
        view.decided()
        self.is_news = False
        for job_id in plan.evict:
            self._stop(self.jobs[job_id])
        for place in plan.place:
            if place.job_id in view.running:  # all leave before any arrives: two jobs may change places
                self._stop(self.jobs[place.job_id])
        for place in plan.place:
            job = self.jobs[place.job_id]
            view.start(job, place.gpus, shared=place.shared, sm_share=place.sm_share)
            self.waits.pop(place.job_id, None)
            self.rejected.pop(place.job_id, None)
            if place.shared:
                self._retime_neighbours(place.gpus, job)
        for node in plan.sleep:
            view.sleep(node)
        for node in plan.wake:
            view.wake(node)
        self.waits.update(plan.waits)
        self.rejected.update(plan.rejected)
        self.wake_s = NEVER if plan.wake_s is None else max(self.at_round(plan.wake_s), view.now_s)
        return plan

    def _stop(self, job: LiveJob) -> None:
        gpus, shared = job.gpus, job.shared
        self.view.stop(job)
        if shared:
            self._retime_neighbours(gpus, job)

    def _forget(self, job: LiveJob) -> None:
        del self.jobs[job.job.id]
        self.waits.pop(job.job.id, None)
        self.rejected.pop(job.job.id, None)

    def _retime_neighbours(self, gpus: Placement, job: LiveJob) -> None:
        """Whoever is on these GPUs runs on at another speed."""
        on_gpu, running = self.view.on_gpu, self.view.running
        for job_id in dict.fromkeys(j for g in gpus for j in on_gpu[g] if j != job.job.id):
            if running[job_id].job.kind != "service" or self.view.meter is None:
                self.view.changes.retimed.append(running[job_id])
