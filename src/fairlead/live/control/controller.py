"""The control loop: what happened -> view -> plan -> on the disk -> engine, and round again.

One thread runs it. Everything that it knows is on the disk before anything is done about it, and everything that it
does can be done again, so it may be killed between any two instructions: the next one reads what was written, asks the
engine how things stand, and goes on. `reconcile` has the rules by which nothing is lost and nothing runs twice.
"""

from __future__ import annotations

import copy
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fairlead.errors import FairleadError
from fairlead.live.control import reconcile, working_state
from fairlead.live.control.clock import Clock
from fairlead.live.control.decisions import Decisions
from fairlead.live.control.dispatch import Dispatch
from fairlead.live.control.engine_calls import AGAIN_S, EngineCalls
from fairlead.live.control.node_watch import NodeWatch
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.engines.engine import Engine, Poll, Stream
from fairlead.live.engines.multi_node import lost
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.lifecycle import Lifecycle
from fairlead.live.jobs.states import Cause
from fairlead.live.storage.database import StoreError
from fairlead.live.storage.store import Attempt, Store
from fairlead.model.catalogue import BUILT_IN, Catalogue
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.policy.driver import Driver, Sources
from fairlead.policy.stack import Stack

log = logging.getLogger("fairlead")
_TAIL_LINES, _TAIL_BYTES = 20, 4096
_READ_AGAIN_S = 1.5
"""After an end: agents read their GPUs every second, and what was read before it tells of a job that is gone."""
_STREAMS: tuple[Stream, ...] = ("stderr", "stdout")


class Controller:
    """The jobs of one cluster. `step` is one turn of the loop; `run` turns it until told to stop."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        stack: Stack,
        clock: Clock,
        observations: Observations,
        settings: Settings | None = None,
        *,
        sources: Sources | None = None,
        workers: Executor | None = None,
        catalogue: Catalogue = BUILT_IN,
    ) -> None:
        self.store, self.engine, self.clock, self.observations = store, engine, clock, observations
        self.settings = settings or Settings()
        self.catalogue = catalogue
        """The profiles that jobs can name."""
        self._sources = sources or observations.sources()
        self._stack = stack
        """As it was before it was shown anything."""
        self.epoch = secrets.token_hex(4)
        """Of all attempts that this controller makes: two that work on copies of one database make different ones."""
        self.poll = Poll({}, {}, frozenset(), frozenset())
        """The last."""
        self.trouble = ""
        """Why nothing is being done right now, for health; empty when all is well."""
        self.turned_s = time.monotonic()
        """When the loop last came round."""
        self.thread: threading.Thread | None = None
        """The loop's, once it runs."""
        self.decisions = Decisions(observations, self.settings.decide_s, self._new_stack)
        self._inbox: deque[Callable[[], None]] = deque()
        self._called = threading.Event()
        self._has_changed = True
        self._poll_due_s = 0.0
        self._calls = EngineCalls(self._engine_called, workers)
        self._dispatch = Dispatch(engine, store, clock, self.settings, self._calls)
        self._nodes = NodeWatch(self.settings.lost_after_s)
        self._answers: list[tuple[Future[Any], Any]] = []
        self._is_broken = False
        """What is in memory is not to be trusted."""
        self._begin()
        engine.watch(self._engine_called)

    def _begin(self) -> None:
        """From what is on the disk; also after an error, since then nothing else can be trusted."""
        self.engine.refresh()
        driver = Driver[LiveJob](self.engine.cluster, self._new_stack(), self._sources, self.decisions.watchdog.decide)
        self.work = working_state.make(driver, self.store, self.clock, self.observations, self._tail, self.catalogue)
        self._has_changed = True
        self._dispatch.begin()
        drained = self.work.recovery.restore()
        self._nodes.restore(self.work, drained, self.store.fact("heard") or {})
        self.work.recovery.recall()
        driver.happened()
        for job_id, wish in self.store.wishes():
            self.wished(job_id, wish)

    def _new_stack(self) -> Stack:
        stack = copy.deepcopy(self._stack)
        stack.explains = True
        return stack

    # ---- what others ask of it; from any thread ----

    @property
    def driver(self) -> Driver[LiveJob]:
        """What asks the policy and keeps the view."""
        return self.work.driver

    @property
    def cluster(self) -> Cluster:
        """The nodes as the policy sees them; other ones may have come since."""
        return self.work.cluster

    @property
    def lifecycle(self) -> Lifecycle:
        """The jobs that are not over, and the rules by which they change."""
        return self.work.lifecycle

    @property
    def drained(self) -> set[int]:
        """GPUs that take no new jobs, by word of the operator."""
        return self._nodes.drained

    @property
    def policy_trouble(self) -> str:
        """Why the policy places nothing at present; empty while it decides in time."""
        return self.decisions.trouble

    def submitted(self, job: LiveJob) -> None:
        """Let a job that is on the disk wait for GPUs."""
        self._post(lambda: self.lifecycle.admit(job))

    def wished(self, job_id: int, wish: str) -> None:
        """Do what a user asked of a job, which is on the disk too."""
        self._post(lambda: self.lifecycle.grant(job_id, wish))

    def ask(self, question: Callable[[], Any]) -> Future[Any]:
        """Have this done by the loop, between two events, and what follows from it saved; the future has its value."""
        answer: Future[Any] = Future()

        def reply() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                self._answers.append((answer, question()))
            except Exception as error:
                answer.set_exception(error)

        self._post(reply)
        return answer

    def set_drained(self, gpus: set[int], drain: bool) -> None:
        """For `ask`: from now on these GPUs take no new jobs, or take them again."""
        self._nodes.set_drained(self.work, gpus, drain)

    def run(self, stopping: threading.Event) -> None:
        """Turn the loop until told to stop; jobs go on."""
        self.thread = threading.current_thread()
        while not stopping.is_set():
            next_s = self.turn()
            self.turned_s = time.monotonic()
            self._called.wait(max(min(next_s - self.clock.now_s(), self.settings.poll_s), 0.0))
        self.close()

    def turn(self) -> float:
        """One turn, whatever happens in it; gives the moment of the next."""
        try:
            if self._is_broken:
                self._begin()
                self._is_broken = False
            return self.step()
        except BaseException as error:  # of ours or a policy's: as after a crash, what is on the disk is whole
            if threading.current_thread() is threading.main_thread() and not isinstance(error, Exception):
                raise  # Ctrl-C, where somebody turns it by hand
            log.exception("the control loop failed and begins anew")
            self._is_broken = True
            self._fail_answers(error)
            self.trouble = f"{type(error).__name__}: {error}"
            return self.clock.now_s() + AGAIN_S

    def wake(self) -> None:
        """Have the loop turn now instead of waiting."""
        self._called.set()

    def close(self) -> None:
        """Save what is known; jobs go on."""
        self._calls.close()
        if self._is_broken:
            return
        try:
            self.work.recovery.save(0.0)
        except StoreError as error:
            log.error("%s", error)

    # ---- one turn ----

    def step(self) -> float:
        """One turn of the loop; gives the moment of the next, unless something happens before."""
        self._called.clear()
        now_s = self.driver.view.now_s = self.clock.now_s()
        if self.engine.refresh():
            self._begin_with_others()
        while self._inbox:
            self._inbox.popleft()()
        if self._has_changed or now_s >= self._poll_due_s:
            self._look(now_s)
        self.lifecycle.resume_due(now_s)
        self.lifecycle.watch_deadlines(now_s)
        if not self.decisions.decide(self.work, now_s):
            self._begin()
        self._reconcile()
        try:
            self.work.recovery.save(self.settings.save_s)
        except StoreError as error:
            # Nothing is done that is not on the disk; it all stays to be saved.
            self.trouble = error.message
            log.error("%s", error)
            return now_s + AGAIN_S
        self.trouble = ""
        answers, self._answers = self._answers, []
        for answer, value in answers:
            answer.set_result(value)
        self._dispatch.act(self.work, self.poll, now_s)
        next_decision_s = self.decisions.next_s(self.work)
        return min(next_decision_s, self._poll_due_s, self.lifecycle.next_s(), self._calls.next_s(now_s))

    def _begin_with_others(self) -> None:
        """The cluster is another one: the policy sees it as if the controller had just been started there."""
        self.work.recovery.save(0.0)
        self._begin()
        self.work.tell("cluster-changed", about=self.cluster.describe())

    def _post(self, what: Callable[[], None]) -> None:
        self._inbox.append(what)
        self._called.set()

    def _fail_answers(self, error: BaseException) -> None:
        answers, self._answers = self._answers, []
        for answer, _ in answers:
            answer.set_exception(error)

    def _engine_called(self) -> None:
        self._has_changed = True
        self._called.set()

    def _look(self, now_s: float) -> None:
        """Ask the engine how things stand, and take in what is new."""
        self._has_changed = False
        self._poll_due_s = now_s + self.settings.poll_s
        # What a poll tells of a node that is just being sent to sleep may be over before it is read.
        busy = {node for node in self.driver.view.waking if self._dispatch.is_busy_with(node)}
        poll = self.poll = self.engine.poll(self._nodes.heard)
        for gpu in self.observations.take(poll):
            self.driver.opened(gpu)
        self._nodes.hear(self.work, poll, busy, now_s)
        attempts = self.lifecycle.attempts
        for status in poll.attempts.values():
            attempt = attempts.get(status.id)
            if attempt is None:
                self._dispatch.stray(status, now_s)
            elif status.is_over:
                self._poll_due_s = min(self._poll_due_s, now_s + _READ_AGAIN_S)
                self.lifecycle.over(attempt, status)
                self._dispatch.over(status.id)
            else:
                self.lifecycle.alive(attempt, status)
        if poll.absent:
            self._lose(poll.absent)
        if poll.leaving:
            self._leave(poll.leaving)
        self._dispatch.stop_strays(self.work, poll, now_s)

    def _lose(self, absent: frozenset[int]) -> None:
        """What ran on nodes that are gone is lost with them. Parts on other nodes end first: nothing runs twice."""
        for one, attempt in list(self.lifecycle.attempts.items()):
            nodes = self._dispatch.nodes_of(attempt.gpus)
            if nodes.isdisjoint(absent):
                continue
            if nodes <= absent:
                self.lifecycle.over(attempt, lost(one))
                self._dispatch.lost(one)
            elif not attempt.stopping:
                attempt.stopping = "node-lost"
                self.work.pending_writes.touch_attempt(attempt)

    def _leave(self, leaving: frozenset[int]) -> None:
        """Whoever runs on nodes that are about to go is stopped in time, and goes on from its checkpoint elsewhere."""
        for job_id in list(self.driver.view.running):
            job = self.driver.jobs[job_id]
            if not self._dispatch.nodes_of(job.gpus).isdisjoint(leaving):
                self.driver.returned(job)
                self.lifecycle.change(job, Cause.UNPLACED, "node-leaving")

    def _tail(self, attempt: AttemptId, gpus: Placement) -> str:
        """The last lines that it wrote, of its complaints rather than of its output."""
        for stream in _STREAMS:
            try:
                found = self.engine.read_log(attempt, stream, -_TAIL_BYTES, _TAIL_BYTES, gpus)
            except FairleadError:
                continue
            text = found.decode(errors="replace")
            if text.strip():
                return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
        return ""

    def _reconcile(self) -> None:
        """Make attempts for who can start, and mark those to stop; what to do about it follows the save."""
        jobs, attempts, writes = self.driver.jobs, self.lifecycle.attempts, self.work.pending_writes
        running = (jobs[job_id] for job_id in self.driver.view.running)
        found = reconcile.steps(running, attempts, jobs, self._freed(), self.poll.strays)
        for attempt in found.stop:
            job = self.lifecycle.get(attempt.id.job_id)
            attempt.stopping = job.reason if job is not None else "cancelled"
            writes.touch_attempt(attempt)
        for job in found.begin:
            if not self.driver.view.drained.isdisjoint(job.gpus):
                self.driver.returned(job)  # it waited for others to end, and now nobody is to come any more
                self.lifecycle.change(job, Cause.UNPLACED, "drained")
                continue
            if not self._dispatch.nodes_of(job.gpus).isdisjoint(self.poll.unreachable):
                continue  # once an attempt is made, only that node could tell whether it ever started
            job.attempt = AttemptId(job.job.id, job.attempt.attempt + 1, self.epoch)
            made = attempts[job.attempt] = Attempt(job.attempt, job.gpus, job.shared, job.sm_share)
            writes.touch_attempt(made)
            writes.touch(job)

    def _freed(self) -> dict[AttemptId, set[int]]:
        """The GPUs on which parts of attempts on several nodes have ended, though they are not over as a whole."""
        node_of, told = self.cluster.node_of, self.poll.attempts
        return {
            one: {g for g in attempt.gpus if g < len(node_of) and node_of[g] in told[one].ended_nodes}
            for one, attempt in self.lifecycle.attempts.items()
            if one in told and told[one].ended_nodes
        }
