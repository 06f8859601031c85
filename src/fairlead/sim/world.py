"""The world of a run: what is true in it, whatever policies believe, and what happens in it by itself."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.interference import EMPTY, Interference
from fairlead.model.profile import Locality
from fairlead.model.variability import Variability
from fairlead.sim.failures import Failures
from fairlead.sim.truth import Drift, Watch


@dataclass(frozen=True, slots=True)
class World:
    """Options of a simulation; as they stand, nothing fails and what is believed of GPUs is true."""

    seed: int = 0
    """Of all that happens at random."""
    locality: Locality | None = None
    """Slowdown of jobs that span nodes; overrides the jobs' profiles."""
    restart_s: float | None = None
    """The cost of each preemption or move; overrides the jobs' profiles."""
    failures: Failures | None = None
    true_variability: Variability | None = None
    """Scores of the GPUs where the cluster's are wrong."""
    drifts: tuple[Drift, ...] = ()
    correct_scores: Watch | None = None
    """Whether what is believed of GPUs is corrected from iteration times, and whose."""
    drained: tuple[int, ...] = ()
    """GPUs that take no jobs."""
    interference: Interference = EMPTY
    """What jobs that share GPUs leave each other."""
    records: bool = False
    """Whether to keep who was on which GPU when: `Result.occupancy`."""


PLAIN = World()
