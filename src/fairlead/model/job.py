"""A job as its owner describes it: what it asks for, never how long it will really take.

True durations belong to a world (the simulator's trace, the real GPUs) and reach a policy only through an oracle that
the policy has to declare. A `Job` can therefore be shown to any policy whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairlead.model.profile import GENERIC, Profile

Kind = Literal["training", "service"]
KINDS: tuple[Kind, ...] = ("training", "service")


@dataclass(frozen=True, slots=True)
class Job:
    """One training job or service.

    A job is *rigid* when `min_gpus == gpus == max_gpus` and *elastic* otherwise: a sizing policy may then run it on any
    width between the two. `deadline_s` counts from submission. A larger `priority` is more urgent.
    """

    id: int
    """Its number in order of submission; ties in every ordering end here."""
    name: str
    submit_s: float
    gpus: int
    """GPUs asked for. The nominal duration of a job is its duration on this many median GPUs of one node."""
    profile: Profile = GENERIC
    kind: Kind = "training"
    min_gpus: int = 1
    max_gpus: int = 1
    memory_mib: float = 0.0
    """Peak memory on each GPU; 0 is unknown."""
    gpu_frac: float = 1.0
    """The part of a GPU that it asks for and holds; below 1 only of a job that runs on one GPU."""
    deadline_s: float | None = None
    priority: int = 0
    user: str = ""
    batch: int = 0
    """The total batch that it was submitted with; 0 leaves it to the job."""
    group: str = ""
    """The group that its user belongs to; one inside another is written `lab.vision`."""
    cpus: float = 0.0
    """CPU cores that it asks for, all together; 0 is none. Counted where the cluster says what its nodes have."""
    ram_mib: float = 0.0
    """Memory of the host, likewise."""

    @property
    def elastic(self) -> bool:
        """Whether its width may be chosen."""
        return self.min_gpus != self.max_gpus

    @property
    def due_s(self) -> float:
        """The moment of its deadline on the clock; infinite without one."""
        return float("inf") if self.deadline_s is None else self.submit_s + self.deadline_s
