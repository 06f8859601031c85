"""Has the engine make true what the controller wants: attempts start and stop, nodes sleep and wake, old logs go."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fairlead.live.control.clock import Clock
from fairlead.live.control.engine_calls import EngineCalls
from fairlead.live.control.settings import Settings
from fairlead.live.control.working_state import WorkingState
from fairlead.live.engines.engine import AttemptState, AttemptStatus, Engine, EngineError, Poll, Stray
from fairlead.live.jobs.job import LiveJob
from fairlead.live.storage.store import Attempt, EventRow, Store
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.policy.working_job import NEVER

_STOP_AGAIN_S = 30.0
"""What was stopped and is not over is stopped again after this; agents take it for the same request."""
_WAKE_AGAIN_S = 30.0
_TIDY_S, _TIDIED = 60.0, 100


class Dispatch:
    """All calls to the engine that change something. Each may be made again without harm."""

    def __init__(self, engine: Engine, store: Store, clock: Clock, settings: Settings, calls: EngineCalls) -> None:
        self._engine, self._store, self._clock, self._settings = engine, store, clock, settings
        self._calls = calls
        self._told: dict[AttemptId, tuple[float, set[int]]] = {}
        """When this very controller stopped attempts, and their nodes that did not answer then."""
        self._forgettable: list[AttemptId] = []
        self._strays: frozenset[Stray] = frozenset()
        """Those that the log has told of."""
        self._tidy_due_s = 0.0

    def begin(self) -> None:
        """Another working state was made: what was over in the last one may not have been saved."""
        self._forgettable.clear()

    def is_busy_with(self, node: int) -> bool:
        """Whether a node is being sent to sleep or woken."""
        return self._calls.is_under_way(_node(node))

    def over(self, attempt: AttemptId) -> None:
        """An attempt is over: once that is on the disk its node may forget it."""
        self._told.pop(attempt, None)
        self._forgettable.append(attempt)

    def lost(self, attempt: AttemptId) -> None:
        """An attempt went with its nodes: there is nobody to forget it."""
        self._told.pop(attempt, None)

    def stray(self, status: AttemptStatus, now_s: float) -> None:
        """An attempt whose end is on the disk is forgotten; one that should not be is stopped."""
        if status.is_over:
            self._forgettable.append(status.id)
        else:
            stop = partial(self._engine.stop, status.id)
            self._calls.make("stop", status.id.in_words, stop, now_s, every_s=_STOP_AGAIN_S)

    def stop_strays(self, work: WorkingState, poll: Poll, now_s: float) -> None:
        """What a node runs for a database that had gone on after this one's backup is stopped, and its GPUs come free.

        Its job, if this database knows it at all, waits until then (`reconcile`) and goes on from its checkpoint.
        """
        for stray in poll.strays:
            if stray not in self._strays and not stray.is_over:
                node = self._engine.cluster.nodes[stray.node].name
                about = f"attempt {stray.id}: not in this database, so it is stopped"
                work.pending_writes.tell(EventRow(self._clock.wall_s(), "stray-attempt", None, node, about))
            if stray.node not in poll.unreachable:
                about = f"attempt {stray.id} on node {stray.node}"
                if stray.is_over:
                    self._calls.make("forget", about, partial(self._engine.forget, stray.id), now_s)
                else:
                    stop = partial(self._engine.stop, stray.id)
                    self._calls.make("stop", about, stop, now_s, every_s=_STOP_AGAIN_S)
        self._strays = frozenset(poll.strays)

    def act(self, work: WorkingState, poll: Poll, now_s: float) -> None:
        """Make the calls that what is on the disk asks for and the last poll has not seen done."""
        for one in self._forgettable:
            self._calls.make("forget", one.in_words, partial(self._engine.forget, one), now_s)
        self._forgettable.clear()
        used: set[int] = set()
        for one, attempt in work.lifecycle.attempts.items():
            nodes = self.nodes_of(attempt.gpus)
            used |= nodes
            away = nodes.intersection(poll.unreachable)
            if attempt.stopping:
                told_s, away_then = self._told.get(one, (-NEVER, set()))
                is_due = now_s - told_s > _STOP_AGAIN_S or not away >= away_then
                if is_due and (away != nodes or not nodes):
                    self._calls.make("stop", one.in_words, partial(self._stop, attempt, away, now_s), now_s)
            elif not away and _has_to_start(one, poll) and nodes <= poll.awake:
                start = partial(self._start, self._order(attempt, work.driver.jobs[one.job_id]), attempt.gpus)
                self._calls.make("start", one.in_words, start, now_s, nodes=nodes)
        asleep, awake, silent = work.driver.view.asleep, poll.awake, poll.unreachable
        for node in sorted((asleep & (awake | poll.coming)) - silent - used):  # what was stopped may still be there
            self._calls.make("sleep", _node(node), partial(self._engine.sleep, node), now_s)
        if poll.absent:
            # Nodes that have gone may come again once nothing that ran there is open, or on its way there.
            self._engine.vacated(poll.absent - used - self._calls.nodes_under_way)
        everywhere = frozenset(range(len(work.driver.view.cluster.nodes)))
        for node in sorted(everywhere - asleep - awake - silent):
            self._calls.make("wake", _node(node), partial(self._engine.wake, node), now_s, every_s=_WAKE_AGAIN_S)
        if now_s >= self._tidy_due_s:
            self._tidy(now_s)

    def nodes_of(self, gpus: Placement) -> set[int]:
        """The nodes of these GPUs, as far as they are there: a cluster may have shrunk since."""
        node_of = self._engine.cluster.node_of
        return {node_of[g] for g in gpus if g < len(node_of)}

    def _tidy(self, now_s: float) -> None:
        """Old logs go, some at a time: agents look at all that they have when they start."""
        self._tidy_due_s = now_s + _TIDY_S
        for job_id in self._store.with_old_logs(self._clock.up_s() - self._settings.keep_logs_s, _TIDIED):
            self._calls.make("delete", f"the logs of job {job_id}", partial(self._remove_logs, job_id), now_s)

    def _remove_logs(self, job_id: int) -> None:
        gpus = {gpu for attempt in self._store.attempts_of(job_id) for gpu in attempt.gpus}
        self._engine.remove(job_id, tuple(sorted(gpus)))
        self._store.logs_removed(job_id).result()

    def _stop(self, attempt: Attempt, away: set[int], now_s: float) -> None:
        try:
            self._engine.stop(attempt.id, gpus=attempt.gpus)
        except EngineError:
            if not away:
                raise
            # Whoever answers has been told; the others are when they answer again.
        self._told[attempt.id] = (now_s, away)

    def _start(self, order: Order, gpus: Placement) -> None:
        """With its command and environment, which only the disk has."""
        request = self._store.request(order.id.job_id)
        self._engine.start(replace(order, argv=tuple(request.command), env=request.env), gpus)

    def _order(self, attempt: Attempt, job: LiveJob) -> Order:
        """All but its command and environment."""
        request, memory_mib = job.request, job.job.memory_mib
        if job.job.gpu_frac < 1.0 and not memory_mib:  # who does not say has as large a part of the memory
            memory_mib = job.job.gpu_frac * self._engine.cluster.gpu_model(attempt.gpus[0]).memory_mib
        return Order(
            attempt.id,
            kind=request.kind,
            cwd=request.cwd,
            user=job.user if self._settings.as_submitter else None,
            shared=attempt.shared,
            sm_share=attempt.sm_share,
            memory_mib=memory_mib,
            slo_s=request.slo_s,
            latency_url=request.latency_url,
            latency_metric=request.latency_metric,
            activity_frac=job.job.profile.activity_frac,
            grace_s=request.grace_s,
        )


def _has_to_start(attempt: AttemptId, poll: Poll) -> bool:
    """Unknown, or on some of its nodes only: the order was lost half way."""
    told = poll.attempts.get(attempt)
    return told is None or told.state is AttemptState.STARTING


def _node(node: int) -> str:
    return f"node {node}"
