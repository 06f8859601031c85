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

from fairlead.live.clock import Clock
from fairlead.live.controller import Controller, Settings
from fairlead.live.database import Database
from fairlead.live.engine import (
    AttemptState,
    AttemptStatus,
    EngineError,
    GpuReading,
    Key,
    NodeEvent,
    Poll,
    Progress,
    StartOrder,
    Stream,
)
from fairlead.live.livejob import LiveJob, State
from fairlead.live.observed import Observed
from fairlead.live.request import JobRequest
from fairlead.live.store import Store
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.interference import built_in
from fairlead.policy import registry

WAIT_S = 30.0
"""For what happens at once unless the machine is very busy."""


class Hands:
    """Of a clock that stands still until it is moved."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def clock(self, saved: dict[str, object] | None = None) -> Clock:
        return Clock(saved, boot_s=lambda: self.now_s, wall_s=lambda: 1.7e9 + self.now_s, boot="one")


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
        self.awake = set(range(len(self.cluster.nodes)))
        self.attempts: dict[Key, AttemptStatus] = {}
        """As `poll` tells them."""
        self.orders: dict[Key, StartOrder] = {}
        """All that were ever started, first order first."""
        self.started: list[Key] = []
        """Every start that did something, in order: a key stands here once at most."""
        self.stopped: list[Key] = []
        """Every call of `stop`."""
        self.forgotten: list[Key] = []
        self.removed: list[int] = []
        self.logs: dict[tuple[Key, Stream], bytes] = {}
        self.readings: dict[int, GpuReading] = {}
        self.events: list[NodeEvent] = []
        self.polls = 0
        self.closed = False
        self._wall_s = wall_s
        self._lock = threading.RLock()
        self._on_change: Callable[[], None] = lambda: None

    # ---- what a controller calls ----

    def watch(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def poll(self) -> Poll:
        with self._lock:
            self.polls += 1
            told = {key: status for key, status in self.attempts.items() if not self._is_away(key)}
            events, self.events = tuple(self.events), []
            return Poll(told, dict(self.readings), frozenset(self.away), frozenset(self.awake - self.away), events)

    def start(self, order: StartOrder) -> None:
        with self._lock:
            self._answer(order.gpus)
            if order.key in self.orders:
                return
            asleep = [g for g in order.gpus if self.cluster.node_of[g] not in self.awake]
            assert not asleep, f"{order.key} was started on GPUs {asleep} of nodes that sleep"
            self.orders[order.key] = order
            self.started.append(order.key)
            at_s = self._wall_s()
            self.attempts[order.key] = AttemptStatus(*order.key, AttemptState.RUNNING, started_at_s=at_s)
        self._on_change()

    def stop(self, key: Key, grace_s: float) -> None:
        with self._lock:
            self.stopped.append(key)
            if key not in self.orders:  # it must never start late
                self.orders[key] = StartOrder(*key, (), ())
                gone = AttemptStatus(*key, AttemptState.ENDED, reason="never-started", ended_at_s=self._wall_s())
                self.attempts[key] = replace(gone, stop_requested_at_s=gone.ended_at_s)
            self._answer(self.orders[key].gpus)
            if key in self.attempts and not self.attempts[key].is_over:
                self._set(key, stop_requested_at_s=self._wall_s())
                if not self.stubborn:
                    self._end(key, 143, "signalled")
        self._on_change()

    def forget(self, key: Key) -> None:
        with self._lock:
            self.forgotten.append(key)
            self.attempts.pop(key, None)

    def remove(self, job_id: int) -> None:
        self.removed.append(job_id)

    def read_log(self, key: Key, stream: Stream, offset: int, limit: int) -> bytes:
        with self._lock:
            if key in self.orders:
                self._answer(self.orders[key].gpus)
            data = self.logs.get((key, stream), b"")
            start = offset if offset >= 0 else max(len(data) + offset, 0)
            return data[start : start + limit]

    def sleep(self, node: int) -> None:
        self.set_awake(node, False)

    def wake(self, node: int) -> None:
        if self.wakes_at_once:
            self.set_awake(node, True)

    def close(self) -> None:
        self.closed = True

    # ---- what a test says ----

    @property
    def running(self) -> set[Key]:
        """Attempts that are not over."""
        with self._lock:
            return {key for key, status in self.attempts.items() if not status.is_over}

    def end(self, key: Key, exit_code: int = 0, reason: str = "exited") -> None:
        """It is through."""
        with self._lock:
            self._end(key, exit_code, reason)
        self._on_change()

    def lose(self, key: Key) -> None:
        """It is gone, and nobody knows how."""
        with self._lock:
            self._set(key, state=AttemptState.LOST, reason="lost", ended_at_s=self._wall_s())
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
            self._set(key, energy_j=energy_j)
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

    def _is_away(self, key: Key) -> bool:
        return any(self.cluster.node_of[g] in self.away for g in self.orders[key].gpus)

    def _answer(self, gpus: tuple[int, ...]) -> None:
        if any(self.cluster.node_of[g] in self.away for g in gpus):
            raise EngineError("the agent does not answer")

    def _end(self, key: Key, exit_code: int, reason: str) -> None:
        ended = {"state": AttemptState.ENDED, "exit_code": exit_code, "reason": reason, "ended_at_s": self._wall_s()}
        self._set(key, **ended)

    def _set(self, key: Key, **values: object) -> None:
        self.attempts[key] = replace(self.attempts[key], **values)  # type: ignore[arg-type]


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
    ) -> None:
        self.hands = hands
        self.database = Database(folder / "fairlead.db", busy_s=busy_s)
        self.store = Store(self.database)
        saved = self.store.fact("clock")
        self.clock = hands.clock(saved) if hands is not None else Clock(saved)
        self.engine = engine or ScriptedEngine(cluster, wall_s=self.clock.wall_s)
        observed = Observed(self.clock, built_in("eaco"), is_fake=self.engine.is_fake)
        stack = registry.build(policy, round_s=round_s)
        self.controller = Controller(self.store, self.engine, stack, self.clock, observed, settings, workers=workers)
        self._is_closed = False

    def submit(self, user: str = "alice", **asked: object) -> int:
        """A job as the API would submit it."""
        request = JobRequest.model_validate({"command": ["train"], **asked})
        submit_s, at_s = self.clock.now_s(), self.clock.wall_s()
        job_id, _ = self.store.submit(request, user, submit_s, at_s).result()
        job = LiveJob(request.job(job_id, user, submit_s), request, at_s)
        job.state = State.HELD if request.hold else State.WAITING
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
        return len(engine.orders), len(engine.stopped), len(engine.forgotten), dict(engine.attempts)


def wait_for(what: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """Until it is so; an `AssertionError` if that never comes."""
    until_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < until_s, "it did not happen in time"
        time.sleep(0.01)
