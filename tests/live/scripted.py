"""An engine that does as the test says, and a controller around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.live.control.clock import Clock
from fairlead.live.control.controller import Controller
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.engines.engine import (
    AttemptState,
    AttemptStatus,
    EngineError,
    GpuReading,
    Heard,
    LogPlace,
    NodeEvent,
    Poll,
    Progress,
    StoppedBy,
    Stray,
    Stream,
)
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.database import Database
from fairlead.live.storage.store import Store
from fairlead.model.catalogue import BUILT_IN, Catalogue
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.interference import built_in
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.policy import registry
from tests.patience import PATIENCE_S

Key = tuple[int, int]
"""What tests call an attempt: its job and number, whatever the epoch of the controller that made it."""


class Hands:
    """Of a clock that stands still until it is moved."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.wall_s = 1.7e9
        """What the time of day was at 0."""

    def clock(self, saved: dict[str, object] | None = None) -> Clock:
        return Clock(saved, boot_s=lambda: self.now_s, wall_s=lambda: self.wall_s + self.now_s, boot="one")


class ScriptedEngine:
    """Attempts that run until the test ends them; those that are asked to leave do at once, unless `stubborn`."""

    def __init__(
        self, cluster: Cluster | str = "1x4", *, is_fake: bool = True, wall_s: Callable[[], float] = time.time
    ):
        self.cluster = parse_shape(cluster) if isinstance(cluster, str) else cluster
        self.is_fake = is_fake
        self.stubborn = False
        """Whether attempts that are asked to leave stay until the test ends them."""
        self.wakes_at_once = True
        self.away: set[int] = set()
        """Nodes that do not answer."""
        self.absent: set[int] = set()
        """Nodes that are not there,"""
        self.vacant: frozenset[int] = frozenset()
        """and those that may be taken again."""
        self.leaving: set[int] = set()
        self.awake = set(range(len(self.cluster.nodes)))
        self.attempts: dict[Key, AttemptStatus] = {}
        """As `poll` tells them."""
        self.orders: dict[Key, Order] = {}
        """All that were ever started, first order first,"""
        self.gpus: dict[Key, Placement] = {}
        """and where."""
        self.started: list[Key] = []
        """Every start that did something, in order: a key stands here once at most."""
        self.stopped: list[Key] = []
        """Every call of `stop`,"""
        self.graces: list[float | None] = []
        """and the grace that it gave."""
        self.forgotten: list[Key] = []
        self.strays: list[Stray] = []
        """Of another database; on nodes that do not answer, as last told."""
        self.removed: list[int] = []
        self.logs: dict[tuple[Key, Stream], bytes] = {}
        self.readings: dict[int, GpuReading] = {}
        self.events: list[NodeEvent] = []
        self.polls = 0
        self.closed = False
        self.disabled: set[int] = set()
        """GPUs that their guards have disabled."""
        self._wall_s = wall_s
        self._lock = threading.RLock()
        self._on_change: Callable[[], None] = lambda: None

    # ---- what a controller calls ----

    def watch(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def poll(self, heard: Heard | None = None) -> Poll:
        with self._lock:
            self.polls += 1
            told = {status.id: status for key, status in self.attempts.items() if not self._is_away(key)}
            after = heard or {}
            events = tuple(e for e in self.events if (e.event_log, e.number) > after.get(e.node, ("", 0)))
            awake, strays = frozenset(self.awake - self.away), tuple(self.strays)
            return Poll(
                told,
                dict(self.readings),
                frozenset(self.away),
                awake,
                events,
                strays,
                absent=frozenset(self.absent),
                leaving=frozenset(self.leaving),
            )

    def start(self, order: Order, gpus: Placement) -> None:
        with self._lock:
            self._answer(gpus)
            key = key_of(order.id)
            if key in self.orders:
                return
            asleep = [g for g in gpus if self.cluster.node_of[g] not in self.awake]
            assert not asleep, f"{key} was started on GPUs {asleep} of nodes that sleep"
            self.orders[key], self.gpus[key] = order, gpus
            self.started.append(key)
            self.attempts[key] = AttemptStatus(order.id, AttemptState.RUNNING, started_at_s=self._wall_s())
        self._on_change()

    def stop(self, attempt: AttemptId, grace_s: float | None = None, gpus: Placement = ()) -> None:
        with self._lock:
            if self._change_stray(attempt, is_over=not self.stubborn):
                return
            key = key_of(attempt)
            self.stopped.append(key)
            self.graces.append(grace_s)
            if key not in self.orders:  # it must never start late
                self.orders[key], self.gpus[key] = Order(attempt), ()
                gone = AttemptStatus(attempt, AttemptState.ENDED, reason="never-started", ended_at_s=self._wall_s())
                self.attempts[key] = replace(gone, stopped_by=StoppedBy.FAIRLEAD)
            self._answer(self.gpus[key])
            if key in self.attempts and not self.attempts[key].is_over:
                self._set(key, stop_requested_at_s=self._wall_s())
                if not self.stubborn:
                    self._end(key, 143, "signalled")
        self._on_change()

    def forget(self, attempt: AttemptId) -> None:
        with self._lock:
            if self._change_stray(attempt, is_over=None):
                return
            self.forgotten.append(key_of(attempt))
            self.attempts.pop(key_of(attempt), None)

    def refresh(self) -> bool:
        return False

    def vacated(self, nodes: frozenset[int]) -> None:
        self.vacant |= nodes

    def remove(self, job_id: int, gpus: Placement = ()) -> None:
        self.removed.append(job_id)

    def read_log(self, attempt: AttemptId, stream: Stream, offset: int, limit: int, gpus: Placement = ()) -> bytes:
        with self._lock:
            key = key_of(attempt)
            if key in self.orders:
                self._answer(self.gpus[key])
            streams = ("stdout", "stderr") if stream == "all" else (stream,)
            data = b"".join(self.logs.get((key, one), b"") for one in streams)
            start = offset if offset >= 0 else max(len(data) + offset, 0)
            return data[start : start + limit]

    def locate_log(self, attempt: AttemptId, stream: Stream, since_s: float, gpus: Placement = ()) -> LogPlace:
        return LogPlace(f"/scripted/{attempt}")

    def sleep(self, node: int) -> None:
        self.set_awake(node, False)

    def wake(self, node: int) -> None:
        if self.wakes_at_once:
            self.set_awake(node, True)

    def enable(self, gpu: int) -> bool:
        was_disabled = gpu in self.disabled
        self.disabled.discard(gpu)
        return was_disabled

    def close(self) -> None:
        self.closed = True

    # ---- what a test says ----

    @property
    def running(self) -> set[Key]:
        """Attempts that are not over."""
        with self._lock:
            return {key for key, status in self.attempts.items() if not status.is_over}

    def end(
        self,
        key: Key,
        exit_code: int = 0,
        reason: str = "exited",
        stopped_by: StoppedBy = StoppedBy.NOBODY,
        ran_s: float | None = None,
        ended_ago_s: float | None = None,
    ) -> None:
        """It is through, or was ended."""
        with self._lock:
            self._set(key, ran_s=ran_s, ended_ago_s=ended_ago_s)
            self._end(key, exit_code, reason)
            if stopped_by:
                self.attempts[key] = replace(self.attempts[key], stopped_by=stopped_by)
        self._on_change()

    def lose(self, key: Key) -> None:
        """It is gone, and nobody knows how."""
        with self._lock:
            lost = {"state": AttemptState.LOST, "stopped_by": StoppedBy.MACHINE, "reason": "supervisor-lost"}
            self._set(key, **lost, ended_at_s=self._wall_s())
        self._on_change()

    def evict(self, key: Key, why: str = "guard") -> None:
        """Its node's guard made it leave."""
        with self._lock:
            self._set(key, evicted=why, stop_requested_at_s=self._wall_s())
            self._end(key, 143, "signalled")
        self._on_change()

    def report(self, key: Key, progress: Progress) -> None:
        """It says how far it is."""
        with self._lock:
            self._set(key, progress=progress)
        self._on_change()

    def meter(self, key: Key, energy_j: float) -> None:
        """What it has used so far."""
        with self._lock:
            self._set(key, energy_j=energy_j, energy_at_s=self._wall_s())
        self._on_change()

    def write(self, key: Key, data: bytes, stream: Stream = "stdout") -> None:
        """It writes."""
        with self._lock:
            self.logs[key, stream] = self.logs.get((key, stream), b"") + data

    def read(self, reading: GpuReading) -> None:
        """A GPU as it is read from now on."""
        with self._lock:
            self.readings[reading.gpu] = reading
        self._on_change()

    def happen(self, event: NodeEvent) -> None:
        """An agent tells of something."""
        with self._lock:
            self.events.append(event)
        self._on_change()

    def set_awake(self, node: int, is_awake: bool = True) -> None:
        """A node can run jobs, or cannot."""
        with self._lock:
            (self.awake.add if is_awake else self.awake.discard)(node)
        self._on_change()

    def set_away(self, node: int, is_away: bool = True) -> None:
        """A node's agent does not answer, or does again; what runs there goes on."""
        with self._lock:
            (self.away.add if is_away else self.away.discard)(node)
        self._on_change()

    def _change_stray(self, attempt: AttemptId, is_over: bool | None) -> bool:
        """Whether it is one; then it is over, or not, or forgotten."""
        found = [stray for stray in self.strays if stray.id == attempt]
        for stray in found:
            if stray.node in self.away:
                raise EngineError(f"node {stray.node} does not answer")
            self.strays.remove(stray)
            if is_over is not None:
                self.strays.append(replace(stray, is_over=is_over))
        if found:
            self._on_change()
        return bool(found)

    def _is_away(self, key: Key) -> bool:
        return any(self.cluster.node_of[g] in self.away for g in self.gpus[key])

    def _answer(self, gpus: tuple[int, ...]) -> None:
        if any(self.cluster.node_of[g] in self.away for g in gpus):
            raise EngineError("the agent does not answer")

    def _end(self, key: Key, exit_code: int, reason: str) -> None:
        ended = {"state": AttemptState.ENDED, "exit_code": exit_code, "reason": reason, "ended_at_s": self._wall_s()}
        is_asked = self.attempts[key].stop_requested_at_s is not None
        self._set(key, **ended, stopped_by=StoppedBy.FAIRLEAD if is_asked else StoppedBy.NOBODY)

    def _set(self, key: Key, **values: object) -> None:
        self.attempts[key] = replace(self.attempts[key], **values)  # type: ignore[arg-type]


def key_of(attempt: AttemptId) -> Key:
    return attempt.job_id, attempt.attempt


class AtOnce(Executor):
    """Engine calls are over when they have been made."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class World:
    """A controller over a scripted engine, with its database. `step` it by hand, or let it run in a thread."""

    def __init__(
        self,
        folder: Path,
        policy: str = "fifo",
        cluster: Cluster | str = "1x4",
        *,
        engine: ScriptedEngine | None = None,
        hands: Hands | None = None,
        settings: Settings | None = None,
        busy_s: float = 5.0,
        round_s: float | None = None,
        workers: Executor | None = None,
        catalogue: Catalogue = BUILT_IN,
    ) -> None:
        self.hands = hands
        self.database = Database(folder / "fairlead.db", busy_s=busy_s)
        self.store = Store(self.database)
        saved = self.store.fact("clock")
        self.clock = hands.clock(saved) if hands is not None else Clock(saved)
        self.engine = engine or ScriptedEngine(cluster, wall_s=self.clock.wall_s)
        observations = Observations(self.clock, built_in("eaco"), is_fake=self.engine.is_fake)
        stack = registry.build(policy, round_s=round_s)
        self.controller = Controller(
            self.store, self.engine, stack, self.clock, observations, settings, workers=workers, catalogue=catalogue
        )
        self._is_closed = False

    def submit(self, user: str = "alice", **asked: object) -> int:
        """A job as the API would submit it."""
        request = JobRequest.model_validate({"command": ["train"], **asked})
        submit_s, at_s = self.clock.now_s(), self.clock.wall_s()
        job_id, _ = self.store.submit(request, user, submit_s, at_s).result()
        job = LiveJob(request.job(job_id, user, submit_s, self.controller.catalogue), request, at_s)
        self.controller.submitted(job)
        return job_id

    def wish(self, job_id: int, wish: str) -> None:
        """Likewise."""
        self.store.wish(job_id, wish).result()
        self.controller.wished(job_id, wish)

    def step(self, passed_s: float = 0.0) -> float:
        """Let time pass on a virtual clock, then one turn of the loop; the moment of the next."""
        if self.hands is not None:
            self.hands.now_s += passed_s
        return self.controller.step()

    def settle(self, turns: int = 200) -> None:
        """Turn until the calls to the engine are through and nothing more happens."""
        for _ in range(turns):
            before = self._seen()
            self.controller.step()
            time.sleep(0.002)
            if not self.controller._calls._under_way and before == self._seen():
                return
        raise AssertionError(f"it did not come to rest in {turns} turns")

    def state(self, job_id: int) -> str:
        """As the disk has it."""
        row = self.store.job_row(job_id)
        assert row is not None
        return str(row["state"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """The loop in a thread of its own, as long as the block lasts."""
        stopping = threading.Event()
        thread = threading.Thread(target=self.controller.run, args=(stopping,), name="controller")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            self.controller.wake()
            thread.join()

    def close(self) -> None:
        """Let the database go, as a process that ends does."""
        if not self._is_closed:
            self._is_closed = True
            self.controller._calls.close()
            self.database.close()

    def _seen(self) -> tuple[object, ...]:
        engine = self.engine
        return (
            len(engine.orders),
            len(engine.stopped),
            len(engine.forgotten),
            dict(engine.attempts),
            tuple(engine.strays),
        )


def wait_for(what: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Until it is so; an `AssertionError` if that never comes."""
    until_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < until_s, "it did not happen in time"
        time.sleep(0.01)
