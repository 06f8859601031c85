"""Calls to the engine: one about one thing at a time, and no stop that waits for a start."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fairlead.live.control.engine_calls import EngineCalls
from tests.patience import PATIENCE_S


def test_a_stop_does_not_wait_for_a_start_and_nothing_else_is_made_twice_at_a_time() -> None:
    may_go, stopped = threading.Event(), threading.Event()
    made: list[str] = []
    calls = EngineCalls(lambda: None)

    def noted(what: str, then: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            made.append(what)
            then()

        return call

    calls.make("start", "job 1", noted("start", lambda: may_go.wait(PATIENCE_S)), 0.0)
    calls.make("start", "job 1", noted("start again", lambda: None), 100.0)
    calls.make("forget", "job 1", noted("forget", lambda: None), 100.0)
    calls.make("stop", "job 1", noted("stop", stopped.set), 100.0)
    assert stopped.wait(PATIENCE_S)
    assert calls.is_under_way("job 1")
    may_go.set()
    calls.close()
    assert made == ["start", "stop"]
    assert not calls.is_under_way("job 1")
