"""What happens to jobs: they arrive, start, stop, begin their next epoch and end.

Each of these is told to everybody whom it concerns: the view, the meters, the services and the neighbours.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import cast

from fairlead.errors import RunError
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import View
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.pace import Pace
from fairlead.sim.result import JobRows
from fairlead.sim.simjob import SimJob
from fairlead.sim.work import Works


class Jobs:
    """The jobs of one run, from their arrival to their end."""

    def __init__(
        self,
        view: View,
        meters: Meters,
        pace: Pace,
        online: Online | None,
        works: Works,
        rows: JobRows,
        counts: dict[str, int],
        *,
        tells_epochs: bool,
    ) -> None:
        self._view = view
        self._meters = meters
        self._pace = pace
        self._online = online
        self._works = works
        self._rows = rows
        self._counts = counts
        self._tells_epochs = tells_epochs
        """Whether the policy is asked when a job begins an epoch."""
        self.ended_gpu_s = 0.0
        self.ended_energy_j = 0.0
        self.before_gpu_s = 0.0
        """What jobs had had when the run began."""

    def arrive(self, spec: Job, duration_s: float) -> None:
        """A job is submitted."""
        work = self._works.of(spec)
        job = SimJob(spec, duration_s if work is None else work.duration_s, work)
        meters, counts = self._meters, self._counts
        job.active_job_s_before = meters.running_job_s + meters.waiting_job_s
        counts["events"] += 1
        counts["arrived"] += 1
        self._view.arrive(job)

    def put_back(self, snapshot: Snapshot, numbered: Mapping[int, tuple[Job, float]]) -> None:
        """Jobs of a snapshot are where they were; `numbered` has each with the work that is left of it."""
        for saved in snapshot.jobs:
            if saved.id in numbered:
                self._put_back(saved, snapshot.now_s, *numbered[saved.id])
        # Speeds come last: they follow from who is where.
        for state in self._view.running.values():
            self._pace.set_speed(cast(SimJob, state))
            self._meters.regauge(cast(SimJob, state))

    def carry_out(self, plan: Plan) -> None:
        """Evict, move, resize and start jobs."""
        running, counts = self._view.running, self._counts
        for job_id in plan.evict:
            job = cast(SimJob, running[job_id])
            job.preemptions += 1
            counts["preemptions"] += 1
            self.stop(job)
        moved = [p for p in plan.place if p.job_id in running]
        for place in moved:
            # All leave before any arrives: two jobs may change places.
            job = cast(SimJob, running[place.job_id])
            if len(place.gpus) == len(job.gpus):
                job.moves += 1
                counts["moves"] += 1
            else:
                job.resizes += 1
                counts["resizes"] += 1
            self.stop(job)
        for place in plan.place:
            self._start(place)

    def stop(self, job: SimJob, *, failed: bool = False, evicted: bool = False) -> None:
        """A job goes back into the queue: by a plan, or since its node failed or a guard evicted it."""
        now_s, gpus, shared = self._view.now_s, job.gpus, job.shared
        job.progress(now_s)
        if failed:
            job.lose_progress(now_s)
        job.version += 1
        job.held_s += now_s - job.since_s
        self._view.stop(job, returned=failed or evicted)
        self._meters.stopped(job, gpus)
        if self._online is not None:
            self._online.left(job, gpus, now_s)
        if shared:
            self._pace.retime_neighbours(gpus, job)

    def end_due(self, now_s: float) -> None:
        """Whatever ends by now: jobs, or epochs of theirs."""
        ends, running = self._pace.ends, self._view.running
        while ends and ends[0][0] <= now_s:
            _, job_id, version = heapq.heappop(ends)
            job = cast("SimJob | None", running.get(job_id))
            if job is not None and job.version == version:
                if job.work is not None and job.epoch + 1 < len(job.work.training.samples):
                    self._turn(job)
                else:
                    self._end(job)

    def _put_back(self, saved: SnapshotJob, now_s: float, spec: Job, left_s: float) -> None:
        view, job = self._view, SimJob(spec, left_s, self._works.of(spec))
        self._counts["arrived"] += 1
        self.before_gpu_s += saved.attained_gpu_s(now_s)
        view.arrive(job)
        if saved.placement:
            view.start(job, saved.placement, shared=saved.shared, sm_share=saved.sm_share)
            self._meters.started(job)
        job.recall(saved, now_s)
        if saved.placement and self._online is not None:
            self._online.started(job, now_s)

    def _start(self, place: Place) -> None:
        view = self._view
        job = cast(SimJob, view.waiting[place.job_id])
        view.start(job, place.gpus, shared=place.shared, sm_share=place.sm_share)
        now_s = view.now_s
        if job.first_start_s < 0.0:
            job.first_start_s = now_s
        job.progress_from_s = now_s if job.starts == 1 else now_s + job.job.profile.restart_s
        job.run_from_s = job.progress_from_s
        self._meters.started(job)
        if self._online is not None:
            self._online.started(job, now_s)
        self._pace.set_speed(job)
        if place.shared:
            self._pace.retime_neighbours(place.gpus, job)

    def _turn(self, job: SimJob) -> None:
        """A job begins its next epoch, in which it has another speed."""
        assert job.work is not None
        self._counts["events"] += 1
        job.epoch += 1
        job.left_s = job.work.left_s[job.epoch]
        job.progress_from_s = self._view.now_s
        self._pace.set_speed(job)
        if self._tells_epochs:
            self._view.changes.turned.append(job)

    def _end(self, job: SimJob) -> None:
        now_s, gpus, shared, meters = self._view.now_s, job.gpus, job.shared, self._meters
        job.progress(now_s)
        job.held_s += now_s - job.since_s
        self._view.end(job)
        meters.stopped(job, gpus)
        if self._online is not None:
            self._online.left(job, gpus, now_s)
        self._counts["events"] += 1
        self._counts["ended"] += 1
        self.ended_gpu_s += job.banked_gpu_s
        self.ended_energy_j += job.energy_j
        if job.left_s > 1e-6 + 1e-9 * job.duration_s:
            raise RunError(f"{job} ended with {job.left_s} s of work left")
        if job.job.id < len(self._rows):
            self._rows.write(job, now_s, meters.running_job_s + meters.waiting_job_s)
        if shared:
            self._pace.retime_neighbours(gpus, job)
