"""The jobs of a node: those that are being started, those that run, and services that wait for their restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from fairlead.errors import InputError
from fairlead.node.event_log import EventLog
from fairlead.node.gpu import memory_quotas, usage
from fairlead.node.gpu.energy import Energy
from fairlead.node.gpu.gpus import NodeGpus
from fairlead.node.gpu.meter import Meter
from fairlead.node.guard.latency import Keys
from fairlead.node.guard.scrape import Scrapes
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.exit_watch import ExitWatch
from fairlead.node.process.restarts import Restarts
from fairlead.node.running_jobs import RunningJob, RunningJobs
from fairlead.node.worker_threads import WorkerThreads


class TakeOff(Protocol):
    """How a job is taken off its GPUs."""

    def __call__(self, running_job: RunningJob, reason: str, grace_s: float | None = None) -> None:
        """Begin its eviction, for this reason."""
        ...


class JobTable:
    """Starts jobs, notes where they are, and deals with their ends. Whoever calls holds the lock, but for `launch`."""

    def __init__(
        self,
        lock: threading.Condition,
        clock: Callable[[], float],
        meter: Meter,
        node_gpus: NodeGpus,
        running_jobs: RunningJobs,
        keys: Keys,
        scrapes: Scrapes,
        exit_watch: ExitWatch,
        workers: WorkerThreads,
        event_log: EventLog,
        *,
        failing_s: float,
        most_failures: int,
        take_off: TakeOff,
        look_soon: Callable[[], None],
    ) -> None:
        """`look_soon` is called where a job has ended already, or is about to."""
        self._lock, self._clock, self._meter = lock, clock, meter
        self._node_gpus, self._running_jobs = node_gpus, running_jobs
        self._keys, self._scrapes = keys, scrapes
        self._exit_watch, self._workers, self._event_log = exit_watch, workers, event_log
        self._most_failures, self._take_off, self._look_soon = most_failures, take_off, look_soon
        self.restarts = Restarts(failing_s, most_failures)
        self.running: dict[AttemptId, RunningJob] = {}
        self.starting: dict[AttemptId, RunningJob] = {}
        """Those that are being started, by a thread that does not hold the lock."""
        self.energy: dict[LaunchId, Energy] = {}
        """Of launches that are over."""

    def holds(self, attempt: AttemptId) -> bool:
        """Whether it runs here, or will again without anybody's doing."""
        with self._lock:
            return attempt in self.running or attempt in self.starting or attempt in self.restarts

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs here, nor will again without anybody's doing."""
        with self._lock:
            return not self.running and not self.starting and not self.restarts

    def expect(self, order: Order) -> RunningJob | None:
        """The first half: from now on it is here, and can be stopped. None where there is nothing to launch."""
        with self._lock:
            self._node_gpus.of(order)
            if order.id in self.starting:
                return None
            if self._running_jobs.was_started(order.id):
                first = RunningJob(order, LaunchId(order.id))
                if not self.holds(order.id) and not self._running_jobs.over(first):
                    self.join(first, "adopted")  # it came up after all, when we had given up waiting
                return None
            return self._expect(order, LaunchId(order.id))

    def launch(self, running_job: RunningJob) -> None:
        """The second, without the lock: disks, MPS and users' folders may take their time. Raises where it fails."""
        try:
            mps = self._node_gpus.mps_of(running_job.order)
            self._running_jobs.start(mps, running_job, memory_quotas.limit_mib(running_job))
        except BaseException:
            with self._lock:
                self.starting.pop(running_job.id, None)
            raise
        with self._lock:
            self._started(running_job)

    def ended(self, running_job: RunningJob, now_s: float) -> str | None:
        """No process of it is left. Gives why MPS must be restarted, if it must."""
        order = running_job.order
        if self.running.pop(order.id, None) is None:
            return None
        status = self._running_jobs.launcher.status(running_job.launch)
        self.energy[running_job.launch] = self._node_gpus.leave(running_job)
        self._exit_watch.drop(running_job.launch)
        self._keys.drop(order.id)
        self._scrapes.drop(order.id)
        self._running_jobs.forget(running_job)
        self._event_log.tell_job(running_job, "ended", f"{status.reason} {status.exit_code}")
        node_gpu = self._node_gpus.under(running_job)[0]
        if running_job.is_stopped:
            node_gpu.mps_recovery.forget(order.id)
            return None
        reason = None
        if order.is_service and self._node_gpus.mps_of(order) is not None and running_job.eviction is None:
            reason = node_gpu.mps_recovery.ended(order.id, now_s)
        by_itself = reason is None and running_job.eviction is None
        if not self.restarts.ended(running_job, status, by_itself=by_itself):
            self._event_log.tell_job(running_job, "given-up", f"{self._most_failures} failures in a row")
        return reason

    def _expect(self, order: Order, launch: LaunchId) -> RunningJob:
        """It is about to be started: it is here for whoever asks, and can be stopped."""
        made = RunningJob(order, launch, memory_quotas.at_start(self._node_gpus, order))
        self.starting[order.id] = made
        return made

    def _started(self, running_job: RunningJob) -> None:
        del self.starting[running_job.id]
        self.join(running_job, "started")
        for node_gpu in self._node_gpus.under(running_job):
            memory_quotas.renew(node_gpu)  # those who were alone until now
        if running_job.is_stopped and running_job.id in self.running:
            self._take_off(running_job, "stop-requested", running_job.grace_s)
        self._exit_watch.call()

    def join(self, running_job: RunningJob, what: str) -> None:
        """It runs: its GPUs, its guard and whoever watches for its end know of it from now on."""
        node_gpus = self._node_gpus.under(running_job)
        if not node_gpus:
            return  # of GPUs that are no longer here
        order, launch, launcher = running_job.order, running_job.launch, self._running_jobs.launcher
        self.running[order.id] = running_job
        running_job.pid = launcher.status(launch).pid
        running_job.pids = set() if running_job.pid is None else {running_job.pid}
        usage.charge_so_far(self._node_gpus, self._meter.read())  # what was used before it came is not its own
        self._node_gpus.join(running_job)
        if order.is_service and self._node_gpus.mps_of(order) is not None:
            node_gpus[0].mps_recovery.started(order.id, self._clock())
        if order.is_service:
            self._keys.add(launcher.secret(launch), order.id)
            self._scrapes.add(order)
        descriptor = launcher.open_watch(launch)
        if descriptor is None:
            self._look_soon()  # it has ended already
        else:
            self._exit_watch.add(launch, descriptor)
        self._event_log.tell_job(running_job, what)

    def start_waiting(self) -> None:
        """Start the services again whose GPUs are ready for them."""
        for order, launch in self.restarts.ready(self._accepts):
            self._start_again(self._expect(order, launch))

    def _start_again(self, running_job: RunningJob) -> None:
        order, mps = running_job.order, self._node_gpus.mps_of(running_job.order)

        def started(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                self._started(running_job)
                return
            del self.starting[order.id]
            self._event_log.tell_job(running_job, "start-failed", str(error))
            if not running_job.is_stopped:
                self.restarts.wait(order, self._running_jobs.next_launch(order.id))

        most_mib = memory_quotas.limit_mib(running_job)
        self._workers.do(lambda: self._running_jobs.start(mps, running_job, most_mib), started)

    def _accepts(self, order: Order) -> bool:
        """Whether a service may be started again now, as far as its GPUs are concerned."""
        return not any(node_gpu.is_restarting_mps for node_gpu in self._node_gpus.of(order))

    def find(self, attempt: AttemptId) -> RunningJob:
        """A job that runs here; an error where it does not."""
        if attempt not in self.running:
            raise InputError(f"{attempt.in_words} is not on this machine")
        return self.running[attempt]
