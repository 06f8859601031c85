"""Parts of an attempt on several nodes, joined."""

from __future__ import annotations

from typing import Any

from fairlead.live.engines import multi_node
from fairlead.live.engines.engine import AttemptState, AttemptStatus
from fairlead.live.engines.multi_node import grouped
from fairlead.node.identity import AttemptId

ONE = AttemptId(1, 1)


def joined(found: dict[int, Any], unreachable: set[int], bars: dict[int, Any] | None = None) -> AttemptStatus:
    return multi_node.joined(ONE, found, bars or {}, unreachable)


def must_stop(found: dict[int, Any], bars: dict[int, Any] | None = None) -> list[int]:
    return multi_node.must_stop(found, bars or {})


def must_not_start(found: dict[int, Any], bars: dict[int, Any] | None = None) -> list[int]:
    return multi_node.must_not_start(found, bars or {})


def part(rank: int = 0, code: int | None = None, **about: Any) -> dict[str, Any]:
    return {
        "id": "1.1", "nodes": [0, 1], "rank": rank,
        "state": "running" if code is None else "ended",
        "exit_code": code, "reason": "" if code is None else "exited", "detail": "", "started_at_s": 1.0 + rank,
        "ended_at_s": None if code is None else 9.0, "ended_ago_s": None if code is None else 2.0 + rank,
        "stop_requested_at_s": None, "stopped_by": "", "evicted": "",
        "progress": None, "energy_j": 10.0, "energy_at_s": 5.0 + rank if code is None else 9.0,
        "ran_s": None if code is None else 8.0, **about,
    }  # fmt: skip


STOPPED = {"stop_requested_at_s": 3.0, "stopped_by": "fairlead"}
BAR = {"id": "1.1", "nodes": [0, 1]}


def test_it_is_over_when_all_parts_are() -> None:
    half = joined({0: part(0, 0), 1: part(1)}, set())
    assert (half.state, half.exit_code, half.started_at_s) == (AttemptState.RUNNING, None, 1.0)
    whole = joined({0: part(0, 0), 1: part(1, 0)}, set())
    assert (whole.state, whole.exit_code, whole.energy_j) == (AttemptState.ENDED, 0, 20.0)
    assert whole.ended_ago_s == 2.0, "with the last of them"


def test_what_failed_first_says_how_it_ended() -> None:
    first = part(1, 5, ended_at_s=8.0)
    after = part(0, 143, **STOPPED, ended_at_s=7.0)  # by a clock that is slow
    done = joined({0: after, 1: first}, set())
    assert (done.exit_code, done.stop_requested_at_s, done.stopped_by) == (5, None, "")
    assert done.ended_at_s == 8.0


def test_a_part_that_somebody_stopped_says_how_it_ended_before_those_that_followed() -> None:
    killed, after = part(0, 143, stopped_by="signal"), part(1, 143, **STOPPED)
    assert joined({0: after, 1: killed}, set()).stopped_by == "signal"
    left = part(1, 0, **STOPPED)
    assert joined({0: part(0, 0), 1: left}, set()).stopped_by == "fairlead"


def test_one_lost_part_makes_the_whole_lost() -> None:
    done = joined({0: part(0, 0), 1: part(1, state="lost")}, set())
    assert (done.state, done.exit_code) == (AttemptState.LOST, None)


def test_a_part_that_cannot_be_asked_keeps_it_open_even_where_the_rest_was_stopped() -> None:
    stopped = part(0, 143, **STOPPED)
    assert not joined({0: stopped}, {1}).is_over


def test_a_part_that_a_node_has_not_heard_of_may_still_come_until_that_node_is_told_that_it_must_not() -> None:
    stopped = part(0, 143, **STOPPED)
    assert not joined({0: stopped}, set()).is_over, "its order may be on the way"
    assert joined({0: stopped}, set(), {1: BAR}).is_over
    assert (
        must_not_start({0: stopped})
        == must_not_start({0: part(0, 3)})
        == must_not_start({0: part(0, **STOPPED)})
        == [1]
    )
    assert must_not_start({0: part(0)}) == must_not_start({}) == []
    assert must_not_start({0: stopped, 1: part(1)}) == must_not_start({0: stopped}, {1: BAR}) == []


def test_one_that_failed_before_the_others_came_has_failed() -> None:
    done = joined({0: part(0, 3)}, set(), {1: BAR})
    assert (done.exit_code, done.stopped_by) == (3, "")


def test_a_part_that_will_never_start_is_over_and_the_attempt_has_not_finished() -> None:
    done = joined({0: part(0, 0)}, set(), {1: BAR})
    assert (done.state, done.exit_code, done.stopped_by) == (AttemptState.ENDED, 0, "fairlead")
    assert not joined({0: part(0)}, set(), {1: BAR}).is_over
    assert must_stop({0: part(0)}, {1: BAR}) == [0]


def test_nodes_that_it_has_left_are_told_while_others_do_not_answer() -> None:
    assert joined({0: part(0, 143, **STOPPED)}, {1}).ended_nodes == {0}
    assert joined({1: part(1)}, set(), {0: BAR}).ended_nodes == {0}
    assert joined({0: part(0), 1: part(1)}, set()).ended_nodes == frozenset()


def test_an_attempt_that_will_start_nowhere_is_over_when_all_of_its_nodes_say_so() -> None:
    assert not joined({}, set(), {0: BAR}).is_over
    assert not joined({}, {1}, {0: BAR}).is_over
    never = joined({}, set(), {0: BAR, 1: BAR})
    assert (never.state, never.reason, never.exit_code) == (AttemptState.ENDED, "never-started", None)


def test_a_part_that_was_not_started_yet_is_waited_for() -> None:
    assert joined({0: part(0, 0)}, set()).state is AttemptState.STARTING


def test_a_part_whose_command_is_not_executed_yet_is_starting() -> None:
    assert joined({0: part(0), 1: part(1, state="starting")}, set()).state is AttemptState.STARTING


def test_joules_count_up_to_the_part_that_was_read_first_and_in_the_end_to_its_end() -> None:
    assert joined({0: part(0), 1: part(1)}, set()).energy_at_s == 5.0
    assert joined({0: part(0, 0), 1: part(1, 0)}, set()).energy_at_s == 9.0


def test_unknown_energy_of_a_part_is_unknown_energy() -> None:
    assert joined({0: part(0), 1: part(1, energy_j=None)}, set()).energy_j is None


def test_parts_leave_with_one_that_failed_was_lost_stopped_or_evicted() -> None:
    assert must_stop({0: part(0), 1: part(1)}) == []
    assert must_stop({0: part(0), 1: part(1, 0)}) == []
    assert must_stop({0: part(0), 1: part(1, 3)}) == [0]
    assert must_stop({0: part(0), 1: part(1, state="lost")}) == [0]
    assert must_stop({0: part(0), 1: part(1, 0, stop_requested_at_s=2.0)}) == [0]
    assert must_stop({0: part(0), 1: part(1, evicted="overlimit", stop_requested_at_s=2.0)}) == [0]
    assert must_stop({0: part(0, stop_requested_at_s=3.0), 1: part(1, 3)}) == []


def test_parts_leave_with_one_that_somebody_signalled_unless_it_has_done_its_work() -> None:
    assert must_stop({0: part(0), 1: part(1, 0, stopped_by="signal")}) == [0]
    done = {"progress": {"has_finished": True}}
    assert must_stop({0: part(0), 1: part(1, 0, stopped_by="signal", **done)}) == []


def test_parts_are_grouped_by_attempt() -> None:
    other = part(0, id="2.1")
    assert grouped({0: [part(0), other], 1: [part(1)]}) == {
        ONE: {0: part(0), 1: part(1)},
        AttemptId(2, 1): {0: other},
    }
