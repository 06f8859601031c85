"""The control loop: what happened -> view -> plan -> on the disk -> engine, and round again.

One thread runs it. Everything that it knows is on the disk before anything is done about it, and everything that it
does can be done again, so it may be killed between any two instructions: the next one reads what was written, asks the
engine how things stand, and goes on. `reconcile` has the rules by which nothing is lost and nothing runs twice.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError
from fairlead.live import reconcile
from fairlead.live.calls import AGAIN_S, Calls
from fairlead.live.careers import Careers
from fairlead.live.clock import Clock
from fairlead.live.database import StoreError
from fairlead.live.desk import NEVER, Desk, Sources
from fairlead.live.engine import AttemptState, AttemptStatus, Engine, Key, Poll, StartOrder, Stream
from fairlead.live.ledger import Ledger
from fairlead.live.livejob import LiveJob, State
from fairlead.live.memory import Memory
from fairlead.live.observed import Observed
from fairlead.live.store import Attempt, EventRow, Store
from fairlead.model.placement import Placement
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack

log = logging.getLogger("fairlead")
_MOST_AT_ONCE = 10_000
"""Decisions at one moment; more is a policy that never rests."""
_TAIL_LINES, _TAIL_BYTES = 20, 4096
_GRACE_S = 30.0
_WAKE_AGAIN_S = 30.0
_TIDY_S, _TIDIED = 60.0, 100
_STREAMS: tuple[Stream, ...] = ("stderr", "stdout")


@dataclass(frozen=True, slots=True)
class Settings:
    """The controller's own numbers."""

    poll_s: float = 5.0
    """The engine is asked at least this often, whether or not it has called."""
    lost_after_s: float = 10.0
    """A node whose agent has not answered for this long gets no new jobs."""
    save_s: float = 30.0
    """What the policy has learnt is saved this often while it changes."""
    keep_logs_s: float = 30 * 86400.0
    """Logs of jobs that have been over for so long are deleted."""
    as_submitter: bool = False
    """Whether each job runs under the account of its submitter; needs root."""


class Controller:
    """The jobs of one cluster. `step` is one turn of the loop; `run` turns it until told to stop."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        stack: Stack,
        clock: Clock,
        observed: Observed,
        settings: Settings | None = None,
        *,
        sources: Sources | None = None,
        workers: Executor | None = None,
    ) -> None:
        self.store, self.engine, self.clock, self.observed = store, engine, clock, observed
        self.settings = settings or Settings()
        self._sources = sources or observed.sources()
        self._stack = stack
        """As it was before it was shown anything."""
        self.drained: set[int] = set()
        """GPUs, by word of the operator."""
        self.poll = Poll({}, {}, frozenset(), frozenset())
        """The last."""
        self.trouble = ""
        """Why nothing is being done right now, for health; empty when all is well."""
        self.on_decision: Callable[[float], None] | None = None
        """Told how long each decision of the policy took."""
        self._inbox: deque[Callable[[], None]] = deque()
        self._called = threading.Event()
        self._has_changed = True
        self._poll_due_s = 0.0
        self._nodes = frozenset(range(len(engine.cluster.nodes)))
        self._unheard_s: dict[int, float] = {}
        """Since when nodes do not answer."""
        self._calls = Calls(self._engine_called, workers)
        self._told_s: dict[Key, float] = {}
        """When attempts were asked to leave, by this very controller."""
        self._forgettable: list[Key] = []
        self._answers: list[tuple[Future[Any], Any]] = []
        self._tidy_due_s = 0.0
        self._is_broken = False
        """What is in memory is not to be trusted."""
        self._begin()
        engine.watch(self._engine_called)

    def _begin(self) -> None:
        """From what is on the disk; also after an error, since then nothing else can be trusted."""
        self.desk = Desk(self.engine.cluster, self._new_stack(), self._sources)
        self.observed.view = self.desk.view
        self._ledger = Ledger(self.store)
        self.careers = Careers(self.desk, self._ledger, self.store, self.clock, self.observed, self._tail)
        self._memory = Memory(self.desk, self.careers, self._ledger, self.store, self.clock, self.observed)
        self._has_changed = True
        self._forgettable.clear()
        self.drained = self._memory.restore()
        self._apply_drains()
        self._memory.recall()
        for job_id, wish in self.store.wishes():
            self.wished(job_id, wish)

    def _new_stack(self) -> Stack:
        stack = copy.deepcopy(self._stack)
        stack.explains = True
        return stack

    # ---- what others ask of it; from any thread ----

    def submitted(self, job: LiveJob) -> None:
        """It is on the disk: let it wait for GPUs."""
        self._post(partial(self.careers.admit, job))

    def wished(self, job_id: int, wish: str) -> None:
        """That is on the disk too."""
        self._post(partial(self.careers.grant, job_id, wish))

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
        named = self.engine.cluster.gpu_name
        self.drained = self.drained | gpus if drain else self.drained - gpus
        self._ledger.know("drained", [named(g) for g in sorted(self.drained)])
        self._tell("drained" if drain else "resumed", about=", ".join(map(named, sorted(gpus))))
        self._apply_drains()

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop; jobs go on."""
        while not stopping.is_set():
            next_s = self.turn()
            self._called.wait(max(min(next_s - self.clock.now_s(), self.settings.poll_s), 0.0))
        self.close()

    def turn(self) -> float:
        """One turn, whatever happens in it; gives the moment of the next."""
        try:
            if self._is_broken:
                self._begin()
                self._is_broken = False
            return self.step()
        except Exception as error:  # of ours or a policy's: as after a crash, what is on the disk is whole
            log.exception("the control loop failed and begins anew")
            self._is_broken = True
            self._fail_answers(error)
            self.trouble = f"{type(error).__name__}: {error}"
            return self.clock.now_s() + AGAIN_S

    def wake(self) -> None:
        """Turn the loop now."""
        self._called.set()

    def close(self) -> None:
        """Save what is known; jobs go on."""
        self._calls.close()
        if self._is_broken:
            return
        try:
            self._memory.save(0.0)
        except StoreError as error:
            log.error("%s", error)

    # ---- one turn ----

    def step(self) -> float:
        """One turn of the loop; gives the moment of the next, unless something happens before."""
        self._called.clear()
        now_s = self.desk.view.now_s = self.clock.now_s()
        while self._inbox:
            self._inbox.popleft()()
        if self._has_changed or now_s >= self._poll_due_s:
            self._look(now_s)
        self.careers.resume_due(now_s)
        self._decide(now_s)
        self._reconcile()
        try:
            self._memory.save(self.settings.save_s)
        except StoreError as error:
            # Nothing is done that is not on the disk; it all stays to be saved.
            self.trouble = error.message
            log.error("%s", error)
            return now_s + AGAIN_S
        self.trouble = ""
        answers, self._answers = self._answers, []
        for answer, value in answers:
            answer.set_result(value)
        self._act(now_s)
        if now_s >= self._tidy_due_s:
            self._tidy(now_s)
        return min(self.desk.next_s(now_s), self._poll_due_s, self.careers.next_s(), self._calls.next_s(now_s))

    def _post(self, what: Callable[[], None]) -> None:
        self._inbox.append(what)
        self._called.set()

    def _fail_answers(self, error: Exception) -> None:
        answers, self._answers = self._answers, []
        for answer, _ in answers:
            answer.set_exception(error)

    def _engine_called(self) -> None:
        self._has_changed = True
        self._called.set()

    # ---- how things stand ----

    def _look(self, now_s: float) -> None:
        self._has_changed = False
        self._poll_due_s = now_s + self.settings.poll_s
        # What a poll tells of a node that is just being sent to sleep may be over before it is read.
        busy = {node for node in self.desk.view.waking if self._calls.is_under_way(_node(node))}
        poll = self.poll = self.engine.poll()
        for gpu in self.observed.take(poll):
            self.desk.opened(gpu)
        for event in poll.events:
            node = self.engine.cluster.nodes[event.node].name
            where = "" if event.gpu is None else f"GPU {self.engine.cluster.gpu_name(event.gpu)} "
            self._ledger.tell(EventRow(event.at_s, event.what, event.job_id, node, f"{where}{event.about}".strip()))
        self._hear_of_nodes(poll, busy, now_s)
        attempts = self.careers.attempts
        for key, status in poll.attempts.items():
            attempt = attempts.get(key)
            if attempt is None:
                self._stray(key, status, now_s)
            elif status.is_over:
                self.careers.over(attempt, status)
                self._told_s.pop(key, None)
                self._forgettable.append(key)
            else:
                self.careers.alive(attempt, status)

    def _hear_of_nodes(self, poll: Poll, busy: set[int], now_s: float) -> None:
        view = self.desk.view
        for node in sorted((view.waking & poll.awake) - busy):
            view.awake(node)
            self.desk.is_news = True
            self._tell("node-awake", node=node)
            self._memory.note_nodes()
        silent = {node: self._unheard_s.get(node, now_s) for node in poll.unreachable}
        for node in silent.keys() - self._unheard_s.keys():
            self._tell("node-unreachable", node=node)
        for node in self._unheard_s.keys() - silent.keys():
            self._tell("node-reachable", node=node)
        self._unheard_s = silent
        self._apply_drains()

    def _apply_drains(self) -> None:
        """What takes no jobs: by word of the operator, or since nobody answers there."""
        view, cluster = self.desk.view, self.engine.cluster
        gone = [n for n, since_s in self._unheard_s.items() if view.now_s - since_s >= self.settings.lost_after_s]
        wanted = self.drained | {g for n in gone for g in range(cluster.first_gpu[n], cluster.first_gpu[n + 1])}
        for gpu in sorted(wanted - view.drained):
            view.drain(gpu)
            self.desk.is_news = True
        for gpu in sorted(view.drained - wanted):
            view.undrain(gpu)
            self.desk.is_news = True

    def _stray(self, key: Key, status: AttemptStatus, now_s: float) -> None:
        """An attempt whose end is on the disk is forgotten; one that should not be is made to leave."""
        if status.is_over:
            self._forgettable.append(key)
        else:
            self._calls.make("stop", _named(key), partial(self.engine.stop, key, _GRACE_S), now_s, every_s=_GRACE_S)

    def _tail(self, key: Key) -> str:
        """The last lines that it wrote, of its complaints rather than of its output."""
        for stream in _STREAMS:
            try:
                text = self.engine.read_log(key, stream, -_TAIL_BYTES, _TAIL_BYTES).decode(errors="replace")
            except FairleadError:
                continue
            if text.strip():
                return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
        return ""

    # ---- decisions ----

    def _decide(self, now_s: float) -> None:
        for _ in range(_MOST_AT_ONCE):
            if self.desk.next_s(now_s) > now_s:
                return
            self.decide_once(now_s)
        self._tell("policy-restless", about=f"it has decided {_MOST_AT_ONCE} times at one moment")
        self.desk.put_off(now_s + AGAIN_S)

    def decide_once(self, now_s: float) -> None:
        """Ask the policy. What it may not want is refused whole, and a new one is asked later: this one believes it."""
        began_s = time.perf_counter()
        self.observed.pay(now_s)  # for the nodes that were rented until now
        try:
            plan = self.desk.decide()
        except FairleadError as error:
            self._tell("plan-refused", about=error.message)
            self.desk.put_off(now_s + AGAIN_S)
            self.desk.stack = self._new_stack()
            self._memory.recall()
        else:
            self._note(plan)
        if self.on_decision is not None:
            self.on_decision(time.perf_counter() - began_s)

    def _note(self, plan: Plan) -> None:
        self._memory.has_planned = True
        jobs, view = self.desk.jobs, self.desk.view
        for job_id in plan.evict:
            self.careers.set(jobs[job_id], State.WAITING, "evicted-by-policy")
        for place in plan.place:
            self._note_place(jobs[place.job_id], place)
        for node in plan.sleep:
            self._tell("node-given-back" if view.cluster.rental else "node-asleep", node=node)
        for node in plan.wake:
            self._tell("node-rented" if view.cluster.rental else "node-waking", node=node)
        if plan.sleep or plan.wake:
            self._memory.note_nodes()

    def _note_place(self, job: LiveJob, place: Place) -> None:
        what = "placed"
        before = self.careers.attempts.get((job.job.id, job.attempt))
        if before is not None and job.state is State.RUNNING:
            what = "moved" if len(before.gpus) == len(place.gpus) else "resized"
        names = ", ".join(map(self.engine.cluster.gpu_name, place.gpus))
        share = f", {place.sm_share:.0%} of the SMs" if place.sm_share < 1.0 else ""
        job.phase = "starting"
        self.careers.set(job, State.RUNNING, what, f"on {names}{', shared' * place.shared}{share}")

    def _reconcile(self) -> None:
        """Make attempts for who can start, and mark those that must leave; what to do about it follows the save."""
        jobs, attempts = self.desk.jobs, self.careers.attempts
        found = reconcile.steps((jobs[job_id] for job_id in self.desk.view.running), attempts, jobs)
        for attempt in found.leave:
            job = self.careers.get(attempt.job_id)
            attempt.stopping = job.reason if job is not None else "cancelled"
            self._ledger.touch_attempt(attempt)
        for job in found.begin:
            if not self.desk.view.drained.isdisjoint(job.gpus):
                self.desk.returned(job)  # it waited for others to leave, and now nobody is to come any more
                self.careers.set(job, State.WAITING, "drained")
                continue
            if not self._nodes_of(job.gpus).isdisjoint(self.poll.unreachable):
                continue  # once an attempt is made, only that node could tell whether it ever started
            job.attempt += 1
            made = Attempt(job.job.id, job.attempt, job.gpus, job.shared, job.sm_share)
            attempts[made.key] = made
            self._ledger.touch_attempt(made)
            self._ledger.touch(job)

    # ---- the engine ----

    def _act(self, now_s: float) -> None:
        """Have the engine make it true."""
        for key in self._forgettable:
            self._calls.make("forget", _named(key), partial(self.engine.forget, key), now_s)
        self._forgettable.clear()
        used: set[int] = set()
        for key, attempt in self.careers.attempts.items():
            nodes = self._nodes_of(attempt.gpus)
            used |= nodes
            if not nodes.isdisjoint(self.poll.unreachable):
                continue
            if attempt.stopping:
                job = self.careers.get(attempt.job_id)
                grace_s = _GRACE_S if job is None else job.request.grace_s
                if now_s - self._told_s.get(key, -NEVER) > grace_s + _GRACE_S:
                    self._calls.make("stop", _named(key), partial(self._stop, key, grace_s, now_s), now_s)
            elif self._has_to_start(key) and nodes <= self.poll.awake:
                self._calls.make("start", _named(key), partial(self.engine.start, self._order(attempt)), now_s)
        asleep, awake, silent = self.desk.view.asleep, self.poll.awake, self.poll.unreachable
        for node in sorted((asleep & awake) - silent - used):  # who is to leave may still be there
            self._calls.make("sleep", _node(node), partial(self.engine.sleep, node), now_s)
        for node in sorted(self._nodes - asleep - awake - silent):
            self._calls.make("wake", _node(node), partial(self.engine.wake, node), now_s, every_s=_WAKE_AGAIN_S)

    def _has_to_start(self, key: Key) -> bool:
        """Unknown, or on some of its nodes only: the order was lost half way."""
        told = self.poll.attempts.get(key)
        return told is None or told.state is AttemptState.STARTING

    def _tidy(self, now_s: float) -> None:
        """Old logs go, some at a time: agents look at all that they have when they start."""
        self._tidy_due_s = now_s + _TIDY_S
        for job_id in self.store.with_old_logs(self.clock.wall_s() - self.settings.keep_logs_s, _TIDIED):
            self._calls.make("delete", f"the logs of job {job_id}", partial(self._remove_logs, job_id), now_s)

    def _remove_logs(self, job_id: int) -> None:
        self.engine.remove(job_id)
        self.store.logs_removed(job_id).result()

    def _nodes_of(self, gpus: Placement) -> set[int]:
        """Of those that there are: a cluster may have shrunk since."""
        node_of = self.engine.cluster.node_of
        return {node_of[g] for g in gpus if g < len(node_of)}

    def _stop(self, key: Key, grace_s: float, now_s: float) -> None:
        self.engine.stop(key, grace_s)
        self._told_s[key] = now_s

    def _order(self, attempt: Attempt) -> StartOrder:
        job = self.desk.jobs[attempt.job_id]
        request = job.request
        return StartOrder(
            job_id=attempt.job_id,
            attempt=attempt.attempt,
            argv=tuple(request.command),
            gpus=attempt.gpus,
            kind=request.kind,
            cwd=Path(request.cwd),
            env=request.env,
            user=job.user if self.settings.as_submitter else None,
            shared=attempt.shared,
            sm_share=attempt.sm_share,
            memory_mib=job.job.memory_mib,
            slo_s=request.slo_s,
            activity_frac=job.job.profile.activity_frac,
        )

    def _tell(self, what: str, about: str = "", node: int | None = None) -> None:
        name = "" if node is None else self.engine.cluster.nodes[node].name
        self._ledger.tell(EventRow(self.clock.wall_s(), what, None, name, about))


def _named(key: Key) -> str:
    return f"job {key[0]}, attempt {key[1]}"


def _node(node: int) -> str:
    return f"node {node}"
