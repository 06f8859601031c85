"""A job with work in it: how much is left, and how fast it goes. Policies see the `JobState` alone.

Work is counted in seconds at nominal speed: alone on the GPUs asked for. The simulator knows it, a live controller
believes it; the arithmetic is the same.
"""

from __future__ import annotations

import math

from fairlead.model.job import Job
from fairlead.policy.job_state import JobState

NEVER = math.inf


class WorkingJob(JobState):
    """What a world knows of a job beyond what its policy sees."""

    __slots__ = ("duration_s", "epoch_s", "left_s", "progress_from_s", "run_from_s", "speed")

    def __init__(self, job: Job, duration_s: float) -> None:
        super().__init__(job)
        self.duration_s = duration_s
        """All of its work, done and left; infinite of a service without end."""
        self.left_s = duration_s
        self.epoch_s = job.profile.epoch_s
        """The work of one epoch."""
        self.speed = 0.0
        """As a multiple of its nominal speed, while it has GPUs."""
        self.run_from_s = 0.0
        """When it began to progress in its present run, after the restart."""
        self.progress_from_s = 0.0
        """The moment for which `left_s` is true; later than now during a restart."""

    def begin_run(self, now_s: float) -> None:
        """It was placed: the first time it goes at once, later it has to restart first."""
        self.progress_from_s = now_s if self.starts == 1 else now_s + self.job.profile.restart_s
        self.run_from_s = self.progress_from_s

    def advance(self, now_s: float) -> None:
        """Bring `left_s` up to now."""
        if now_s > self.progress_from_s:
            done = now_s - self.progress_from_s
            self.left_s -= done if self.speed == 1.0 else done * self.speed
            self.progress_from_s = now_s

    def left_at(self, now_s: float) -> float:
        """What is left of its work now."""
        if not self.gpus:
            return self.left_s
        return self.left_s - max(0.0, now_s - self.progress_from_s) * self.speed

    def run_s(self, left_s: float) -> float:
        """How long so much of its work takes at its present speed."""
        return left_s if self.speed == 1.0 else left_s / self.speed if self.speed > 0.0 else NEVER

    def expected_end_s(self) -> float:
        """When it ends if it keeps its GPUs and its speed."""
        return self.progress_from_s + max(self.run_s(self.left_s), 0.0)

    def done_s(self, now_s: float) -> float:
        """The work that is done; of work without end none ever is."""
        return self.duration_s - self.left_at(now_s) if self.duration_s < NEVER else 0.0

    def epochs_done(self, now_s: float) -> int:
        """The whole epochs that its work done so far makes."""
        return int(self.done_s(now_s) / self.epoch_s + 1e-9)

    def epoch_end_s(self, now_s: float) -> float:
        """When its present epoch ends at the speed it has; the last one may be shorter."""
        done_s = self.done_s(now_s)
        to_go_s = self.epoch_s * (int(done_s / self.epoch_s + 1e-9) + 1) - done_s
        return max(now_s, self.progress_from_s) + self.run_s(to_go_s)
