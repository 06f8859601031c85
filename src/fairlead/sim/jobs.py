"""What happens to jobs: they arrive, start, stop, begin their next epoch and end.

The driver says when; here is what follows from it for the meters, the services and the speeds.
"""

from __future__ import annotations

import heapq

from fairlead.errors import RunError
from fairlead.model.job import Job
from fairlead.model.placement import Placement
from fairlead.model.snapshot import SnapshotJob
from fairlead.policy.driver import Driver
from fairlead.policy.plan import Plan
from fairlead.policy.snapshots import recall_progress
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.result import JobRows
from fairlead.sim.simjob import SimJob
from fairlead.sim.speeds import Speeds
from fairlead.sim.work import Works


class Jobs:
    """The jobs of one run, from their arrival to their end."""

    def __init__(
        self,
        driver: Driver[SimJob],
        meters: Meters,
        speeds: Speeds,
        online: Online | None,
        works: Works,
        rows: JobRows,
        counts: dict[str, int],
    ) -> None:
        self._driver = driver
        self._view = driver.view
        self._meters = meters
        self._speeds = speeds
        self._online = online
        self._works = works
        self._rows = rows
        self._counts = counts
        self.ended_gpu_s = 0.0
        self.ended_energy_j = 0.0
        self.before_gpu_s = 0.0
        """What jobs had had when the run began."""

    # -- what happens to them ----------------------------------------------------------------------------------------

    def made(self, spec: Job, duration_s: float) -> SimJob:
        """A job as it is when it is new."""
        work = self._works.of(spec)
        return SimJob(spec, duration_s if work is None else work.duration_s, work)

    def arrive(self, spec: Job, duration_s: float) -> None:
        """A job is submitted, and waits."""
        job = self.made(spec, duration_s)
        job.active_job_s_before = self._meters.running_job_s + self._meters.waiting_job_s
        self._counts["events"] += 1
        self._counts["arrived"] += 1
        self._driver.arrived(job)

    def resume(self) -> None:
        """The run begins in the middle: jobs are on their GPUs already."""
        now_s, running = self._view.now_s, [self._driver.jobs[j] for j in self._view.running]
        for job in self._driver.jobs.values():
            self._counts["arrived"] += 1
            self.before_gpu_s += job.attained_gpu_s(now_s)
        for job in running:
            self._meters.started(job)
            if self._online is not None and job.job.gpu_frac >= 1.0:
                self._online.started(job, now_s)
        for job in running:  # speeds come last: they follow from who is where
            self._speeds.set_speed(job)
            self._meters.regauge(job)

    def resume_progress(self, job: SimJob, saved: SnapshotJob) -> None:
        """It ends when it would have ended, to the last digit."""
        if recall_progress(job, saved, self._view.now_s):
            self._speeds.set_speed(job)

    def fail(self, job: SimJob) -> None:
        """Its node went down: it loses what it has not saved."""
        job.failures += 1
        job.advance(self._view.now_s)
        job.lose_progress(self._view.now_s)
        self._driver.returned(job)

    def evict(self, job: SimJob) -> None:
        """A guard makes it leave."""
        job.preemptions += 1
        self._driver.returned(job)

    def end_due(self, now_s: float) -> None:
        """Whatever ends by now: jobs, or epochs of theirs."""
        ends, running, jobs = self._speeds.ends, self._view.running, self._driver.jobs
        while ends and ends[0][0] <= now_s:
            _, job_id, version = heapq.heappop(ends)
            if job_id in running and (job := jobs[job_id]).version == version:
                if job.work is not None and job.epoch + 1 < len(job.work.training.samples):
                    self._turn(job)
                else:
                    self._end(job)

    # -- effects of decisions ----------------------------------------------------------------------------------------

    def planned(self, plan: Plan) -> None:
        """Count who is preempted, moved and resized."""
        jobs, counts = self._driver.jobs, self._counts
        for job_id in plan.evict:
            jobs[job_id].preemptions += 1
            counts["preemptions"] += 1
        for place in plan.place:
            job = jobs[place.job_id]
            if len(place.gpus) == len(job.gpus):
                job.moves += 1
                counts["moves"] += 1
            elif job.gpus:
                job.resizes += 1
                counts["resizes"] += 1

    def leaves(self, job: SimJob) -> None:
        """What it has done by now is done."""
        now_s = self._view.now_s
        job.advance(now_s)
        job.version += 1
        job.held_s += now_s - job.since_s

    def left(self, job: SimJob, gpus: Placement) -> None:
        """It is off its GPUs."""
        self._meters.stopped(job, gpus)
        if self._online is not None and job.job.gpu_frac >= 1.0:
            self._online.left(job, gpus, self._view.now_s)

    def started(self, job: SimJob) -> None:
        """It is on its GPUs."""
        now_s = self._view.now_s
        if job.first_start_s < 0.0:
            job.first_start_s = now_s
        job.begin_run(now_s)
        self._meters.started(job)
        if self._online is not None and job.job.gpu_frac >= 1.0:
            self._online.started(job, now_s)
        self._speeds.set_speed(job)

    def retimed(self, job: SimJob) -> None:
        """Somebody came to its GPUs or left them."""
        if job.job.kind == "service" and self._online is not None:
            self._meters.regauge(job)
        else:
            self._speeds.retime(job)

    def _turn(self, job: SimJob) -> None:
        """A job begins its next epoch, in which it has another speed."""
        assert job.work is not None
        self._counts["events"] += 1
        job.epoch += 1
        job.left_s = job.work.left_s[job.epoch]
        job.progress_from_s = self._view.now_s
        self._speeds.set_speed(job)
        if self._driver.stack.sizing.elastic:
            self._driver.turned(job)

    def _end(self, job: SimJob) -> None:
        meters, now_s = self._meters, self._view.now_s
        self._driver.ended(job)
        self._counts["events"] += 1
        self._counts["ended"] += 1
        self.ended_gpu_s += job.banked_gpu_s
        self.ended_energy_j += job.energy_j
        if job.left_s > 1e-6 + 1e-9 * job.duration_s:
            raise RunError(f"{job} ended with {job.left_s} s of work left")
        self._rows.write(job, now_s, meters.running_job_s + meters.waiting_job_s)
