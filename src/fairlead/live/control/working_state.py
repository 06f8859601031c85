"""What a controller works on: its view of the cluster and the jobs, and what of that is not on the disk yet.

It is made from what is on the disk, and after an error another one is made: then nothing else can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.live.control.clock import Clock
from fairlead.live.control.observations import Observations
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.lifecycle import Lifecycle
from fairlead.live.storage.pending_writes import PendingWrites
from fairlead.live.storage.recovery import Recovery
from fairlead.live.storage.store import EventRow, Store
from fairlead.model.catalogue import Catalogue
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.policy.driver import Driver


@dataclass(frozen=True, slots=True)
class WorkingState:
    """One controller's, until something goes wrong."""

    driver: Driver[LiveJob]
    lifecycle: Lifecycle
    recovery: Recovery
    pending_writes: PendingWrites
    clock: Clock

    @property
    def cluster(self) -> Cluster:
        """The nodes as the policy sees them."""
        return self.driver.view.cluster

    def tell(self, what: str, about: str = "", node: int | None = None) -> None:
        """Note something that happened to the cluster or to one of its nodes."""
        name = "" if node is None else self.driver.view.cluster.nodes[node].name
        self.pending_writes.tell(EventRow(self.clock.wall_s(), what, None, name, about))

    def know(self, name: str, value: Any) -> None:
        """Save a fact, in the place of the one that had this name."""
        self.pending_writes.know(name, value)


def make(
    driver: Driver[LiveJob],
    store: Store,
    clock: Clock,
    observations: Observations,
    tail: Callable[[AttemptId, Placement], str],
    catalogue: Catalogue,
) -> WorkingState:
    """Join the parts; nothing is read from the disk yet."""
    observations.attend(driver.view, driver.stack.sharing.mode)
    pending_writes = PendingWrites(store)
    driver.effects = observations.effects(touch=pending_writes.touch)
    lifecycle = Lifecycle(driver, pending_writes, store, clock, observations, tail, catalogue)
    recovery = Recovery(driver, lifecycle, pending_writes, store, clock, observations)
    return WorkingState(driver, lifecycle, recovery, pending_writes, clock)
