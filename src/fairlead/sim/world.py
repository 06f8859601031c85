"""What happens by itself: nodes fail, are repaired and have woken, GPUs grow slow, services and jobs are looked at."""

from __future__ import annotations

import heapq
from typing import cast

from fairlead.policy.view import View
from fairlead.sim.failures import FailureProcess
from fairlead.sim.jobs import Jobs
from fairlead.sim.nodes import Nodes
from fairlead.sim.online import Online
from fairlead.sim.pace import Pace
from fairlead.sim.rounds import NEVER
from fairlead.sim.simjob import SimJob
from fairlead.sim.truth import Truth, Watch


class World:
    """The events of a run that are neither arrivals nor ends nor decisions."""

    def __init__(
        self,
        view: View,
        failures: FailureProcess,
        truth: Truth,
        pace: Pace,
        online: Online | None,
        jobs: Jobs,
        nodes: Nodes,
        counts: dict[str, int],
        *,
        watch: Watch | None,
    ) -> None:
        self._view = view
        self.failures = failures
        self._truth = truth
        self._pace = pace
        self._online = online
        self._jobs = jobs
        self._nodes = nodes
        self._counts = counts
        self._watch = watch

    def next_s(self) -> float:
        """The next failure, repair, drift, node that has woken, or look at services or a running job."""
        awake, looks = self._nodes.awake, self._pace.looks
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
                self._pace.retime(cast(SimJob, self._view.running[job_id]))
        elif awake and next_s == awake[0][0]:
            self._nodes.wake_due()
        elif self._online is not None and next_s == self._online.next_s:
            for job in self._online.advance(self._view.now_s):
                job.preemptions += 1
                self._jobs.stop(job, evicted=True)
        else:
            self._look()

    def _look(self) -> None:
        """A job has run for a while: what its iteration time says of its GPUs."""
        _, job_id, version = heapq.heappop(self._pace.looks)
        job = cast("SimJob | None", self._view.running.get(job_id))
        if job is None or job.version != version:
            return
        scores, app_class = self._view.scores, job.job.profile.app_class
        assert scores is not None
        if self._watch == "rank":
            changed = scores.observe_ranks(app_class, job.gpus, self._truth.of_ranks(job))
        else:
            changed = scores.observe(app_class, job.gpus, self._truth.of_job(job))
        if changed:
            self._view.changes.rescored.add(app_class)
