"""What a controller keeps for the next one, and how that one finds its feet: jobs, nodes, the bill, what was learnt."""

from __future__ import annotations

import json
import time

from fairlead.errors import InputError
from fairlead.live.careers import Careers
from fairlead.live.clock import Clock
from fairlead.live.desk import NEVER, Desk
from fairlead.live.ledger import Ledger
from fairlead.live.livejob import LiveJob, State, placement_of
from fairlead.live.observed import Observed
from fairlead.live.store import EventRow, Store

_SELDOM = 200.0
"""What was learnt is saved again after so many times what saving it takes."""


class Memory:
    """Of one controller."""

    def __init__(
        self, desk: Desk, careers: Careers, ledger: Ledger, store: Store, clock: Clock, observed: Observed
    ) -> None:
        self._desk, self._careers, self._ledger = desk, careers, ledger
        self._store, self._clock, self._observed = store, clock, observed
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
        now_s = self._desk.view.now_s
        soon_s = _SELDOM * self._learning_s if self.has_planned else every_s
        if now_s - self._learnt_s >= min(soon_s, every_s):
            began_s = time.perf_counter()
            self._learnt_s, self.has_planned = now_s, False
            knowledge = json.dumps(self._desk.stack.knowledge())
            if knowledge != self._knowledge:
                self._knowledge = knowledge
                self._ledger.know("knowledge", {"policy": self._desk.stack.spec, "stages": knowledge})
            self._note_bill()
            self._learning_s = time.perf_counter() - began_s
        if self._ledger.has_news:
            self._ledger.know("clock", self._clock.save())  # it never goes back behind a moment that is saved
        self._ledger.save()

    def note_nodes(self) -> None:
        """Some have gone to sleep or are waking."""
        view = self._desk.view
        nodes = view.cluster.nodes
        self._ledger.know("nodes", {
            "asleep": [nodes[n].name for n in sorted(view.asleep)],
            "waking": [nodes[n].name for n in sorted(view.waking)],
            "rented_s": {nodes[n].name: since_s for n, since_s in view.rented_s.items()},
        })  # fmt: skip
        self._note_bill()

    def restore(self) -> set[int]:
        """Jobs and nodes as the last controller left them; gives the GPUs that are drained."""
        desk, careers, cluster = self._desk, self._careers, self._desk.view.cluster
        desk.view.now_s = self._clock.now_s()
        self._restore_nodes()
        careers.attempts.update({a.key: a for a in self._store.open_attempts()})
        waiting, running = [], []
        for row in self._store.active():
            job, gpus = LiveJob.from_row(row), placement_of(row)
            if job.state is State.RUNNING and gpus and gpus[-1] < cluster.gpus:
                running.append((job, gpus, bool(row["shared"]), row["sm_share"]))
            elif job.state in (State.WAITING, State.RUNNING):
                waiting.append(job)
            elif not job.state.is_over:
                careers.aside[job.job.id] = job
        desk.restore(waiting, running)
        for job in waiting:
            if job.state is State.RUNNING:
                careers.set(job, State.WAITING, "node-gone")
        if not desk.stack.sharing.shares:
            self._separate()
        numbers = {cluster.gpu_name(g): g for g in range(cluster.gpus)}
        return {numbers[name] for name in self._store.fact("drained") or () if name in numbers}

    def recall(self) -> None:
        """What the policy had learnt; without it, it learns anew."""
        saved, stack = self._store.fact("knowledge"), self._desk.stack
        if saved is None or saved["policy"] != stack.spec:
            return
        try:
            stack.recall(json.loads(saved["stages"]), self._desk.view)
        except (InputError, ValueError, TypeError) as error:
            self._ledger.tell(EventRow(self._clock.wall_s(), "knowledge-lost", about=str(error)))

    def _separate(self) -> None:
        """A policy before this one may have shared GPUs: of the jobs on each, one stays."""
        desk, taken = self._desk, set[int]()
        jobs = (desk.jobs[job_id] for job_id in desk.view.running)
        for job in sorted(jobs, key=lambda job: (job.job.kind != "service", job.job.id)):
            if taken.isdisjoint(job.gpus):
                taken.update(job.gpus)
            else:
                desk.returned(job)
                self._careers.set(job, State.WAITING, "evicted-by-policy")

    def _restore_nodes(self) -> None:
        """Saved at once: under a policy that lets none sleep all are on, and a later one must find them so."""
        view, powering = self._desk.view, self._desk.stack.powering
        numbers = {node.name: number for number, node in enumerate(view.cluster.nodes)}
        # Nothing of a rented cluster is there before the policy rents it.
        saved = self._store.fact("nodes") or {"asleep": list(numbers) if powering.rents else []}
        if powering.active:
            waking = [numbers[n] for n in saved.get("waking", ()) if n in numbers]
            for node in (*(numbers[n] for n in saved["asleep"] if n in numbers), *waking):
                view.sleep(node)
            for node in waking:
                view.wake(node)
            if view.cluster.rental is not None:
                since_s = {numbers[n]: s for n, s in saved.get("rented_s", {}).items() if n in numbers}
                on = [node for node in range(len(numbers)) if node not in view.asleep]
                view.rented_s = {node: since_s.get(node, view.now_s) for node in on}
        bill = self._store.fact("bill") or {"paid": 0.0, "until_s": view.now_s}
        self._observed.paid, self._observed.paid_until_s = bill["paid"], bill["until_s"]
        self.note_nodes()

    def _note_bill(self) -> None:
        view = self._desk.view
        if view.cluster.rental is not None:
            self._ledger.know("bill", {"paid": self._observed.paid_gpu_s(), "until_s": view.now_s})
