"""Plans: what a policy wants changed. A driver applies evictions first, then placements, in the order given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.model.placement import Placement

# Why jobs that were looked at still wait, or why something that was considered for them was not taken.
NO_FREE_GPU = "no-free-gpu"
"""Too few GPUs are free."""
GPUS_SCATTERED = "gpus-scattered"
"""Enough are free, but not on nodes where placing would put them together."""
BEHIND_ANOTHER = "behind-another"
"""Enough are free, and another job ahead of it in order has a claim on them."""
NODE_BOOTING = "node-booting"
"""A node that will do is on its way: rented, or woken."""
OVER_MEMORY = "over-memory"
OVER_UTILISATION = "over-utilisation"
DEADLINE_AT_RISK = "deadline-at-risk"
OVER_BUDGET = "over-budget"
NOT_SIZED_YET = "not-sized-yet"
"""It has come since sizing last decided."""
LOOKED_AT = 32
"""So many waiting jobs that find no place are looked at in one decision, where GPUs are shared, or explained."""
EXPLAINED = 5
"""So much that was considered is told of each job."""


class Place(NamedTuple):
    """Run a job on these GPUs: a start if it waits, a move or a resize if it runs elsewhere."""

    job_id: int
    gpus: Placement
    shared: bool = False
    """Whether other jobs may be, or come, on these GPUs."""
    sm_share: float = 1.0
    """The part of the SMs that it may use, beside a service; fixed until it starts again."""


@dataclass(slots=True)
class Plan:
    """The changes wanted now; all empty when things may stay as they are."""

    evict: list[int] = field(default_factory=list)
    """Running jobs to put back into the queue."""
    place: list[Place] = field(default_factory=list)
    sleep: list[int] = field(default_factory=list)
    """Idle nodes to send to sleep."""
    wake: list[int] = field(default_factory=list)
    """Sleeping nodes to wake."""
    waits: dict[int, str] = field(default_factory=dict)
    """Why jobs that were looked at still wait, as a short word: `no-free-gpu`. Told in full by a stack that `explains`;
    behind a head that waits in a strict order nobody is looked at."""
    rejected: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Of jobs that were looked at, what else was considered and why it was not taken: ("beside jobs 3, 7 on GPUs 4-5",
    "deadline-at-risk"). Told by a stack that `explains`, a few for each job."""
    wake_s: float | None = None
    """Ask again at this moment even if nothing happens; None is: on the next event."""
