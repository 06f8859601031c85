"""How fast every job runs, and so when it ends.

Between events speeds are constant. Whoever changes something that a speed follows from (where a job is, who else is
there, how slow a GPU is) has it set anew here; the end that was queued before is then stale.
"""

from __future__ import annotations

import heapq

from fairlead.model.interference import Interference
from fairlead.model.speed import speed
from fairlead.policy.driver import at_round
from fairlead.policy.view import View
from fairlead.policy.working_job import NEVER
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.simjob import SimJob
from fairlead.sim.truth import Truth

_LOOK_AFTER_S = 60.0
"""Iteration times are believed after this long: some hundred iterations."""


class Speeds:
    """Sets the speeds of jobs and keeps the queue of their ends."""

    def __init__(
        self,
        view: View,
        meters: Meters,
        truth: Truth,
        interference: Interference,
        *,
        round_s: float | None,
        watched: bool,
    ) -> None:
        self._view = view
        self._meters = meters
        self._cluster = truth.cluster
        self._interference = interference
        self._round_s = round_s
        self._watched = watched
        """Whether iteration times are looked at."""
        self.online: Online | None = None
        """The services, where there are some: they and this call each other."""
        self.ends: list[tuple[float, int, int]] = []
        """(moment, job, version) of each end; entries of older versions are stale."""
        self.looks: list[tuple[float, int, int]] = []
        """(moment, job, version): when a run has lasted long enough for its iteration time to be believed."""

    def set_speed(self, job: SimJob) -> None:
        """Speed and end from where it is and who else is there."""
        online = self.online if job.job.gpu_frac >= 1.0 else None
        neighbours = self._view.neighbours(job) if job.shared and online is None else ()
        work, scaled, left_s = job.work, None, job.left_s
        last = True
        if work is not None:
            scaled = work.speed(job.epoch, len(job.gpus), self._cluster.spanned(job.gpus))
            left_s -= work.left_s[job.epoch + 1]
            last = job.epoch + 1 == len(work.training.samples)
        job.speed = speed(job.job, job.gpus, self._cluster, neighbours, self._interference, scaled)
        if online is not None:
            # A service lasts as long as it lasts.
            job.speed = 1.0 if job.job.kind == "service" else job.speed * online.throughput(job)
        job.end_s = job.progress_from_s + max(job.run_s(left_s), 0.0)
        job.version += 1
        # What ends a hair after a round by rounding ends on it; an epoch ends when it does.
        end_s = at_round(job.end_s, self._round_s, slack=1e-9) if last else job.end_s
        heapq.heappush(self.ends, (end_s, job.job.id, job.version))
        if self._watched and not neighbours:
            look_s = max(job.progress_from_s, self._view.now_s) + _LOOK_AFTER_S
            heapq.heappush(self.looks, (look_s, job.job.id, job.version))

    def retime(self, job: SimJob) -> None:
        """It runs on at another speed."""
        job.advance(self._view.now_s)
        self.set_speed(job)
        self._meters.regauge(job)

    def retime_beside(self, job: SimJob, until_s: float) -> None:
        """The load of the service beside it has changed. Ends after the next look need not be known yet."""
        assert self.online is not None
        job.advance(self._view.now_s)
        if job.work is not None:
            self.set_speed(job)  # by epochs, each of which ends by itself
            return
        alone = speed(job.job, job.gpus, self._cluster)
        job.speed = alone * self.online.throughput(job)
        job.end_s = max(job.progress_from_s, self._view.now_s) + (job.left_s / job.speed if job.speed > 0.0 else NEVER)
        job.version += 1
        if job.end_s <= at_round(until_s, self._round_s):
            heapq.heappush(self.ends, (at_round(job.end_s, self._round_s, slack=1e-9), job.job.id, job.version))
