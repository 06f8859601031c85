"""A controller in a storm: all around it does as a story says, on a virtual clock. The laws are checked every turn."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

import pytest

from fairlead.live.control.clock import Clock
from fairlead.live.control.controller import Controller
from fairlead.live.control.explain import explain
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.control.snapshots import snapshot
from fairlead.live.engines.engine import AttemptState, AttemptStatus, EngineError, GpuReading, Progress
from fairlead.live.jobs.job import COLUMNS, LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import State
from fairlead.live.storage.database import Database, StoreError, Write
from fairlead.live.storage.store import Store
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.interference import built_in
from fairlead.model.placement import Placement
from fairlead.model.snapshot import Snapshot
from fairlead.model.variability import Variability
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.policy import registry
from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import View
from tests.live.scripted import Hands, Key, ScriptedEngine, key_of

SHAPE = "3x2"
SCORES = Variability({name: [1.0, 0.9, 1.3, 1.0, 1.6, 0.8] for name in "ABCD"})
POLICIES: Final = {
    "fifo": "fifo",
    "fifo-greedy": "fifo-greedy",
    "srtf": "srtf",
    "tiresias": "tiresias",
    "eaco": "ordering=priority:preempt=false,sharing=eaco,powering=sleep:after_s=20",
    "sleep": "fifo-greedy,powering=sleep:after_s=0",
    "equal": "sizing=equal",
    "boa": "sizing=boa:budget=4,powering=rent",
    "rent": "fifo,powering=rent",
    "muxflow": "muxflow",
    "pal": "pal-nonsticky",
}
JOBS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"gpus": 2},
    {"gpus": 3},
    {"gpus": 5},
    {"gpus": 2, "min_gpus": 1, "max_gpus": 6},
    {"gpus": 1, "max_gpus": 4, "profile": "BERT"},
    {"priority": "high", "gpus": 2, "profile": "ResNet-50"},
    {"priority": "low", "estimate_s": 40.0, "profile": "AlexNet"},
    {"hold": True},
    {"retries": 0},
    {"retries": 1, "deadline_s": 300.0, "memory_mib": 3000.0},
    {"kind": "service", "priority": 5, "memory_mib": 2000.0},
)
OVER = ("finished", "parked", "cancelled")
TROUBLES = ("", "the disk is full", "StoreError: the disk is gone", "ZeroDivisionError: a bug")


class Later(Executor):
    """Engine calls that are made when the story says so, in the order that it says; or at once."""

    def __init__(self, *, is_slow: bool) -> None:
        self.is_slow = is_slow
        self.calls: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.is_slow:
            self.calls.append(fn)
        else:
            fn()
        return Future()

    def make(self, number: int = 0) -> None:
        """One of those that wait."""
        if self.calls:
            self.calls.pop(number % len(self.calls))()

    def make_all(self) -> None:
        while self.calls:
            self.make()


class Disk(Database):
    """Fills up now and then. Nothing is waited for: this test ends before the power does."""

    is_full = False
    is_gone = False
    """Then it cannot be read either."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection.execute("PRAGMA synchronous = OFF")

    def write(self, change: Write) -> Future[Any]:
        if not self.is_full:
            return super().write(change)
        failed: Future[Any] = Future()
        failed.set_exception(StoreError("the disk is full"))
        return failed

    def read(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        if self.is_gone:
            raise StoreError("the disk is gone")
        return super().read(sql, values)


class Agents(ScriptedEngine):
    """As the real ones: who is away raises, who sleeps starts nothing, and everything wrong is remembered."""

    def __init__(self, cluster: Cluster, hands: Hands) -> None:
        super().__init__(cluster, wall_s=lambda: 1.7e9 + hands.now_s)
        if cluster.rental is not None:
            self.awake.clear()
        self.leaves_with = 143
        self.loses_parts = False
        """Whether orders for several nodes reach only some at first."""
        self.hears_the_dead = False
        """Whether the call at hand is of a controller that was killed."""
        self.wrong: list[str] = []
        self.ends: dict[Key, AttemptStatus] = {}
        """How attempts ended, forgotten or not."""

    def start(self, order: Order, gpus: Placement) -> None:
        key = key_of(order.id)
        self._answer(gpus)
        if key not in self.orders and not self._nodes(gpus) <= self.awake:
            raise EngineError("the node sleeps")
        known = self.attempts.get(key)
        if known is not None and known.state is AttemptState.STARTING and known.stop_requested_at_s is None:
            self._set(key, state=AttemptState.RUNNING)
        is_new = key not in self.orders
        super().start(order, gpus)
        self.check()
        if is_new and self.loses_parts and len(self._nodes(gpus)) > 1:
            self._set(key, state=AttemptState.STARTING)
            raise EngineError("it has reached one of its nodes only")

    def stop(self, attempt: AttemptId, grace_s: float | None = None, gpus: Placement = ()) -> None:
        if key_of(attempt) not in self.orders and self.away:
            raise EngineError("the agent does not answer")
        super().stop(attempt, grace_s, gpus)

    def forget(self, attempt: AttemptId) -> None:
        self._answer(self.gpus[key_of(attempt)])
        super().forget(attempt)

    def sleep(self, node: int) -> None:
        if node in self.away:
            raise EngineError("the agent does not answer")
        if here := [key for key in self.running if node in self._nodes(self.gpus[key])]:
            if not self.hears_the_dead:
                self.wrong.append(f"node {node} is sent to sleep under {here}")
            raise EngineError("the node has jobs")
        super().sleep(node)

    def wake(self, node: int) -> None:
        if node in self.away:
            raise EngineError("the agent does not answer")
        super().wake(node)

    def check(self) -> None:
        """One attempt of a job, and one on a GPU unless all share it."""
        running = sorted(self.running)
        twice = [job_id for job_id, n in Counter(job_id for job_id, _ in running).items() if n > 1]
        if twice:
            self.wrong.append(f"jobs {twice} run twice")
        for one in running:
            for other in running:
                shared = self.orders[one].shared and self.orders[other].shared
                if one < other and set(self.gpus[one]) & set(self.gpus[other]) and not shared:
                    self.wrong.append(f"{one} and {other} are on the same GPU")

    def _nodes(self, gpus: tuple[int, ...]) -> set[int]:
        return {self.cluster.node_of[g] for g in gpus}

    def _end(self, key: Key, exit_code: int, reason: str) -> None:
        asked = self.attempts[key].stop_requested_at_s is not None and not self.attempts[key].evicted
        super()._end(key, self.leaves_with if asked and exit_code == 143 else exit_code, reason)

    def _set(self, key: Key, **values: object) -> None:
        super()._set(key, **values)
        if self.attempts[key].is_over:
            assert key not in self.ends, f"{key} ended twice"
            self.ends[key] = self.attempts[key]


def cluster_of(policy: str) -> Cluster:
    cluster = parse_shape(SHAPE).with_variability(SCORES)
    return cluster.rented(Rental(7.0, 10.0, 5.0)) if rents(spec_of(policy)) else cluster


def spec_of(policy: str) -> str:
    """A name of `POLICIES`, or a stack in its own words."""
    return POLICIES.get(policy, policy)


def rents(spec: str) -> bool:
    return registry.build(spec).powering.rents


class Storm:
    """A controller, the world around it, and what its users were promised."""

    def __init__(self, folder: Path, policy: str, *, is_slow: bool, save_s: float = 0.0) -> None:
        self.policy = policy
        self.settings = Settings(save_s=save_s)
        self.hands = Hands()
        self.boots, self.booted_s, self.jumped_s = 0, 0.0, 0.0
        self.disk = Disk(folder / "fairlead.db")
        self.store = Store(self.disk)
        self.engine = Agents(cluster_of(policy), self.hands)
        self.workers = Later(is_slow=is_slow)
        self.late = Later(is_slow=True)
        """Calls of controllers that were killed, which have left and not arrived."""
        self.jobs: list[int] = []
        """All that were acknowledged."""
        self.over: dict[int, str] = {}
        """Jobs that are over, and as what."""
        self.may_be_released: set[int] = set()
        self.answers: list[Future[Any]] = []
        self.is_saved = False
        self.controller = self.born()

    def born(self) -> Controller:
        """A controller, on what the last one left."""
        clock = Clock(
            self.store.fact("clock"),
            boot_s=lambda: self.hands.now_s - self.booted_s,
            wall_s=lambda: 1.7e9 + self.hands.now_s + self.jumped_s,
            boot=str(self.boots),
        )
        observations = Observations(clock, built_in("eaco"), is_fake=True)
        stack = registry.build(spec_of(self.policy))
        return Controller(self.store, self.engine, stack, clock, observations, self.settings, workers=self.workers)

    # ---- moves ----

    def submit(self, n: int) -> None:
        wanted = JobRequest.model_validate({"command": ["train"], **JOBS[n % len(JOBS)]})
        submit_s, at_s = self.controller.clock.now_s(), self.controller.clock.wall_s()
        try:
            job_id, _ = self.store.submit(wanted, "ann", submit_s, at_s).result()
        except StoreError:
            return
        job = LiveJob(wanted.job(job_id, "ann", submit_s), wanted, at_s)
        self.jobs.append(job_id)
        self.is_saved = False
        self.controller.submitted(job)

    def cancel(self, n: int) -> None:
        self.wish(n, "cancel")

    def hold(self, n: int) -> None:
        self.wish(n, "hold")

    def release(self, n: int) -> None:
        self.wish(n, "release")

    def wish(self, n: int, wish: str) -> None:
        if self.jobs:
            job_id = self.jobs[n % len(self.jobs)]
            try:
                self.store.wish(job_id, wish).result()
            except StoreError:
                return
            if wish == "release":
                self.may_be_released.add(job_id)
            self.is_saved = False
            self.controller.wished(job_id, wish)

    def finish(self, n: int) -> None:
        self.each(n, lambda key: self.engine.end(key, 0))

    def fail(self, n: int) -> None:
        self.each(n, lambda key: self.engine.end(key, 7))

    def vanish(self, n: int) -> None:
        self.each(n, self.engine.lose)

    def be_unknown(self, n: int) -> None:
        self.each(n, lambda key: self.engine.end(key, 127, "command-not-found"))

    def be_evicted(self, n: int) -> None:
        self.each(n, self.engine.evict)

    def give_in(self, n: int) -> None:
        leaving = [k for k in sorted(self.engine.running) if self.engine.attempts[k].stop_requested_at_s is not None]
        if leaving:
            self.engine.end(leaving[n % len(leaving)], 143, "signalled")

    def report(self, n: int) -> None:
        """What jobs say of themselves need not make sense."""
        progress = Progress(
            n % 10,
            (10, 10, None, 3, 0)[n // 10 % 5],
            (3.0, 8.0, None, 0.0, 1e9)[n // 50 % 5],
            self.controller.clock.wall_s() if n % 7 else None,
            samples_per_s=None if n % 3 else float(n),
            has_finished=n % 10 == 9,
        )
        self.each(n, lambda key: self.engine.report(key, progress))

    def meter(self, n: int) -> None:
        self.each(n, lambda key: self.engine.meter(key, float(n)))

    def guard(self, n: int) -> None:
        """A GPU takes offline work beside a service, or does not."""
        self.engine.read(GpuReading(n % 6, accepts_offline=n % 4 != 0))

    def each(self, n: int, do: Callable[[Key], None]) -> None:
        running = sorted(self.engine.running)
        if running:
            do(running[n % len(running)])

    def be_stubborn(self, n: int) -> None:
        self.engine.stubborn = n % 2 == 0
        self.engine.leaves_with = (143, 0)[n // 2 % 2]

    def lose_parts(self, n: int) -> None:
        self.engine.loses_parts = n % 2 == 0

    def go_away(self, n: int) -> None:
        self.engine.set_away(n % 3)

    def come_back(self, n: int) -> None:
        self.engine.set_away(n % 3, False)

    def drain(self, n: int) -> None:
        self.set_drained(n, True)

    def resume(self, n: int) -> None:
        self.set_drained(n, False)

    def set_drained(self, n: int, drain: bool) -> None:
        controller, gpus = self.controller, {n % 6} if n % 2 else {n % 3 * 2, n % 3 * 2 + 1}
        self.is_saved = False
        self.answers.append(controller.ask(lambda: controller.set_drained(gpus, drain)))

    def boot_slowly(self, n: int) -> None:
        self.engine.wakes_at_once = n % 2 == 0
        for node in sorted(self.controller.driver.view.waking):
            self.engine.set_awake(node)

    def fill(self, n: int) -> None:
        self.disk.is_full = n % 3 != 0
        self.disk.is_gone = n % 6 == 1

    def err(self, n: int) -> None:
        """The policy fails, or breaks a law, the next time that it is asked."""
        stack = self.controller.driver.stack
        if "decide" in vars(stack):
            return
        decide = stack.decide

        def once(view: View) -> Plan:
            del stack.decide  # type: ignore[method-assign]
            if n % 2:
                raise ZeroDivisionError("a bug")
            plan = decide(view)
            plan.place.append(Place(999, (0,), False))
            return plan

        stack.decide = once  # type: ignore[method-assign]

    def call(self, n: int) -> None:
        self.workers.make(n)

    def call_late(self, n: int) -> None:
        self.engine.hears_the_dead = True
        self.late.make(n)
        self.engine.hears_the_dead = False

    def kill(self, n: int) -> None:
        """It goes on with what was saved."""
        before, was_saved = self.picture(), self.is_saved
        self.kill_all(n)
        if was_saved:
            after = self.picture()
            for name in before:
                assert after[name] == before[name], f"{name} is another after a restart"

    def boot(self, n: int) -> None:
        """The controller's machine, with another time of day; nodes go on."""
        self.boots, self.booted_s, self.jumped_s = self.boots + 1, self.hands.now_s, (-900.0, 0.0, 60.0)[n % 3]
        self.kill_all(n)

    def reconfigure(self, n: int) -> None:
        """Begin anew with another policy."""
        able = [name for name, spec in POLICIES.items() if self.engine.cluster.rental or not rents(spec)]
        self.policy = able[n % len(able)]
        self.kill_all(n)

    def kill_all(self, n: int) -> None:
        """Of the calls under way some are lost, some arrive at once, and some whenever they like."""
        self.disk.is_gone = False
        calls, self.workers = self.workers.calls, Later(is_slow=self.workers.is_slow)
        for number, call in enumerate(calls):
            fate = (n >> number) % 3
            if fate == 1:
                call()
            elif fate == 2:
                self.late.calls.append(call)
        self.answers.clear()
        self.is_saved = False
        self.controller = self.born()

    def look(self, _: int) -> None:
        """Somebody wants to know."""
        controller = self.controller
        self.answers.append(controller.ask(lambda: self.explain_all(controller)))

    def pass_time(self, n: int) -> None:
        self.hands.now_s += (0.5, 3.0, 12.0, 45.0, 700.0)[n % 5]

    def turn(self, _: int = 0) -> float:
        next_s = self.controller.turn()
        self.is_saved = not self.controller.trouble
        for answer in self.answers:
            if answer.done() and answer.exception() is not None:
                assert type(answer.exception()) in (ZeroDivisionError, StoreError), repr(answer.exception())
        self.answers = [answer for answer in self.answers if not answer.done()]
        self.check()
        return next_s

    # ---- laws ----

    def explain_all(self, controller: Controller) -> None:
        for job_id in self.jobs:
            if controller.lifecycle.get(job_id) is not None:
                json.dumps(explain(controller, job_id))
        taken = snapshot(controller)
        assert Snapshot.from_dict(json.loads(json.dumps(taken.to_dict()))) == taken

    def picture(self) -> dict[str, Any]:
        """What a controller knows, and must know again after it was killed."""
        c, view = self.controller, self.controller.driver.view
        c.observations.pay(c.clock.now_s())
        return {
            "jobs": {j: known(job) for j, job in sorted(c.driver.jobs.items())},
            "aside": {j: known(job) for j, job in sorted(c.lifecycle.aside.items())},
            "attempts": dict(sorted(c.lifecycle.attempts.items())),
            "on_gpu": list(view.on_gpu),
            "nodes": (view.asleep, view.waking, view.rented_s),
            "drained": c.drained,
            "paid": pytest.approx(c.observations.paid),
        }

    def check(self) -> None:
        assert self.controller.trouble in TROUBLES, self.controller.trouble
        self.engine.check()
        assert self.engine.wrong == []
        self.check_view()
        if self.is_saved and not self.disk.is_gone:
            self.check_rows()
            self.check_attempts()

    def check_view(self) -> None:
        """Counters are what a recount gives."""
        c, view = self.controller, self.controller.driver.view
        on_gpu: dict[int, list[int]] = {}
        for job_id, job in view.running.items():
            assert job.gpus
            for g in job.gpus:
                on_gpu.setdefault(g, []).append(job_id)
        assert list(view.on_gpu) == [tuple(sorted(on_gpu.get(g, ()))) for g in range(view.cluster.gpus)]
        off = view.asleep | view.waking
        up = [g for g in range(view.cluster.gpus) if g not in view.drained and view.cluster.node_of[g] not in off]
        assert list(view.free) == [g for g in up if g not in on_gpu]
        assert (view.free.count, view.up_gpus) == (len(list(view.free)), len(up))
        assert view.running.keys() | view.waiting.keys() == c.driver.jobs.keys()
        assert not view.running.keys() & view.waiting.keys()
        assert not c.driver.jobs.keys() & c.lifecycle.aside.keys()
        for job in c.driver.jobs.values():
            assert job.state is (State.RUNNING if job.gpus else State.WAITING)
            assert job.phase == "" or job.gpus or self.is_open(job.job.id)
        for job in c.lifecycle.aside.values():
            assert (job.state is State.BACKING_OFF) == (job.due_s is not None), job.state
            assert job.phase == "" or self.is_open(job.job.id)

    def is_open(self, job_id: int) -> bool:
        return any(attempt.job_id == job_id for attempt in self.controller.lifecycle.attempts)

    def check_rows(self) -> None:
        """Nobody is lost, what is on the disk is what is known, and who is over stays so."""
        rows = {row["id"]: row for row in self.store.page(limit=10_000)}
        assert sorted(rows) == sorted(self.jobs)
        for job_id, row in rows.items():
            job = self.controller.lifecycle.get(job_id)
            assert (job is None) == (row["state"] in OVER)
            if job is not None:
                assert row["state"] == job.state
                assert tuple(json.loads(row["gpus"])) == job.gpus
            before = self.over.get(job_id)
            if before is not None and row["state"] != before:
                assert before == "parked", f"job {job_id} was {before} and is {row['state']}"
                assert job_id in self.may_be_released
            if row["state"] in OVER:
                self.over[job_id] = row["state"]
                assert (row["phase"] == "stopping") == self.is_open(job_id)
            else:
                self.over.pop(job_id, None)
        assert not self.store.wishes(), "a wish was not granted"

    def check_attempts(self) -> None:
        """What is told of those that are over is what the engine told."""
        for job_id in self.jobs:
            tried = self.store.attempts_of(job_id)
            row = self.store.job_row(job_id)
            assert row is not None
            assert [a.id.attempt for a in tried] == list(range(1, row["attempt"] + 1))
            assert all(a.is_over for a in tried[:-1]), "a new one was made before the last was over"
            for attempt in tried:
                if attempt.is_over and key_of(attempt.id) in self.engine.ends:
                    assert attempt.exit_code == self.engine.ends[key_of(attempt.id)].exit_code
                elif attempt.is_over:
                    assert attempt.exit_code is None
            assert (row["energy_j"] or 0.0) == sum(a.energy_j or 0.0 for a in tried)
            if row["state"] in ("finished", "parked"):
                assert row["exit_code"] == tried[-1].exit_code

    # ---- the end ----

    def calm(self) -> None:
        """Everything works from now on, and jobs that run end."""
        self.disk.is_full = self.disk.is_gone = False
        self.engine.stubborn, self.engine.wakes_at_once = False, True
        for node in range(3):
            self.engine.set_away(node, False)
        vars(self.controller.driver.stack).pop("decide", None)
        self.turn()
        self.set_drained(0, False)
        self.set_drained(2, False)
        self.set_drained(4, False)
        for number in range(300 + len(self.late.calls)):
            self.workers.make_all()
            self.call_late(0)
            next_s = self.turn()
            self.let_end(services=number > 100)
            if not self.engine.running and all(self.is_through(job_id) for job_id in self.jobs):
                break
            self.hands.now_s += max(min(next_s - self.controller.clock.now_s(), 50.0), 0.1)
        states = [(j, row["state"], row["reason"]) for j in self.jobs if (row := self.store.job_row(j))]
        assert all(self.is_through(job_id) for job_id in self.jobs), states
        while self.late.calls:
            self.call_late(0)
        for _ in range(5):
            self.turn()
            self.workers.make_all()
            self.hands.now_s += 3.0
        assert not self.store.open_attempts()
        assert not self.engine.running
        assert not self.engine.attempts, "not all were forgotten"

    def let_end(self, *, services: bool) -> None:
        """Whoever runs; services when nobody else is left, or they are in the way."""
        for key in sorted(self.engine.running):
            row = self.store.job_row(key[0])
            assert row is not None
            if not self.is_service(row) and self.engine.attempts[key].state is AttemptState.RUNNING:
                self.engine.end(key, 0)
        left = [row for j in self.jobs if (row := self.store.job_row(j)) and row["state"] not in OVER]
        for row in left:
            if row["state"] == "held":
                self.wish(self.jobs.index(row["id"]), "release")
            elif self.is_service(row) and (services or all(map(self.is_service, left))):
                self.wish(self.jobs.index(row["id"]), "cancel")

    def is_service(self, row: sqlite3.Row) -> bool:
        return json.loads(row["request"]).get("kind") == "service"

    def is_through(self, job_id: int) -> bool:
        row = self.store.job_row(job_id)
        return row is not None and row["state"] in OVER and not row["phase"]

    def close(self) -> None:
        self.disk.close()


def known(job: LiveJob) -> dict[str, Any]:
    """Its share of the SMs means nothing while it has none."""
    row = dict(zip(COLUMNS, job.row(), strict=True))
    return row if job.gpus else row | {"sm_share": 1.0}
