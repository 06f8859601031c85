"""What a view can ask of the simulated world: what jobs report, what is metered, what was paid, and the future."""

from __future__ import annotations

from typing import cast

import numpy as np

from fairlead.model.interference import Interference
from fairlead.policy.sources import Fleet, Report
from fairlead.policy.view import JobState, View
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.simjob import SimJob


class Observations:
    """The oracle, the epochs, the reports, the bill and the meter of a view (`policy.view`), in one."""

    def __init__(
        self,
        view: View,
        meters: Meters,
        interference: Interference,
        online: Online | None,
        paid_before_gpu_s: float = 0.0,
    ) -> None:
        self._cluster = view.cluster
        self._view = view
        self._meters = meters
        self._interference = interference
        self._online = online
        self._paid_before_gpu_s = paid_before_gpu_s

    def remaining_s(self, state: JobState) -> float:
        """The oracle: what only the world knows."""
        job, now_s = cast(SimJob, state), self._view.now_s
        if job.work is not None and job.gpus:
            nodes = self._cluster.spanned(job.gpus)
            run_s = job.work.run_s(job.left_at(now_s), job.epoch, len(job.gpus), nodes)
            if job.speed > 0.0:
                run_s *= job.work.speed(job.epoch, len(job.gpus), nodes) / job.speed  # slow GPUs, in all epochs alike
            return max(0.0, job.progress_from_s - now_s) + run_s
        return job.end_s - now_s if job.gpus else job.left_s

    def paid_gpu_s(self) -> float:
        """GPU-seconds paid for so far, before the run too."""
        return self._meters.paid_gpu_s + self._paid_before_gpu_s

    def fleet(self) -> Fleet:
        """The services on their GPUs, as metered."""
        assert self._online is not None
        fleet = self._online.fleet(self._view.now_s)
        if self._view.drained:
            fleet.accepts[:] &= ~np.isin(fleet.gpu, sorted(self._view.drained))
        return fleet

    def report(self, state: JobState) -> Report | None:
        """What a job says of its training."""
        job = cast(SimJob, state)
        if job.work is None or not job.gpus or self._view.now_s <= job.run_from_s:
            return None
        training, epoch, width, nodes = job.work.training, job.epoch, len(job.gpus), self._cluster.spanned(job.gpus)
        goodput, steps = training.goodput_at(epoch, width, nodes), training.steps_at(epoch, width, nodes)
        return Report(epoch, len(training.samples), training.samples[epoch], nodes, goodput, steps)

    def done(self, state: JobState) -> int:
        """The whole epochs that a job has done."""
        job = cast(SimJob, state)
        return job.epoch if job.work is not None else job.epochs_done(self._view.now_s)

    def next_end_s(self, state: JobState) -> float:
        """When the present epoch ends; the last one ends with the job."""
        job = cast(SimJob, state)
        if job.work is not None:
            return job.end_s
        return min(job.end_s, job.epoch_end_s(self._view.now_s))

    def left_s(self, state: JobState) -> float:
        """What is left, alone on the GPUs asked for."""
        return cast(SimJob, state).left_at(self._view.now_s)

    def kept_speed(self, state: JobState) -> float:
        """What neighbours leave of its speed."""
        job = cast(SimJob, state)
        return self._interference.predict(job.job.profile, self._view.neighbours(job)) if job.shared else 1.0

    def utilisation(self, gpu: int) -> float:
        """How busy a GPU is."""
        running = self._view.running
        return self._interference.utilisation([running[j].job.profile for j in self._view.on_gpu[gpu]])
