"""What happens to nodes: by plans they sleep and wake, or are given back and rented; by themselves they fail."""

from __future__ import annotations

import heapq
from typing import cast

from fairlead.errors import InputError
from fairlead.model.snapshot import Snapshot
from fairlead.policy.plan import Plan
from fairlead.policy.stages import Powering
from fairlead.policy.view import View
from fairlead.sim.jobs import Jobs
from fairlead.sim.meters import Meters
from fairlead.sim.simjob import SimJob


class Nodes:
    """The nodes of one run: which are on, and when those that wake will be."""

    def __init__(self, view: View, meters: Meters, jobs: Jobs, powering: Powering, counts: dict[str, int]) -> None:
        self._cluster = view.cluster
        self._view = view
        self._meters = meters
        self._jobs = jobs
        self._counts = counts
        self._rents = powering.rents
        self._policy_wakes = powering.active
        """Whether the policy wakes nodes that sleep."""
        if self._rents and self._cluster.rental is None:
            raise InputError(
                "the policy rents nodes, but the cluster has no rental terms",
                hint="give --rent, or a table [rental] in the cluster's file",
            )
        self._spared: set[int] = set()
        """Nodes that slept through a failure: its repair is none."""
        self.awake: list[tuple[float, int]] = []
        """(moment, node): when a waking node can be used."""

    def carry_out(self, plan: Plan) -> None:
        """Send nodes to sleep and wake others."""
        for node in plan.sleep:
            self.sleep(node)
        for node in plan.wake:
            self.wake(node)

    def sleep(self, node: int) -> None:
        """An idle node goes to sleep; a rented one is given back."""
        view, meters = self._view, self._meters
        held_s = view.now_s - view.rented_s.get(node, view.now_s)
        view.sleep(node)
        if self._rents:
            meters.node_given_back(node, held_s)
        else:
            self._counts["sleeps"] += 1
            meters.node_asleep(node)

    def wake(self, node: int) -> None:
        """A node that sleeps begins to wake, or is rented and boots."""
        view, meters, rental = self._view, self._meters, self._cluster.rental
        view.wake(node)
        if self._rents and rental is not None:
            self._counts["rentals"] += 1
            meters.node_rented(node)
            delay_s = rental.boot_s
        else:
            meters.node_waking(node)
            delay_s = self._cluster.nodes[node].wake_s
        heapq.heappush(self.awake, (view.now_s + delay_s, node))

    def wake_due(self) -> None:
        """The node that wakes first can be used."""
        self._view.awake(heapq.heappop(self.awake)[1])

    def fail(self, node: int) -> None:
        """A node goes down, and its jobs lose what they have not saved; one that sleeps has nothing to lose."""
        view, first_gpu = self._view, self._cluster.first_gpu
        if node in view.asleep or node in view.waking:
            self._spared.add(node)
            return
        self._counts["node_failures"] += 1
        for job_id in sorted({j for g in range(first_gpu[node], first_gpu[node + 1]) for j in view.on_gpu[g]}):
            job = cast(SimJob, view.running[job_id])
            job.failures += 1
            self._jobs.stop(job, failed=True)
        view.node_down(node)
        self._meters.node_down(node)

    def repair(self, node: int) -> None:
        """A node that failed is back."""
        if node in self._spared:
            self._spared.discard(node)
            return
        self._view.node_up(node)
        self._meters.node_up(node)

    def give_all_back(self) -> None:
        """A rented cluster has no nodes until the policy rents some."""
        for node in range(len(self._cluster.nodes)):
            self._view.sleep(node)
            self._meters.node_given_back(node, None)

    def put_back(self, snapshot: Snapshot) -> None:
        """The nodes of a snapshot are as they were."""
        view, meters = self._view, self._meters
        for node in snapshot.down:
            view.node_down(node)
            meters.node_down(node)
        for node in snapshot.asleep:
            view.sleep(node)
            if self._rents:
                meters.node_given_back(node, None)
                continue
            meters.node_asleep(node)
            if not self._policy_wakes:
                self.wake(node)  # nobody else would
        for node, awake_s in snapshot.waking:
            view.sleep(node)
            view.wake(node)
            heapq.heappush(self.awake, (max(awake_s, snapshot.now_s), node))
        if self._rents:
            on = set(range(len(self._cluster.nodes))) - set(snapshot.asleep)
            view.rented_s.update({**dict.fromkeys(sorted(on), snapshot.now_s), **dict(snapshot.rented)})
