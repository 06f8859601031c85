"""The node agent: guards the GPUs of this machine and the services on them.

Where a service has a neighbour it reads clock and utilisation ten times a second, listens to the services, updates the
launch rate of every GPU and publishes it to the offline jobs, which is also the heartbeat that their shims wait for.
Once a second where jobs run, and whenever one ends, it looks around: the guard's state, joules per job, MPS, faults.
What may take long (MPS commands, kills) is done by workers, so that the heartbeat never waits for them.

The decisions are elsewhere and pure: `GuardedGpu` (rates and states), `MpsRecovery` (MPS), the guard's `Eviction` (how
a job is taken off its GPUs). Here they are carried out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from fairlead.node.agent_config import AgentConfig
from fairlead.node.event_log import Event, EventLog
from fairlead.node.gpu import memory_quotas, usage
from fairlead.node.gpu.energy import Energy
from fairlead.node.gpu.gpus import NodeGpu, NodeGpus
from fairlead.node.gpu.meter import Meter
from fairlead.node.guard.busy_page import BusyPage, bearable_inflight_s
from fairlead.node.guard.eviction import Evictions
from fairlead.node.guard.latency import Keys, SocketSource, Source
from fairlead.node.guard.scrape import Scrapes
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.job_table import JobTable
from fairlead.node.mps import survey
from fairlead.node.mps.daemon import MpsDaemon
from fairlead.node.mps.survey import Survey
from fairlead.node.order import Order
from fairlead.node.process.exit_watch import ExitWatch
from fairlead.node.process.launcher import Launcher
from fairlead.node.running_jobs import RunningJob, RunningJobs
from fairlead.node.stopping import OVER_QUOTA
from fairlead.node.worker_threads import WorkerThreads
from fairlead.policy.guarding import Remedy, State, Transition

_IDLE_FRAC = 0.6
"""Of the longest time between two samples that is no gap to the guard."""


class Agent:
    """One machine's. `folder` keeps what survives a restart; a short path, since sockets are made in it.

    Its calls may come from any thread.
    """

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        *,
        library: Path | None = None,
        sources: Sequence[Source] = (),
        config: AgentConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.config = config or AgentConfig()
        self.lock = threading.Condition()
        """Held while anything changes; hold it to look at several things at once. Notified with every event."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._folder, self._meter, self._clock = folder, meter, clock
        self._event_log = EventLog(self.lock, clock, on_event)
        c = self.config
        launcher = Launcher(folder / "jobs", cgroup_parent=c.cgroup_parent, rules=c.rules)
        self._running_jobs = RunningJobs(folder, launcher, library)
        keys, scrapes = Keys(), Scrapes(clock)
        self._sources: list[Source] = [SocketSource(self._running_jobs.socket, keys, clock), scrapes, *sources]
        self._exit_watch = ExitWatch()
        self._workers = WorkerThreads(8, self._exit_watch.call)
        self._looked_s = float("-inf")
        self._ticked_s = clock()
        self._node_gpus = NodeGpus(folder, meter, c.guard, c.mps_recovery, self._daemon, clock())
        self._evictions = Evictions(
            c.guard.eviction, self._running_jobs, self._node_gpus, self._workers, self._event_log
        )
        self._jobs = JobTable(
            self.lock, clock, meter, self._node_gpus, self._running_jobs, keys, scrapes, self._exit_watch,
            self._workers, self._event_log, failing_s=c.failing_s, most_failures=c.most_failures,
            take_off=self._take_off, look_soon=self._look_soon,
        )  # fmt: skip
        for running_job in self._running_jobs.adopt():
            self._jobs.join(running_job, "adopted")

    # ---- what others ask of it ----

    @property
    def events(self) -> Sequence[Event]:
        """What it has told, the oldest first; those of long ago are forgotten."""
        return self._event_log.events

    @property
    def launcher(self) -> Launcher:
        """What it starts jobs with; to look at."""
        return self._running_jobs.launcher

    def start(self, order: Order) -> None:
        """Run an attempt, unless it was ever started here; whether its GPUs are healthy is not asked.

        Others wait for nothing meanwhile, as long as the caller does not hold the lock.
        """
        running_job = self.expect(order)
        if running_job is not None:
            self.launch(running_job)

    def expect(self, order: Order) -> RunningJob | None:
        """The first half: from now on it is here, and can be stopped. None where there is nothing to launch."""
        return self._jobs.expect(order)

    def launch(self, running_job: RunningJob) -> None:
        """The second, without the lock: disks, MPS and users' folders may take their time. Raises where it fails."""
        self._jobs.launch(running_job)

    def holds(self, attempt: AttemptId) -> bool:
        """Whether it runs here, or will again without anybody's doing."""
        return self._jobs.holds(attempt)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, nor will again without anybody's doing."""
        return self._jobs.is_empty

    @property
    def energy(self) -> dict[LaunchId, Energy]:
        """What launches that are over have used; whoever has noted it takes it out."""
        return self._jobs.energy

    def energy_so_far(self, attempt: AttemptId) -> Energy:
        """What a job that runs has used on all of its GPUs."""
        with self.lock:
            found = [node_gpu.energy.jobs[attempt] for node_gpu in self._node_gpus if attempt in node_gpu.energy.jobs]
            return sum(found, Energy())

    def counted_at_s(self, attempt: AttemptId) -> float | None:
        """Up to when `energy_so_far` counts, as time of day; None where nothing of the job runs, as it is all there."""
        with self.lock:
            running_job = self._jobs.running.get(attempt)
            node_gpus = () if running_job is None else self._node_gpus.under(running_job)
            return min((node_gpu.counted_at_s for node_gpu in node_gpus), default=None)

    def was_started(self, attempt: AttemptId) -> bool:
        """Whether it was ever started here."""
        return self._running_jobs.was_started(attempt)

    def evict(self, attempt: AttemptId, reason: str, grace_s: float | None = None) -> None:
        """Take a job off its GPUs in the safe order; a service comes back."""
        with self.lock:
            if attempt not in self._jobs.starting:  # the guard will see it once it is there
                self._take_off(self._jobs.find(attempt), reason, grace_s)

    def stop(self, attempt: AttemptId, grace_s: float | None = None) -> None:
        """End a job for good, in the same order; SIGKILL comes so long after SIGTERM, if it must."""
        with self.lock:
            if self._jobs.restarts.forget(attempt):
                return
            running_job = self._jobs.starting.get(attempt) or self._jobs.find(attempt)
            running_job.is_stopped, running_job.grace_s = True, grace_s
            if attempt in self._jobs.running:  # else as soon as it is there
                self._take_off(running_job, "stop-requested", grace_s)

    def enable(self, uuid: str) -> bool:
        """Put a GPU that its guard has disabled back into the pool; False where it was not disabled."""
        with self.lock:
            node_gpu = self._node_gpus[uuid]
            if node_gpu.guarded.guard.state is not State.DISABLED:
                return False
            self._tell_changes(node_gpu, node_gpu.guarded.guard.enable(self._clock()))
            return True

    def node_gpu(self, uuid: str) -> NodeGpu:
        """What is known of a GPU; to look at, not to change."""
        return self._node_gpus[uuid]

    @property
    def node_gpus(self) -> tuple[NodeGpu, ...]:
        """Of all GPUs, by index."""
        return tuple(self._node_gpus)

    def run(self, stopping: threading.Event, then: Callable[[], None] = lambda: None) -> None:
        """Until told to stop; `then` is called after every period. `wake` makes it notice at once.

        Jobs go on afterwards; without a heartbeat their shims fall back to the floor rate.
        """
        due_s = self._clock()
        while not stopping.is_set():
            try:
                self.tick()
                then()
            except Exception as error:  # whatever it is: a service without an agent is worse
                self._event_log.tell("agent-error", f"{type(error).__name__}: {error}")
            now_s, period_s = self._clock(), self._period_s()
            # What was late is not caught up on, and who was woken early is not late the next time.
            due_s = min(max(due_s + period_s, now_s), now_s + period_s)
            if self._exit_watch.wait(due_s - now_s):
                self._look_soon()

    def wake(self) -> None:
        """End the wait between two periods."""
        self._exit_watch.call()

    def close(self) -> None:
        """Let go of everything but the jobs."""
        self._workers.close()
        for source in self._sources:
            source.close()
        for running_job in self._jobs.running.values():
            running_job.let_go()
        self._meter.close()
        self._exit_watch.close()

    # ---- the loop ----

    def tick(self) -> None:
        """Do what one period asks for: sample, guard, publish, look around."""
        with self.lock:
            self._tick()
            self._ticked_s = self._clock()

    @property
    def guard_age_s(self) -> float:
        """Since the last whole period, in which the guards looked at their GPUs."""
        return self._clock() - self._ticked_s

    def _period_s(self) -> float:
        """As often as the launch rate needs it where there is one to be controlled, else as often as the guard.

        Where nothing runs, just often enough for the guard not to lose sight: a reading costs 5 to 7 ms for each GPU.
        """
        guard = self.config.guard
        with self.lock:
            is_ending = any(running_job.eviction is not None for running_job in self._jobs.running.values())
            is_beside = any(
                node_gpu.guarded.has_service and len(node_gpu.running_jobs) > 1 for node_gpu in self._node_gpus
            )
            if is_ending or is_beside:
                return guard.rate.period_s
            return max(_IDLE_FRAC * guard.gap_s if self.is_idle else guard.sample_s, guard.rate.period_s)

    def _tick(self) -> None:
        now_s = self._clock()
        guard = self.config.guard
        is_full = now_s - self._looked_s >= guard.sample_s - 0.5 * guard.rate.period_s
        self._workers.settle()
        for report in (report for source in self._sources for report in source.poll()):
            for node_gpu in self._node_gpus:
                node_gpu.guarded.report(report)
        for sample in self._meter.read(processes=bool(self._jobs.running), brief=not is_full):
            node_gpu = self._node_gpus[sample.uuid]
            order = node_gpu.guarded.period(sample, now_s)
            node_gpu.xids += sample.xids or ()
            if is_full:
                node_gpu.take(sample)
            for running_job in node_gpu.running_jobs.values():
                running_job.publish(order, node_gpu.uuid)
        self._tell_services()
        for running_job in list(self._jobs.running.values()):
            if running_job.eviction is not None and self._evictions.go_on(running_job, now_s):
                self._look_soon()  # the next look counts its energy and deals with its end
        if is_full:
            self._looked_s = now_s
            for node_gpu in self._node_gpus:
                self._look(node_gpu)

    def _tell_services(self) -> None:
        """Every offline job obeys the services on its GPUs: its launches wait while one of them is busy."""
        for running_job in self._jobs.running.values():
            if running_job.page is None:
                continue
            beside = {
                one.id: one.order
                for node_gpu in self._node_gpus.under(running_job)
                for one in node_gpu.running_jobs.values()
                if one.order.is_service
            }
            pages = [self._running_jobs.busy_path(order) for order in beside.values()]
            inflight_s = bearable_inflight_s(map(BusyPage, pages), self.config.guard.rate.inflight_s)
            running_job.page.obey(pages, inflight_s if pages else 0.0)

    def _look_soon(self) -> None:
        """Look around with the next period: something has ended, or may have."""
        self._looked_s = float("-inf")

    def _look(self, node_gpu: NodeGpu) -> None:
        if node_gpu.is_restarting_mps or node_gpu.surveyed_s is not None:
            return
        node_gpu.surveyed_s = self._clock()
        running_jobs, launcher = list(node_gpu.running_jobs.values()), self._running_jobs.launcher

        def surveyed(done: Future[Survey]) -> None:
            node_gpu.surveyed_s = None  # whatever came of it, there will be another one
            self._surveyed(node_gpu, done.result())

        if survey.is_quick(running_jobs, node_gpu.mps):
            node_gpu.surveyed_s = None
            self._surveyed(node_gpu, Survey())
        else:
            self._workers.do(lambda: survey.take(running_jobs, launcher, node_gpu.mps), surveyed)

    def _surveyed(self, node_gpu: NodeGpu, found: Survey) -> None:
        now_s = self._clock()
        if node_gpu.is_restarting_mps:
            return
        self._tell_changes(node_gpu, usage.count(node_gpu, found, now_s))
        for fault in node_gpu.guarded.faults(node_gpu.xids, found.lines):
            self._event_log.tell_gpu(node_gpu, "fault", about=f"{fault.remedy}: {fault.what}")
            if fault.remedy is not Remedy.DISABLE:
                node_gpu.mps_recovery.suspect(fault.what, now_s)
        node_gpu.xids.clear()
        self._hold_to_quotas(node_gpu, found)
        reason = None if found.mps is None else node_gpu.mps_recovery.look(found.mps, found.pids, now_s)
        for running_job in list(node_gpu.running_jobs.values()):
            # One on several GPUs is looked at with the last of them, so that all have counted its energy before.
            if self._node_gpus.under(running_job)[-1] is node_gpu and self._running_jobs.over(running_job):
                reason = self._jobs.ended(running_job, now_s) or reason
        if reason is not None:
            self._restart_mps(node_gpu, reason)
        guard = node_gpu.guarded.guard
        if guard.must_evict and (node_gpu.guarded.has_service or guard.state is State.DISABLED):
            for running_job in node_gpu.running_jobs.values():
                if not running_job.order.is_service:
                    self._take_off(running_job, str(guard.state))
        self._jobs.start_waiting()

    def _tell_changes(self, node_gpu: NodeGpu, changes: Sequence[Transition]) -> None:
        """A guard has changed its state: for the log, and for an agent after us."""
        for change in changes:
            self._event_log.tell_gpu(node_gpu, "state", about=f"{change.before} to {change.after}: {change.reason}")
            self._node_gpus.save_guards()

    def _hold_to_quotas(self, node_gpu: NodeGpu, found: Survey) -> None:
        """Quotas follow who is there; whoever holds more than its own, by whatever way, is evicted."""
        memory_quotas.note_peaks(node_gpu, found)
        memory_quotas.renew(node_gpu)
        for running_job, about in memory_quotas.over(node_gpu):
            if running_job.eviction is None:
                self._event_log.tell_job(running_job, OVER_QUOTA, about)
                self._take_off(running_job, OVER_QUOTA)

    # ---- stopping, evicting ----

    def _take_off(self, running_job: RunningJob, reason: str, grace_s: float | None = None) -> None:
        if self._evictions.begin(running_job, reason, self._clock(), grace_s):
            self._look_soon()
        self._exit_watch.call()

    # ---- MPS ----

    def _restart_mps(self, node_gpu: NodeGpu, reason: str) -> None:
        """End every client, restart the daemon, start the services again."""
        if node_gpu.mps is None or node_gpu.is_restarting_mps:
            return
        node_gpu.is_restarting_mps = True
        now_s, mps, launcher = self._clock(), node_gpu.mps, self._running_jobs.launcher
        self._event_log.tell_gpu(node_gpu, "mps-restart", about=reason)
        node_gpu.guarded.guard.mps_restart(now_s, "begun")
        clients = [running_job for running_job in node_gpu.running_jobs.values() if running_job.order.is_mps_client]

        def restart() -> None:
            # Their context is broken already, so there is no order to keep; those that hang would hold the server.
            for running_job in clients:
                launcher.kill(running_job.launch)
            mps.restart()

        def restarted(done: Future[None]) -> None:
            later_s, node_gpu.is_restarting_mps = self._clock(), False
            error = done.exception()
            node_gpu.guarded.guard.mps_restart(later_s, "done" if error is None else "failed")
            self._event_log.tell_gpu(
                node_gpu, "mps-restarted" if error is None else "mps-restart-failed", about=str(error or "")
            )
            self._node_gpus.save_guards()
            for running_job in clients:
                if self._running_jobs.over(running_job):
                    self._jobs.ended(running_job, later_s)
            if error is None:
                self._jobs.start_waiting()
            elif not node_gpu.guarded.guard.must_evict:
                self._restart_mps(node_gpu, f"again: {reason}")

        self._workers.do(restart, restarted)

    # ---- small things ----

    def _daemon(self, uuid: str) -> MpsDaemon | None:
        c = self.config
        if not c.uses_mps:
            return None
        # Under root jobs run as their submitters, and a server of one user would keep the others waiting.
        is_root = os.geteuid() == 0
        return MpsDaemon(uuid, self._folder / "mps", c.mps_binary, c.mps_timeout_s, multiuser=is_root)
