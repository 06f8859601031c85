"""What happens by itself: nodes fail, are repaired and have woken, GPUs grow slow, services and jobs are looked at."""

from __future__ import annotations

import heapq

from fairlead.policy.driver import Driver
from fairlead.policy.working_job import NEVER
from fairlead.sim.failures import FailureProcess
from fairlead.sim.jobs import Jobs
from fairlead.sim.nodes import Nodes
from fairlead.sim.online import Online
from fairlead.sim.simjob import SimJob
from fairlead.sim.speeds import Speeds
from fairlead.sim.truth import Truth, Watch


class Incidents:
    """The events of a run that are neither arrivals nor ends nor decisions."""

    def __init__(
        self,
        driver: Driver[SimJob],
        failures: FailureProcess,
        truth: Truth,
        speeds: Speeds,
        online: Online | None,
        jobs: Jobs,
        nodes: Nodes,
        counts: dict[str, int],
        *,
        watch: Watch | None,
    ) -> None:
        self._driver = driver
        self._view = driver.view
        self.failures = failures
        self._truth = truth
        self._speeds = speeds
        self._online = online
        self._jobs = jobs
        self._nodes = nodes
        self._counts = counts
        self._watch = watch

    def next_s(self) -> float:
        """The next failure, repair, drift, node that has woken, or look at services or a running job."""
        awake, looks = self._nodes.awake, self._speeds.looks
        awake_s = awake[0][0] if awake else NEVER
        online_s = self._online.next_s if self._online is not None else NEVER
        return min(self.failures.next_s, self._truth.next_s, awake_s, online_s, looks[0][0] if looks else NEVER)

    def happen(self) -> None:
        """Let the next event happen."""
        self._counts["events"] += 1
        next_s, awake = self.next_s(), self._nodes.awake
        if next_s == self.failures.next_s:
            node, down = self.failures.pop()
            if down:
                self._nodes.fail(node)
            else:
                self._nodes.repair(node)
        elif next_s == self._truth.next_s:
            gpu = self._truth.drift()
            for job_id in self._view.on_gpu[gpu]:
                self._speeds.retime(self._driver.jobs[job_id])
                self._driver.retimed(self._driver.jobs[job_id])
        elif awake and next_s == awake[0][0]:
            self._nodes.wake_due()
        elif self._online is not None and next_s == self._online.next_s:
            for job in self._online.advance(self._view.now_s):
                self._jobs.evict(job)
        else:
            self._look()

    def _look(self) -> None:
        """A job has run for a while: what its iteration time says of its GPUs."""
        _, job_id, version = heapq.heappop(self._speeds.looks)
        if job_id not in self._view.running or (job := self._driver.jobs[job_id]).version != version:
            return
        scores, app_class = self._view.scores, job.job.profile.app_class
        assert scores is not None
        if self._watch == "rank":
            changed = scores.observe_ranks(app_class, job.gpus, self._truth.of_ranks(job))
        else:
            changed = scores.observe(app_class, job.gpus, self._truth.of_job(job))
        if changed:
            self._driver.rescored(app_class)
