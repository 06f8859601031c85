"""A job in the simulated world: what a policy sees, plus the truth."""

from __future__ import annotations

from fairlead.model.job import Job
from fairlead.policy.working_job import WorkingJob
from fairlead.sim.work import Work


class SimJob(WorkingJob):
    """A job with its true work, and what is counted and metered of it."""

    __slots__ = (
        "active_job_s_before", "activity_gpus", "end_s", "energy_j", "epoch", "failures", "first_start_s", "held_s",
        "metered_s", "moves", "power_w", "preemptions", "resizes", "version", "work",
    )  # fmt: skip

    def __init__(self, job: Job, duration_s: float, work: Work | None = None) -> None:
        super().__init__(job, duration_s)
        self.work = work
        """Its epochs, where it trains by goodput."""
        self.epoch = 0
        self.end_s = 0.0
        """When it ends at its present speed; of a job with epochs, when the present one does."""
        self.version = 0
        """Counts changes of `end_s`: an end event of an older version is stale."""
        self.first_start_s = -1.0
        self.held_s = 0.0
        self.preemptions = 0
        self.moves = 0
        self.resizes = 0
        self.failures = 0
        self.energy_j = 0.0
        self.power_w = 0.0
        self.activity_gpus = 0.0
        self.metered_s = 0.0
        self.active_job_s_before = 0.0

    def lose_progress(self, now_s: float) -> None:
        """Fall back to the last checkpoint of the present run."""
        ran_s = now_s - self.run_from_s
        if ran_s > 0.0:
            every_s = self.job.profile.checkpoint_every_s
            lost_s = ran_s % every_s if every_s > 0.0 else 0.0
            most_s = self.duration_s if self.work is None else self.work.left_s[self.epoch]
            self.left_s = min(most_s, self.left_s + lost_s * self.speed)

    def bank(self, now_s: float) -> None:
        """It still runs when the run is over: what it has had so far."""
        self.banked_gpu_s = self.attained_gpu_s(now_s)
        self.since_s = now_s
