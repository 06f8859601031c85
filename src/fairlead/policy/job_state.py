"""A job that is in the system, as a policy sees it."""

from __future__ import annotations

from fairlead.model.job import Job
from fairlead.model.placement import NOWHERE, Placement


class JobState:
    """A job that is in the system: what it is, where it runs and the service it has had."""

    __slots__ = (
        "banked_gpu_s", "first_width", "gpus", "job", "left_width", "shared", "since_s", "sm_share", "starts",
        "taken_gpus",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        self.job = job
        self.gpus: Placement = NOWHERE
        """Where it runs; empty while it waits."""
        self.shared = False
        self.sm_share = 1.0
        """The part of the SMs that it may use where it is."""
        self.since_s = job.submit_s
        """When it was placed there, or began to wait."""
        self.banked_gpu_s = 0.0
        self.starts = 0
        self.first_width = 0
        """GPUs of its first run; 0 until it has started."""
        self.taken_gpus = 0
        """GPUs that it has started on or grown by, all together."""
        self.left_width = 0
        """GPUs of the run that it left last."""

    @property
    def held_gpus(self) -> float:
        """What it holds now: GPUs, or a part of one."""
        return len(self.gpus) * self.job.gpu_frac

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of service so far."""
        return self.banked_gpu_s + self.held_gpus * (now_s - self.since_s) if self.gpus else self.banked_gpu_s

    def __lt__(self, other: JobState) -> bool:
        # In heaps whose entries are equal so far: one job, made anew from what was saved of it.
        return self.job.id < other.job.id

    def __repr__(self) -> str:
        return f"<job {self.job.id} {self.job.name!r} on {self.gpus or 'nothing'}>"
