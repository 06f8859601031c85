"""What policies may know of jobs and GPUs on a live cluster: what was reported and metered, else what the model says.

Jobs that report epochs (`fairlead.job`) are known by their epochs. Of others the profile and the declared estimate are
all there is, and a job without an estimate is taken to last as long again as it has run, an hour at least. In between
it goes by the speed equation, as in a simulation: where a job is, and beside whom, says how fast it works. On fake
GPUs, where nothing can be metered, neighbours cost what the interference table says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from fairlead.live.control.clock import Clock
from fairlead.live.engines.engine import GpuReading, Poll
from fairlead.live.jobs.job import LiveJob
from fairlead.model.contention import UNMEASURED, Mode, beside
from fairlead.model.interference import Interference
from fairlead.model.profile import Profile
from fairlead.model.speed import speed
from fairlead.policy.driver import Effects, Sources
from fairlead.policy.sources import Fleet, Report
from fairlead.policy.view import JobState, View

_LEAST_LEFT = 0.05
"""Of its estimate, a job that has outrun it has this much left."""
_UNKNOWN_S = 3600.0
_SOON_S = 1.0
"""An epoch that should have ended already is looked for again after this."""
_LEAST_EPOCH_S = 1e-3
"""Whatever a job says of its epochs, none is shorter."""
_NEVER = float("inf")


class Observations:
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
        self._mode: Mode = "mps"

    @property
    def view(self) -> View:
        """The view whose jobs and GPUs these observations are of."""
        assert self._view is not None
        return self._view

    def attend(self, view: View, mode: Mode) -> None:
        """Tell of this view's jobs, which share GPUs with services in that way."""
        self._view, self._mode = view, mode

    def sources(self) -> Sources:
        """Everything that a view asks for, answered by these observations."""
        return Sources(self, self, self, self, self)

    @property
    def interference(self) -> Interference:
        """What neighbours are taken to cost each other, where nobody has measured it."""
        return self._interference

    def take(self, poll: Poll) -> list[int]:
        """The GPUs as last read; gives those that take offline work again."""
        before, self._readings = self._readings, dict(poll.readings)
        for gpu, read in self._readings.items():
            if _service_part(read) != _service_part(before.get(gpu)) and self.view.on_gpu[gpu]:
                for job_id in self.view.on_gpu[gpu]:
                    self._retimed(cast(LiveJob, self.view.running[job_id]))
        return [
            g for g, r in self._readings.items() if r.accepts_offline and g in before and not before[g].accepts_offline
        ]

    def reading(self, gpu: int) -> GpuReading:
        """Of one GPU; all unknown where it was not read."""
        return self._readings.get(gpu) or GpuReading(gpu)

    # ---- how far jobs are ----

    def effects(self, touch: Callable[[LiveJob], None]) -> Effects:
        """What follows from decisions for the work of jobs; `touch` has one saved."""

        def retimed(job: LiveJob) -> None:
            self._retimed(job)
            touch(job)

        return Effects(leaves=self._leaves, started=self._started, retimed=retimed, slept=self._given_back)

    def resume(self, jobs: Iterable[LiveJob]) -> None:
        """They run, and have for a while: go on from what was saved of them."""
        for job in jobs:
            job.run_from_s = job.since_s + (job.job.profile.restart_s if job.starts > 1 else 0.0)
            job.speed = self._speed(job)

    def reported(self, job: LiveJob) -> None:
        """It has told how far it is: what is left counts from there."""
        progress = job.progress
        if progress is None:
            return
        if job.gpus and progress.epoch_s is not None and not self.view.neighbours(job):
            # Alone on its GPUs: that is what neighbours are held against.
            job.alone_epoch_s = progress.epoch_s * self._alone(job)
        if progress.epochs is not None and job.told_s is not None:
            job.epoch_s = max(self._epoch_s(job), _LEAST_EPOCH_S)
            job.duration_s = progress.epochs * job.epoch_s
            job.left_s = max(progress.epochs - progress.epochs_done, 0) * job.epoch_s
            job.progress_from_s = job.told_s

    def _started(self, job: LiveJob) -> None:
        job.begin_run(self.view.now_s)
        job.speed = self._speed(job)

    def _leaves(self, job: LiveJob) -> None:
        job.advance(self.view.now_s)

    def _retimed(self, job: LiveJob) -> None:
        job.advance(self.view.now_s)
        job.speed = self._speed(job)

    def _given_back(self, node: int, rented_s: float) -> None:
        """What is billed for a rental beyond the time that the node was held."""
        cluster = self.view.cluster
        if cluster.rental is not None:
            self.paid += cluster.nodes[node].gpus * (cluster.rental.billed_s(rented_s) - rented_s)

    def _speed(self, job: LiveJob) -> float:
        """As a multiple of its nominal speed, by the model; a service lasts as long as it lasts."""
        return 1.0 if job.job.kind == "service" else self._alone(job) * self._kept(job)

    def _alone(self, job: LiveJob) -> float:
        """With its GPUs to itself."""
        return speed(job.job, job.gpus, self.view.cluster) if job.gpus else 1.0

    def _kept(self, job: LiveJob) -> float:
        """What its neighbours leave of that; all of it, where it holds a part of a GPU."""
        view = self.view
        if job.job.gpu_frac < 1.0:
            return 1.0
        hosts = [g for g in job.gpus if any(view.running[j].job.kind == "service" for j in view.on_gpu[g])]
        if hosts and job.job.kind != "service":
            return min(self._beside_service(gpu, job) for gpu in hosts)
        return self._interference.predict(job.job.profile, view.neighbours(job))

    def _beside_service(self, gpu: int, job: LiveJob) -> float:
        running = (self.view.running[j].job for j in self.view.on_gpu[gpu])
        profile = next(one.profile for one in running if one.kind == "service")
        busy, active, _ = self.of_service(gpu, profile)
        solo = job.job.profile.solo or UNMEASURED
        service = (busy, busy if math.isnan(active) else active, 0.0, 1.0)
        offline = (solo.utilisation_frac, solo.sm_activity_frac, solo.bandwidth_frac, solo.occupancy_frac)
        return float(beside(self._mode, service, offline, job.sm_share)[0])

    # ---- epochs ----

    def done(self, state: JobState) -> int:
        """The whole epochs that a job has reported as done."""
        job = cast(LiveJob, state)
        return job.progress.epochs_done if job.progress is not None else job.epochs_done(self.view.now_s)

    def next_end_s(self, state: JobState) -> float:
        """When its present epoch ends; of a job that reports them, the one after the last that it told of."""
        job, now_s = cast(LiveJob, state), self.view.now_s
        if job.progress is not None and job.told_s is not None:
            epoch_s = job.progress.epoch_s or job.run_s(max(self._epoch_s(job), _LEAST_EPOCH_S))
            return max(max(job.told_s, job.run_from_s) + epoch_s, now_s + _SOON_S)
        epoch_end_s = job.epoch_end_s(now_s)
        return epoch_end_s if job.left_at(now_s) <= 0.0 else min(job.expected_end_s(), epoch_end_s)

    def left_s(self, state: JobState) -> float:
        """Alone on the GPUs asked for."""
        job, now_s = cast(LiveJob, state), self.view.now_s
        if job.job.kind == "service":
            return _NEVER
        left_s, progress, estimate_s = job.left_at(now_s), job.progress, job.request.estimate_s
        if progress is not None and progress.epochs is not None:
            to_come_s = (progress.epochs - progress.epochs_done - 1) * job.epoch_s
            # An epoch that takes longer than thought is not over before it says so.
            return max(left_s if left_s >= to_come_s else to_come_s + _LEAST_LEFT * job.epoch_s, 0.0)
        if estimate_s is not None:
            return left_s if left_s > 0.0 else _LEAST_LEFT * estimate_s
        return max(job.done_s(now_s), _UNKNOWN_S)

    def is_guess(self, job: LiveJob) -> bool:
        """Whether `left_s` rests on nothing that anybody said."""
        told = job.progress is not None and job.progress.epochs is not None
        return not told and job.request.estimate_s is None

    def kept_speed(self, state: JobState) -> float:
        """Of its speed alone, what its neighbours leave it."""
        job = cast(LiveJob, state)
        if not self.view.neighbours(job):
            return 1.0
        progress = job.progress
        if not self._is_fake and progress is not None and progress.epoch_s and job.alone_epoch_s:
            return min(job.alone_epoch_s / (progress.epoch_s * self._alone(job)), 1.0)
        return self._kept(job)

    def utilisation(self, gpu: int) -> float:
        """How busy a GPU is."""
        metered = self.reading(gpu).utilisation_frac
        if metered is not None and not self._is_fake:
            return metered
        running = self.view.running
        return self._interference.utilisation([running[j].job.profile for j in self.view.on_gpu[gpu]])

    # ---- the rest ----

    def report(self, state: JobState) -> Report | None:
        """What it says of its training, where its profile is known by epochs."""
        job = cast(LiveJob, state)
        training, progress = job.job.profile.training, job.progress
        if training is None or progress is None or progress.samples_per_s is None:
            return None
        epoch = min(progress.epochs_done, len(training.samples) - 1)
        nodes = self.view.cluster.spanned(job.gpus)
        return Report(epoch, len(training.samples), training.samples[epoch], nodes, progress.samples_per_s, None)

    def remaining_s(self, state: JobState) -> float:
        """A guess of what an oracle would know."""
        job, now_s = cast(LiveJob, state), self.view.now_s
        left_s = self.left_s(job)
        if not job.gpus or left_s == _NEVER:
            return left_s
        if left_s == job.left_at(now_s):
            return job.expected_end_s() - now_s
        return max(job.progress_from_s - now_s, 0.0) + job.run_s(left_s)

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
            jobs = (view.running[j].job for j in residents)
            services = [job.id for job in jobs if job.kind == "service" and job.gpu_frac >= 1.0]
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

    def accepting(self) -> list[int]:
        """The GPUs with a service whose guard lets offline work on them."""
        running = self.view.running
        hosts = ((g, jobs) for g, jobs in enumerate(self.view.on_gpu) if jobs)
        served = (g for g, jobs in hosts if any(running[j].job.kind == "service" for j in jobs))
        return [gpu for gpu in served if self.reading(gpu).accepts_offline]

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

    def _epoch_s(self, job: LiveJob) -> float:
        """An epoch alone on the GPUs asked for: as measured so, else by what is nearest to it."""
        progress, estimate_s = job.progress, job.request.estimate_s
        if job.alone_epoch_s is not None:
            return job.alone_epoch_s
        if progress is not None and progress.epoch_s is not None and job.gpus:
            return progress.epoch_s * self._alone(job) * self.kept_speed(job)
        if progress is not None and progress.epochs and estimate_s is not None:
            return estimate_s / progress.epochs
        if progress is not None and progress.epochs_done:
            return job.done_s(self.view.now_s) / progress.epochs_done
        return job.job.profile.epoch_s


def _service_part(read: GpuReading | None) -> tuple[float | None, float | None]:
    return (None, None) if read is None else (read.service_utilisation_frac, read.service_sm_activity_frac)
