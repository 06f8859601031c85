"""What happens to nodes: by plans they sleep and wake, or are given back and rented; by themselves they fail."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from fairlead.policy.driver import Driver
from fairlead.sim.jobs import Jobs
from fairlead.sim.meters import Meters
from fairlead.sim.simjob import SimJob


class Nodes:
    """The nodes of one run: which are on, and when those that wake will be."""

    def __init__(self, driver: Driver[SimJob], meters: Meters, jobs: Jobs, counts: dict[str, int]) -> None:
        self._driver = driver
        self._view = driver.view
        self._cluster = driver.view.cluster
        self._meters = meters
        self._jobs = jobs
        self._counts = counts
        self._rents = driver.stack.powering.rents
        self._spared: set[int] = set()
        """Nodes that slept through a failure: its repair is none."""
        self.on_change: Callable[[int], None] = lambda node: None
        """Called with every node that goes on or off."""
        self.awake: list[tuple[float, int]] = []
        """(moment, node): when a waking node can be used."""

    def slept(self, node: int, rented_s: float) -> None:
        """An idle node goes to sleep; a rented one is given back."""
        if self._rents:
            self._meters.node_given_back(node, rented_s)
        else:
            self._counts["sleeps"] += 1
            self._meters.node_asleep(node)
        self.on_change(node)

    def woke(self, node: int) -> None:
        """A node that sleeps begins to wake, or is rented and boots."""
        if self._rents:
            self._counts["rentals"] += 1
            self._meters.node_rented(node)
        else:
            self._meters.node_waking(node)
        heapq.heappush(self.awake, (self._driver.awake_s(node), node))
        self.on_change(node)

    def wake_due(self) -> None:
        """The node that wakes first can be used."""
        node = heapq.heappop(self.awake)[1]
        self._driver.awake(node)
        self.on_change(node)

    def fail(self, node: int) -> None:
        """A node goes down, and its jobs lose what they have not saved; one that sleeps has nothing to lose."""
        view, first_gpu = self._view, self._cluster.first_gpu
        if node in view.asleep or node in view.waking:
            self._spared.add(node)
            return
        self._counts["node_failures"] += 1
        for job_id in sorted({j for g in range(first_gpu[node], first_gpu[node + 1]) for j in view.on_gpu[g]}):
            self._jobs.fail(self._driver.jobs[job_id])
        self._driver.node_down(node)
        self._meters.node_down(node)
        self.on_change(node)

    def repair(self, node: int) -> None:
        """A node that failed is back."""
        if node in self._spared:
            self._spared.discard(node)
            return
        self._driver.node_up(node)
        self._meters.node_up(node)
        self.on_change(node)

    def give_all_back(self) -> None:
        """A rented cluster has no nodes until the policy rents some."""
        for node in range(len(self._cluster.nodes)):
            self._view.sleep(node)
            self._meters.node_given_back(node, None)

    def resume(self) -> None:
        """The run begins in the middle: nodes are down, asleep or on their way already."""
        view, meters = self._view, self._meters
        for node in sorted(view.down):
            meters.node_down(node)
        for node in sorted(view.asleep):
            if self._rents:
                meters.node_given_back(node, None)
                continue
            meters.node_asleep(node)
            if not self._driver.stack.powering.active:
                self._driver.wake(node)  # nobody else would
        for node in sorted(view.waking):
            heapq.heappush(self.awake, (max(self._driver.awake_s(node), view.now_s), node))
