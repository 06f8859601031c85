"""Taking a job off its GPUs, stopped or evicted: the steps of the guard's `Eviction`, carried out."""

from __future__ import annotations

from concurrent.futures import Future

from fairlead.node.event_log import EventLog
from fairlead.node.gpu.gpus import NodeGpus
from fairlead.node.guard.control_page import GpuOrder
from fairlead.node.mps.daemon import MpsDaemon
from fairlead.node.process.launcher import Launcher
from fairlead.node.running_jobs import RunningJob, RunningJobs
from fairlead.node.worker_threads import WorkerThreads
from fairlead.policy.guarding import Action, Eviction, EvictionConfig


class Evictions:
    """Of all jobs of an agent, under its lock. What may take long is done by its workers."""

    def __init__(
        self,
        config: EvictionConfig,
        running_jobs: RunningJobs,
        node_gpus: NodeGpus,
        workers: WorkerThreads,
        event_log: EventLog,
    ) -> None:
        self._config, self._running_jobs, self._node_gpus = config, running_jobs, node_gpus
        self._workers, self._event_log = workers, event_log

    def begin(self, running_job: RunningJob, reason: str, now_s: float, grace_s: float | None = None) -> bool:
        """From now on; so long after SIGTERM, or as long as its own grace, it is taken off the GPU.

        Gives whether it has gone already.
        """
        config = self._config
        if running_job.page is None:
            config = config.model_copy(update={"freeze_s": 0.0})  # nobody there who could freeze
        own_s = running_job.order.grace_s if grace_s is None else grace_s
        config = config.model_copy(update={"term_grace_s": max(own_s, 0.01)})
        if running_job.eviction is None:
            running_job.eviction, running_job.reason = Eviction(config), reason
            self._event_log.tell_job(running_job, "stopping" if running_job.is_stopped else "evicting", reason)
        elif grace_s is not None and config.term_grace_s < running_job.eviction.config.term_grace_s:
            running_job.eviction.config = config
        return self.go_on(running_job, now_s)

    def go_on(self, running_job: RunningJob, now_s: float) -> bool:
        """Take the steps that are due. Whether it has gone."""
        assert running_job.eviction is not None
        while True:
            exited = self._running_jobs.over(running_job)
            step = running_job.eviction.next(now_s, exited=exited, client_gone=running_job.client_gone)
            if step.action is None:
                return step.done
            self._event_log.tell_job(running_job, str(step.action))
            self._carry_out(running_job, step.action)

    def _carry_out(self, running_job: RunningJob, action: Action) -> None:
        launcher = self._running_jobs.launcher
        match action:
            case Action.FREEZE:
                for gpu in running_job.order.gpus:
                    running_job.publish(GpuOrder(), gpu)  # what is stopped or evicted is told to freeze
            case Action.SIGTERM:
                self._running_jobs.request_stop(running_job)
            case Action.TERMINATE_CLIENT:
                running_job.client_gone = None
                mps = self._node_gpus.mps_of(running_job.order)

                def gone(done: Future[bool]) -> None:
                    running_job.client_gone = done.exception() is None and done.result()

                self._workers.do(lambda: _terminate(running_job, launcher, mps), gone)
            case Action.SIGKILL:
                self._workers.do(lambda: launcher.kill(running_job.launch), lambda done: None)
            case Action.CALL_OPERATOR:
                pass  # it was told as an event


def _terminate(running_job: RunningJob, launcher: Launcher, mps: MpsDaemon | None) -> bool:
    """Have MPS take its processes off the GPU; True also where none of them is a client."""
    if mps is not None:
        for process in launcher.processes(running_job.launch):
            mps.terminate(process.pid)
    return True
