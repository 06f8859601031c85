"""Evictions in the safe order, whatever happens meanwhile."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.policy.guarding import Action, Backoff, Eviction, EvictionConfig
from fairlead.policy.guarding.evict import ORDER


def test_a_job_that_never_leaves_meets_every_step_at_its_time() -> None:
    eviction, now_s, found = Eviction(), 100.0, []
    while True:
        step = eviction.next(now_s, exited=False)
        found.append((now_s, step.action))
        if step.until_s is None:
            break
        assert eviction.next(step.until_s - 0.01, exited=False).action is None
        now_s = step.until_s
    assert found == [
        (100.0, Action.FREEZE),
        (100.5, Action.SIGTERM),
        (110.5, Action.TERMINATE_CLIENT),
        (115.5, Action.TERMINATE_CLIENT),
        (120.5, Action.SIGKILL),
        (125.5, Action.CALL_OPERATOR),
    ]
    assert eviction.next(1000.0, exited=False).action is None


def test_a_job_that_leaves_on_sigterm_is_not_touched_again() -> None:
    eviction = Eviction()
    eviction.next(0.0, exited=False)
    eviction.next(0.5, exited=False)
    assert eviction.last is Action.SIGTERM
    for now_s in (3.0, 1000.0):
        step = eviction.next(now_s, exited=True)
        assert (step.action, step.until_s, step.done) == (None, None, True)
    assert eviction.next(2000.0, exited=False).done  # its number may belong to another process by now


def test_once_mps_has_let_go_of_it_sigkill_need_not_wait() -> None:
    eviction = Eviction()
    for now_s in (0.0, 0.5, 10.5):
        eviction.next(now_s, exited=False)
    assert eviction.last is Action.TERMINATE_CLIENT
    assert eviction.next(10.6, exited=False).action is None
    assert eviction.next(10.7, exited=False, client_gone=True).action is Action.SIGKILL


def test_a_late_agent_still_gives_every_grace_in_full() -> None:
    eviction = Eviction()
    eviction.next(0.0, exited=False)
    assert eviction.next(500.0, exited=False).action is Action.SIGTERM
    assert eviction.next(509.9, exited=False).until_s == 510.0


@given(
    st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from([None, True, False]), st.booleans())),
    st.integers(1, 4),
    st.booleans(),
)
def test_actions_never_come_out_of_the_safe_order(
    events: list[tuple[float, bool | None, bool]], tries: int, restarts: bool
) -> None:
    config = EvictionConfig(client_tries=tries)
    eviction, now_s, found = Eviction(config), 0.0, []
    for wait_s, client_gone, exits in events:
        now_s += wait_s
        exited = exits and wait_s > 25.0
        step = eviction.next(now_s, exited=exited, client_gone=client_gone)
        assert not (exited and step.action)
        if step.action is not None:
            found.append(step.action)
        if restarts:
            eviction = Eviction.from_dict(json.loads(json.dumps(eviction.to_dict())), config)
    ranks = [ORDER.index(action) for action in found]
    assert ranks == sorted(ranks)
    assert set(ranks) == set(range(len(set(ranks))))  # none left out
    assert all(found.count(action) == 1 for action in set(found) - {Action.TERMINATE_CLIENT})
    assert found.count(Action.TERMINATE_CLIENT) <= tries
    if Action.SIGKILL in found:
        assert Action.TERMINATE_CLIENT in found[: found.index(Action.SIGKILL)]


def test_a_broken_save_is_an_input_error() -> None:
    with pytest.raises(InputError, match="a saved eviction cannot be read"):
        Eviction.from_dict({"taken": "shoot"})


def test_a_job_stays_away_longer_with_each_eviction() -> None:
    backoff = Backoff()
    assert backoff.ready_s("a") == float("-inf")
    waits = [backoff.evicted("a", 100.0 * i) - 100.0 * i for i in range(9)]
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    assert backoff.ready_s("b") == float("-inf")
    assert backoff.evicted("a", 1e6) == 1e6 + 60.0  # all that is long ago
    backoff.forget("a")
    assert backoff.ready_s("a") == float("-inf")


@given(st.lists(st.floats(0.0, 1e5), min_size=1).map(sorted))
def test_nobody_stays_away_longer_than_the_limit(times: list[float]) -> None:
    backoff = Backoff()
    for time_s in times:
        ready_s = backoff.evicted(7, time_s)
        assert time_s + 60.0 <= ready_s <= time_s + 3600.0
