"""Health is what happened lately, and a policy that never ends is stopped."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.control.settings import Settings
from fairlead.live.control.watchdog import PolicyStuckError, Watchdog
from fairlead.live.engines.engine import Heard, Poll
from fairlead.live.health import SLACK_S, Health
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.rig import Rig
from tests.live.scripted import ScriptedEngine, World, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture
def hasty(make_world: MakeWorld) -> Iterator[Served]:
    """A policy is given a fifth of a second."""
    with served(make_world(settings=Settings(decide_s=0.2), busy_s=0.05)) as made:
        yield made


def health(site: Served) -> tuple[int, str]:
    found = site.call("GET", "/health", who=None)
    assert (found.status == 200) == (found.json["status"] == "ok") == (not found.json["reasons"])
    return found.status, "; ".join(found.json["reasons"])


def loop_for_ever(view: View) -> Plan:
    while True:
        try:
            sum(range(100))
        except Exception:
            continue


def sleep_for_long(view: View) -> Plan:
    time.sleep(3.0)  # in C, where nothing can be raised
    return Plan()


@pytest.mark.parametrize("never_ends", [loop_for_ever, sleep_for_long])
def test_a_policy_that_never_ends_is_stopped_and_asked_anew(hasty: Served, never_ends: Callable[[View], Plan]) -> None:
    hasty.world.controller.driver.stack.decide = never_ends  # type: ignore[method-assign]
    job_id = hasty.submit()
    wait_for(lambda: "policy does not decide" in health(hasty)[1])
    assert "has not decided within 0.2 s" in hasty.call("GET", "/v1/summary", who="olga").json["trouble"]
    wait_for(lambda: (job_id, 1) in hasty.world.engine.running)  # by a stack that has forgotten it
    wait_for(lambda: health(hasty) == (200, ""))
    told = [event["what"] for event in hasty.call("GET", "/v1/events", who="olga").json["events"]]
    assert told.count("policy-stopped") == 1


def test_a_policy_that_is_stopped_again_and_again_is_asked_less_and_less_often_and_the_rest_goes_on(
    make_world: MakeWorld, hands: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(hands=hands, settings=Settings(decide_s=0.02))
    first = world.submit()
    world.settle()
    asked: list[float] = []

    def never(stack: Stack, view: View) -> Plan:
        asked.append(view.now_s)
        return loop_for_ever(view)

    monkeypatch.setattr(Stack, "decide", never)
    second = world.submit()
    for _ in range(400):
        world.step(1.0)
    gaps = [round(b - a) for a, b in itertools.pairwise(asked)]
    assert gaps == [2, 60, 120]
    world.wish(second, "cancel")  # what needs no policy is done all the same
    world.engine.end((first, 1))
    world.settle()
    assert (world.state(first), world.state(second)) == ("finished", "cancelled")


def stack_that(decide: Callable[[Any], Plan], spec: str = "odd") -> Any:
    return type("Odd", (), {"spec": spec, "decide": staticmethod(decide)})


def test_the_thread_that_asks_is_the_one_that_decides_and_is_itself_again_after_an_interruption() -> None:
    watchdog, seen = Watchdog(0.05), []
    with pytest.raises(PolicyStuckError, match=r"loops has not decided within 0\.05 s"):
        watchdog.decide(stack_that(loop_for_ever, "loops"), None)  # type: ignore[arg-type]
    assert watchdog.trouble == ""

    def well(view: object) -> Plan:
        seen.append(threading.current_thread())
        return Plan(evict=[1])

    assert watchdog.decide(stack_that(well), None) == Plan(evict=[1])  # type: ignore[arg-type]
    assert seen == [threading.current_thread()], "handing it over costs more than most decisions"


def test_a_policy_that_catches_everything_is_interrupted_again_and_what_it_says_then_counts_for_nothing() -> None:
    caught: list[BaseException] = []

    def stubborn(view: object) -> Plan:
        while len(caught) < 2:
            try:
                loop_for_ever(view)  # type: ignore[arg-type]
            except BaseException as error:
                caught.append(error)
        return Plan(evict=[1])

    with pytest.raises(PolicyStuckError):
        Watchdog(0.02).decide(stack_that(stubborn), None)  # type: ignore[arg-type]
    assert len(caught) == 2


def test_nobody_is_interrupted_after_a_decision_however_close_it_came() -> None:
    """Decisions that take about as long as they may: each is in time or is not, and nothing is raised later."""
    watchdog, late = Watchdog(0.002), 0
    for number in range(200):
        until_s = time.monotonic() + 0.00006 * number
        try:
            plan = watchdog.decide(stack_that(lambda view, until_s=until_s: spin(until_s)), None)  # type: ignore[arg-type,misc]
            assert plan == Plan()
        except PolicyStuckError:
            late += 1
        spin(time.monotonic() + 0.001)  # here nobody may be interrupted
    assert 0 < late < 200


def spin(until_s: float) -> Plan:
    while time.monotonic() < until_s:
        pass
    return Plan()


def test_what_the_loop_is_stuck_in_is_told_while_it_is(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In C nothing can be raised: the loop stands still, and says so, until that returns."""
    monkeypatch.setattr("fairlead.live.health.SLACK_S", 0.0)
    hasty.world.controller.settings = replace(hasty.world.controller.settings, poll_s=0.3)
    free = threading.Lock()
    free.acquire()

    def wait(view: View) -> Plan:
        free.acquire()
        return Plan()

    hasty.world.controller.driver.stack.decide = wait  # type: ignore[method-assign]
    job_id = hasty.submit()
    try:
        wait_for(lambda: "has not come round for" in health(hasty)[1])
        wait_for(lambda: "the policy does not decide" in health(hasty)[1])
    finally:
        free.release()
    wait_for(lambda: (job_id, 1) in hasty.world.engine.running)


def test_nobody_watches_where_nothing_is_decided() -> None:
    watchdog = Watchdog(0.02)
    watchdog.decide(stack_that(lambda view: Plan()), None)  # type: ignore[arg-type]
    assert watchdog._watcher is not None
    wait_for(lambda: watchdog._watcher is None)
    with pytest.raises(PolicyStuckError):
        watchdog.decide(stack_that(loop_for_ever), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [SystemExit(1), KeyboardInterrupt(), TimeoutError("its own"), GeneratorExit()])
def test_a_policy_that_wants_to_exit_ends_no_thread_of_ours(hasty: Served, wrong: BaseException) -> None:
    def leave(view: View) -> Plan:
        raise wrong

    hasty.world.controller.driver.stack.decide = leave  # type: ignore[method-assign]
    job_id = hasty.submit()
    wait_for(lambda: (job_id, 1) in hasty.world.engine.running)
    assert hasty.world.controller.thread is not None
    assert hasty.world.controller.thread.is_alive()


def test_a_loop_that_is_dead_or_has_not_come_round_is_told(make_world: MakeWorld) -> None:
    world = make_world()
    now_s = time.monotonic()
    told = Health(world.controller, world.store, clock=lambda: now_s)
    assert told.reasons() == ["the control loop does not run"]
    with world.running():
        wait_for(lambda: not told.reasons())
        assert world.controller.thread is not None
        now_s = time.monotonic() + world.controller.settings.poll_s + SLACK_S + 5.0
        assert "has not come round for" in told.reasons()[0]
    assert told.reasons() == ["the control loop does not run"]


def test_the_loop_survives_what_is_no_exception(make_world: MakeWorld) -> None:
    world = make_world()
    with world.running():
        world.controller._post(lambda: (_ for _ in ()).throw(SystemExit(3)))
        wait_for(lambda: "SystemExit" in world.controller.trouble)
        assert world.controller.thread is not None
        assert world.controller.thread.is_alive()


def test_a_node_that_does_not_answer_is_told_and_one_that_does_again_is_well(hasty: Served) -> None:
    assert health(hasty) == (200, "")
    hasty.world.engine.set_away(0)
    wait_for(lambda: health(hasty) == (503, "1 of 1 nodes do not answer"))
    hasty.world.engine.set_away(0, False)
    wait_for(lambda: health(hasty) == (200, ""))


def test_a_guard_that_has_not_looked_is_told(make_world: MakeWorld) -> None:
    class Sleepy(ScriptedEngine):
        def poll(self, heard: Heard | None = None) -> Poll:
            return replace(super().poll(heard), guard_age_s={0: 42.0})

    with served(make_world(engine=Sleepy())) as site:
        wait_for(lambda: health(site) == (503, "the guards of 1 of 1 nodes have not looked for 42 s"))


def test_a_store_that_cannot_be_written_is_told_though_nothing_was_to_be_written(
    hasty: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.live.health.PROBE_S", 0.0)
    assert health(hasty) == (200, "")
    with closing(sqlite3.connect(tmp_path / "fairlead.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert health(hasty) == (503, "the store cannot be written")
        other.execute("ROLLBACK")
    assert health(hasty) == (200, "")


def test_a_store_whose_writer_hangs_is_told(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.live.health.SLOW_S", 0.1)
    free = threading.Event()
    hasty.world.database.write(lambda connection: free.wait(PATIENCE_S))
    try:
        assert "the store has not written for" in health(hasty)[1]
    finally:
        free.set()


def test_the_store_is_probed_seldom_however_often_health_is_asked(hasty: Served) -> None:
    commits: list[float] = []
    hasty.world.database.on_commit = commits.append
    for _ in range(20):
        assert health(hasty)[0] == 200
    assert len(commits) <= 2


def test_agents_tell_how_long_ago_their_guard_looked() -> None:
    rig = Rig("fifo", fake_gpus=1)
    try:
        found = rig.engine.poll().guard_age_s
        assert list(found) == [0]
        assert 0.0 <= found[0] < SLACK_S
    finally:
        rig.close()


def test_the_writer_survives_what_a_change_and_a_listener_raise(world: World) -> None:
    def listen(took_s: float) -> None:
        raise OSError("no descriptors")

    world.database.on_commit = listen
    cancelled = world.database.write(lambda connection: None)
    cancelled.cancel()
    assert world.database.write(lambda connection: 7).result(PATIENCE_S) == 7
