"""Observations: what was seen of one job over one stretch of time in which nothing about it changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairlead.model.placement import Placement

Unit = Literal["epochs", "samples", "steps"]
"""What work is counted in: as the job reports it, or `steps` that are told from its kernel launches."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One job on the same GPUs, beside the same jobs, for a while. What nobody measured is None."""

    job_id: int
    application: str
    """Jobs of one application are taken to be alike: a profile's name, a name that the user gave, a fingerprint."""
    at_s: float
    """When the stretch ended."""
    seconds: float
    """How long it lasted, without the start-up."""
    gpus: Placement
    neighbours: tuple[str, ...] = ()
    """The applications of the others on the most crowded of its GPUs."""
    spans_nodes: bool = False
    utilisation_frac: float | None = None
    """The part of the time in which a kernel of this job was on the GPU, mean over its GPUs."""
    sm_activity_frac: float | None = None
    dram_activity_frac: float | None = None
    occupancy_frac: float | None = None
    memory_peak_mib: float | None = None
    """On the GPU where it has most."""
    power_w: float | None = None
    """Of one of its GPUs, with all that runs there."""
    work: float | None = None
    """Epochs, samples or steps that were done in these seconds; None of a job that reports nothing."""
    unit: Unit = "epochs"
    start_s: float | None = None
    """Seconds from being placed to its first work, where this stretch is the first of a run."""
    restarted: bool = False
    """Whether that run continued from a checkpoint."""

    @property
    def width(self) -> int:
        """On how many GPUs it ran."""
        return len(self.gpus)

    @property
    def alone(self) -> bool:
        """Whether it had its GPUs to itself."""
        return not self.neighbours

    @property
    def rate(self) -> float | None:
        """Work done in a second; None where none was seen."""
        return self.work / self.seconds if self.work is not None and self.seconds > 0.0 else None
