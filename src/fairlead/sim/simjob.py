"""A job in the simulated world: what a policy sees, plus the truth."""

from __future__ import annotations

from fairlead.model.job import Job
from fairlead.model.snapshot import SnapshotJob
from fairlead.policy.view import JobState
from fairlead.sim.work import Work


class SimJob(JobState):
    """A job with its true remaining work. Work is counted in seconds at nominal speed."""

    __slots__ = (
        "active_job_s_before", "activity_gpus", "duration_s", "end_s", "energy_j", "epoch", "failures", "first_start_s",
        "held_s", "left_s", "metered_s", "moves", "power_w", "preemptions", "progress_from_s", "resizes", "run_from_s",
        "speed", "version", "work",
    )  # fmt: skip

    def __init__(self, job: Job, duration_s: float, work: Work | None = None) -> None:
        super().__init__(job)
        self.work = work
        """Its epochs, where it trains by goodput."""
        self.epoch = 0
        self.duration_s = duration_s
        self.left_s = duration_s
        self.speed = 0.0
        self.run_from_s = 0.0
        """When it began to progress in its present run, after the restart."""
        self.progress_from_s = 0.0
        """The moment for which `left_s` is true; later than now during a restart."""
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

    def progress(self, now_s: float) -> None:
        """Bring `left_s` up to now."""
        if now_s > self.progress_from_s:
            done = now_s - self.progress_from_s
            self.left_s -= done if self.speed == 1.0 else done * self.speed
            self.progress_from_s = now_s

    def left_at(self, now_s: float) -> float:
        """What is left of its work now, in seconds at nominal speed."""
        if not self.gpus:
            return self.left_s
        return self.left_s - max(0.0, now_s - self.progress_from_s) * self.speed

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

    def recall(self, saved: SnapshotJob, now_s: float) -> None:
        """What it has had before a snapshot."""
        self.since_s, self.banked_gpu_s, self.starts = saved.since_s, saved.banked_gpu_s, saved.starts
        self.first_width = self.taken_gpus = (len(saved.placement) or saved.gpus) if saved.starts else 0
        self.held_s = saved.banked_gpu_s / saved.gpus
        self.active_job_s_before = -1.0
        if saved.placement:
            self.first_start_s = saved.since_s if saved.started_s is None else saved.started_s
            self.run_from_s = saved.since_s + (self.job.profile.restart_s if saved.starts > 1 else 0.0)
            self.progress_from_s = max(now_s, self.run_from_s)
