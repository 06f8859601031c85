"""What policies may know of jobs and GPUs on a live cluster: what was reported and metered, else what the model says.

Jobs that report epochs (`fairlead.job`) are known by their epochs. Of others the profile and the declared estimate are
all there is, and a job without an estimate is taken to last as long again as it has run, an hour at least. On fake
GPUs, where nothing can be metered, neighbours cost what the interference table says.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from fairlead.live.clock import Clock
from fairlead.live.desk import Sources
from fairlead.live.engine import GpuReading, Poll
from fairlead.live.livejob import LiveJob
from fairlead.model.interference import Interference
from fairlead.model.profile import Profile
from fairlead.policy.view import Fleet, JobState, Report, View

_LEAST_LEFT = 0.05
"""Of its estimate, a job that has outrun it has this much left."""
_UNKNOWN_S = 3600.0
_SOON_S = 1.0
"""An epoch that should have ended already is looked for again after this."""
_NEVER = float("inf")


class Observed:
    """Epochs, reports, the bill, the meter and a best guess of the future, for the views of a controller."""

    def __init__(self, clock: Clock, interference: Interference, *, is_fake: bool) -> None:
        self._clock = clock
        self._interference = interference
        self._is_fake = is_fake
        self._readings: dict[int, GpuReading] = {}
        self.paid = 0.0
        """GPU-seconds paid for, up to `paid_until_s`."""
        self.paid_until_s = 0.0
        self._view: View | None = None

    @property
    def view(self) -> View:
        """Whose sources these are."""
        assert self._view is not None
        return self._view

    @view.setter
    def view(self, view: View) -> None:
        self._view = view

    def sources(self) -> Sources:
        """All of a view's."""
        return Sources(self, self, self, self, self)

    def take(self, poll: Poll) -> list[int]:
        """The GPUs as last read; gives those that take offline work again."""
        before, self._readings = self._readings, dict(poll.readings)
        return [
            g for g, r in self._readings.items() if r.accepts_offline and g in before and not before[g].accepts_offline
        ]

    def reading(self, gpu: int) -> GpuReading:
        """Of one GPU; all unknown where it was not read."""
        return self._readings.get(gpu) or GpuReading(gpu)

    def note_alone(self, job: LiveJob) -> None:
        """A job alone on its GPUs has told how long its epochs take: that is what neighbours are held against."""
        if job.progress is None or job.progress.epoch_s is None or self._neighbours(job):
            return
        job.alone_epoch_s = job.progress.epoch_s * self._scaled(job)

    # ---- epochs ----

    def done(self, state: JobState) -> int:
        """Whole epochs done."""
        job = cast(LiveJob, state)
        if job.progress is not None:
            return job.progress.epochs_done
        return int(self._run_s(job) / job.job.profile.epoch_s)

    def next_end_s(self, state: JobState) -> float:
        """When its present epoch ends, by its last ones."""
        job, now_s = cast(LiveJob, state), self.view.now_s
        progress = job.progress
        if progress is not None and progress.at_s is not None:
            last_s = max(self._clock.at_s(progress.at_s), job.since_s)
            due_s = last_s + (progress.epoch_s or self._epoch_s(job) / max(self._scaled(job), 1e-6))
        else:
            epoch_s = job.job.profile.epoch_s
            due_s = now_s + epoch_s - self._run_s(job) % epoch_s
        return max(due_s, now_s + _SOON_S)

    def left_s(self, state: JobState) -> float:
        """Alone on the GPUs asked for."""
        job = cast(LiveJob, state)
        if job.job.kind == "service":
            return _NEVER
        progress, run_s = job.progress, self._run_s(job)
        if progress is not None and progress.epochs is not None:
            return max(progress.epochs - progress.epochs_done, 0) * self._epoch_s(job)
        estimate_s = job.request.estimate_s
        if estimate_s is not None:
            return max(estimate_s - run_s, _LEAST_LEFT * estimate_s)
        return max(run_s, _UNKNOWN_S)

    def is_guess(self, job: LiveJob) -> bool:
        """Whether `left_s` rests on nothing that anybody said."""
        told = job.progress is not None and job.progress.epochs is not None
        return not told and job.request.estimate_s is None

    def kept_speed(self, state: JobState) -> float:
        """Of its speed alone, what its neighbours leave it."""
        job = cast(LiveJob, state)
        neighbours = self._neighbours(job)
        if not neighbours:
            return 1.0
        progress = job.progress
        if not self._is_fake and progress is not None and progress.epoch_s and job.alone_epoch_s:
            return min(job.alone_epoch_s / (progress.epoch_s * self._scaled(job)), 1.0)
        return self._interference.predict(job.job.profile, neighbours)

    def utilisation(self, gpu: int) -> float:
        """How busy a GPU is."""
        metered = self.reading(gpu).utilisation_frac
        if metered is not None and not self._is_fake:
            return metered
        running = self.view.running
        return self._interference.utilisation([running[j].job.profile for j in self.view.on_gpu[gpu]])

    # ---- the rest ----

    def report(self, state: JobState) -> Report | None:
        """What it says of its training, where its application is known by epochs."""
        job = cast(LiveJob, state)
        training, progress = job.job.profile.training, job.progress
        if training is None or progress is None or progress.samples_per_s is None:
            return None
        epoch = min(progress.epochs_done, len(training.samples) - 1)
        nodes = self.view.cluster.spanned(job.gpus)
        return Report(epoch, len(training.samples), training.samples[epoch], nodes, progress.samples_per_s, None)

    def remaining_s(self, state: JobState) -> float:
        """A guess of what an oracle would know."""
        job = cast(LiveJob, state)
        left_s = self.left_s(job)
        return left_s / max(self._scaled(job) * self.kept_speed(job), 1e-6) if job.gpus else left_s

    def paid_gpu_s(self) -> float:
        """GPU-seconds of rented nodes, booting and idle ones included, up to now."""
        self.pay(self.view.now_s)
        return self.paid

    def pay(self, now_s: float) -> None:
        """Up to this moment, for the nodes that are rented."""
        gpus = sum(self.view.cluster.nodes[node].gpus for node in self.view.rented_s)
        self.paid += gpus * max(now_s - self.paid_until_s, 0.0)
        self.paid_until_s = now_s

    def fleet(self) -> Fleet:
        """The services on their GPUs."""
        view, rows = self.view, []
        for gpu, residents in enumerate(view.on_gpu):
            services = [j for j in residents if view.running[j].job.kind == "service"]
            if services:
                rows.append((gpu, services[0], next((j for j in residents if j not in services), -1)))
        seen = [self.of_service(gpu, view.running[service].job.profile) for gpu, service, _ in rows]
        columns = np.array(seen, dtype=np.float64).reshape(len(rows), 3)
        return Fleet(
            gpu=np.array([r[0] for r in rows], dtype=np.int64),
            service=np.array([r[1] for r in rows], dtype=np.int64),
            utilisation_frac=columns[:, 0],
            sm_activity_frac=columns[:, 1],
            memory_frac=columns[:, 2],
            accepts=np.array([self._accepts(r[0]) for r in rows], dtype=bool),
            offline=np.array([r[2] for r in rows], dtype=np.int64),
        )

    def _accepts(self, gpu: int) -> bool:
        """Not beside a service that another policy has put there alone."""
        view = self.view
        is_shared = all(view.running[j].shared for j in view.on_gpu[gpu])
        return is_shared and self.reading(gpu).accepts_offline and gpu not in view.drained

    def of_service(self, gpu: int, profile: Profile) -> tuple[float, float, float]:
        """Utilisation, SM activity (NaN if unknown) and memory of a service, metered or as its profile says."""
        read, solo = self.reading(gpu), profile.solo
        busy = read.service_utilisation_frac
        active = read.service_sm_activity_frac
        room_mib = self.view.cluster.gpu_model(gpu).memory_mib
        memory = None if read.service_memory_mib is None else read.service_memory_mib / room_mib
        return (
            busy if busy is not None else solo.utilisation_frac if solo else profile.activity_frac,
            active if active is not None else solo.sm_activity_frac if solo else math.nan,
            memory if memory is not None else profile.memory_mib / room_mib,
        )

    def _run_s(self, job: LiveJob) -> float:
        """How long it has run, as if on the GPUs asked for."""
        return job.attained_gpu_s(self.view.now_s) / job.job.gpus

    def _epoch_s(self, job: LiveJob) -> float:
        """An epoch alone on the GPUs asked for: as measured so, else by what is nearest to it."""
        progress, estimate_s = job.progress, job.request.estimate_s
        if job.alone_epoch_s is not None:
            return job.alone_epoch_s
        if progress is not None and progress.epoch_s is not None and job.gpus:
            return progress.epoch_s * self._scaled(job) * self.kept_speed(job)
        if progress is not None and progress.epochs and estimate_s is not None:
            return estimate_s / progress.epochs
        if progress is not None and progress.epochs_done:
            return self._run_s(job) / progress.epochs_done * self.kept_speed(job)
        return job.job.profile.epoch_s

    def _scaled(self, job: LiveJob) -> float:
        """Its speed on the GPUs that it has over that on the GPUs asked for, by its profile."""
        speedup = job.job.profile.speedup
        return speedup(len(job.gpus) or job.job.gpus) / speedup(job.job.gpus)

    def _neighbours(self, job: LiveJob) -> list[Profile]:
        """Of the most crowded of its GPUs."""
        running, on_gpu, own = self.view.running, self.view.on_gpu, job.job.id
        others = ([running[j].job.profile for j in on_gpu[g] if j != own] for g in job.gpus)
        return max(others, key=lambda profiles: sum(p.activity_frac for p in profiles), default=[])
