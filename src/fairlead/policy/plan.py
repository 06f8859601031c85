"""Plans: what a policy wants changed. A driver applies evictions first, then placements, in the order given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.model.placement import Placement

NO_FREE_GPU = "no-free-gpu"
"""The reason of a job that was looked at and found no GPUs."""


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
    """Why jobs that were looked at still wait, as a short word: `no-free-gpu`."""
    wake_s: float | None = None
    """Ask again at this moment even if nothing happens; None is: on the next event."""
