"""What a controller keeps for the next one, and how that one finds its feet: jobs, nodes, the bill, what was learnt."""

from __future__ import annotations

import json
import time

from fairlead.errors import InputError
from fairlead.live.control.clock import Clock
from fairlead.live.control.observations import Observations
from fairlead.live.jobs.job import LiveJob, placement_of
from fairlead.live.jobs.lifecycle import Lifecycle
from fairlead.live.jobs.states import Cause, State
from fairlead.live.storage.pending_writes import PendingWrites
from fairlead.live.storage.store import EventRow, Store
from fairlead.policy.driver import Driver
from fairlead.policy.working_job import NEVER

_SELDOM = 200.0
"""What was learnt is saved again after so many times what saving it takes."""


class Recovery:
    """Saves what a controller knows, and restores it in the next one."""

    def __init__(
        self,
        driver: Driver[LiveJob],
        lifecycle: Lifecycle,
        pending_writes: PendingWrites,
        store: Store,
        clock: Clock,
        observations: Observations,
    ) -> None:
        self._driver, self._lifecycle, self._pending_writes = driver, lifecycle, pending_writes
        self._store, self._clock, self._observations = store, clock, observations
        self.has_planned = False
        """Whether the policy has decided anything since what it knows was saved."""
        self._knowledge = ""
        self._learnt_s = -NEVER
        self._learning_s = 0.0
        """How long it takes to save what was learnt."""

    def save(self, every_s: float) -> None:
        """What has changed; and what was learnt with each plan, as long as that takes a small part of the time, else
        every so many seconds.
        """
        now_s = self._driver.view.now_s
        soon_s = _SELDOM * self._learning_s if self.has_planned else every_s
        if now_s - self._learnt_s >= min(soon_s, every_s):
            began_s = time.perf_counter()
            self._learnt_s, self.has_planned = now_s, False
            knowledge = json.dumps(self._driver.stack.knowledge())
            if knowledge != self._knowledge:
                self._knowledge = knowledge
                learnt = self._driver.stack.sharing.learnt
                history = None if learnt is None else learnt.to_dict()
                saved = {"policy": self._driver.stack.spec, "stages": knowledge, "history": history}
                self._pending_writes.know("knowledge", saved)
            self._note_bill()
            self._learning_s = time.perf_counter() - began_s
        if self._pending_writes.has_news:
            self._pending_writes.know("clock", self._clock.save())  # it never goes back behind a moment that is saved
        self._pending_writes.save()

    def note_nodes(self) -> None:
        """Some have gone to sleep or are waking."""
        view = self._driver.view
        nodes = view.cluster.nodes
        self._pending_writes.know("nodes", {
            "asleep": [nodes[n].name for n in sorted(view.asleep)],
            "waking": [nodes[n].name for n in sorted(view.waking)],
            "awake_s": {nodes[n].name: self._driver.awake_s(n) for n in sorted(view.waking)},
            "rented_s": {nodes[n].name: since_s for n, since_s in view.rented_s.items()},
        })  # fmt: skip
        self._note_bill()

    def restore(self) -> set[int]:
        """Jobs and nodes as the last controller left them; gives the GPUs that are drained."""
        driver, lifecycle, cluster = self._driver, self._lifecycle, self._driver.view.cluster
        driver.view.now_s = self._clock.now_s()
        self._restore_nodes()
        lifecycle.attempts.update({a.id: a for a in self._store.open_attempts()})
        waiting, running = [], []
        for row in self._store.active():
            job, gpus = lifecycle.read(row), placement_of(row)
            if job.state is State.RUNNING and gpus and gpus[-1] < cluster.gpus:
                running.append((job, gpus, bool(row["shared"]), row["sm_share"]))
            elif job.state in (State.WAITING, State.RUNNING):
                waiting.append(job)
            elif not job.state.is_over:
                lifecycle.aside[job.job.id] = job
        driver.restore(waiting, running)
        self._observations.resume(driver.jobs[job_id] for job_id in driver.view.running)
        for job in waiting:
            if job.state is State.RUNNING:
                lifecycle.change(job, Cause.UNPLACED, "node-gone")
        for job in driver.separate():
            lifecycle.change(job, Cause.PREEMPTED, "preempted")
        numbers = {cluster.gpu_name(g): g for g in range(cluster.gpus)}
        return {numbers[name] for name in self._store.fact("drained") or () if name in numbers}

    def recall(self) -> None:
        """What the policy had learnt; without it, it learns anew."""
        saved = self._store.fact("knowledge")
        if saved is None:
            return
        try:
            self._driver.recall(saved["policy"], json.loads(saved["stages"]), saved.get("history"))
        except (InputError, ValueError, TypeError) as error:
            self._pending_writes.tell(EventRow(self._clock.wall_s(), "knowledge-lost", about=str(error)))

    def _restore_nodes(self) -> None:
        """Saved at once: under a policy that lets none sleep all are on, and a later one must find them so."""
        view, powering = self._driver.view, self._driver.stack.powering
        numbers = {node.name: number for number, node in enumerate(view.cluster.nodes)}
        # Nothing of a rented cluster is there before the policy rents it.
        saved = self._store.fact("nodes") or {"asleep": list(numbers) if powering.rents else []}
        if powering.active:
            asleep = [numbers[n] for n in saved["asleep"] if n in numbers]
            awake_s, rented_s = saved.get("awake_s", {}), saved.get("rented_s", {})
            self._driver.restore_nodes(
                down=(),
                asleep=asleep,
                awake_s={numbers[n]: awake_s.get(n, view.now_s) for n in saved.get("waking", ()) if n in numbers},
                rented_s={numbers[n]: since_s for n, since_s in rented_s.items() if n in numbers},
            )
        bill = self._store.fact("bill") or {"paid": 0.0, "until_s": view.now_s}
        self._observations.paid, self._observations.paid_until_s = bill["paid"], bill["until_s"]
        self.note_nodes()

    def _note_bill(self) -> None:
        view = self._driver.view
        if view.cluster.rental is not None:
            self._pending_writes.know("bill", {"paid": self._observations.paid_gpu_s(), "until_s": view.now_s})
