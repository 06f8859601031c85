"""Parts of an attempt on several nodes, joined."""

from __future__ import annotations

from typing import Any

from fairlead.live.engine import AttemptState
from fairlead.live.engines.parts import grouped, joined, must_leave

KEY = (1, 1)


def part(rank: int = 0, code: int | None = None, **about: Any) -> dict[str, Any]:
    return {
        "job_id": 1, "attempt": 1, "nodes": [0, 1], "rank": rank, "state": "running" if code is None else "ended",
        "exit_code": code, "reason": "" if code is None else "exited", "detail": "", "started_at_s": 1.0 + rank,
        "ended_at_s": None if code is None else 9.0, "stop_requested_at_s": None, "evicted": "", "progress": None,
        "energy_j": 10.0, **about,
    }  # fmt: skip


def test_it_is_over_when_all_parts_are() -> None:
    half = joined(KEY, {0: part(0, 0), 1: part(1)}, set())
    assert (half.state, half.exit_code, half.started_at_s) == (AttemptState.RUNNING, None, 1.0)
    whole = joined(KEY, {0: part(0, 0), 1: part(1, 0)}, set())
    assert (whole.state, whole.exit_code, whole.energy_j) == (AttemptState.ENDED, 0, 20.0)


def test_what_failed_first_says_how_it_ended() -> None:
    first = part(1, 5, ended_at_s=8.0)
    after = part(0, 143, stop_requested_at_s=8.5)
    done = joined(KEY, {0: after, 1: first}, set())
    assert (done.exit_code, done.stop_requested_at_s, done.ended_at_s) == (5, None, 9.0)


def test_one_lost_part_makes_the_whole_lost() -> None:
    done = joined(KEY, {0: part(0, 0), 1: part(1, state="lost")}, set())
    assert (done.state, done.exit_code) == (AttemptState.LOST, None)


def test_a_part_that_cannot_be_asked_keeps_it_open_even_where_the_rest_was_stopped() -> None:
    stopped = part(0, 143, stop_requested_at_s=3.0)
    assert not joined(KEY, {0: stopped}, {1}).is_over
    assert joined(KEY, {0: stopped}, set()).is_over


def test_a_part_that_was_not_started_yet_is_waited_for() -> None:
    assert joined(KEY, {0: part(0, 0)}, set()).state is AttemptState.STARTING


def test_unknown_energy_of_a_part_is_unknown_energy() -> None:
    assert joined(KEY, {0: part(0), 1: part(1, energy_j=None)}, set()).energy_j is None


def test_parts_leave_with_one_that_failed_was_lost_stopped_or_evicted() -> None:
    assert must_leave({0: part(0), 1: part(1)}) == []
    assert must_leave({0: part(0), 1: part(1, 0)}) == []
    assert must_leave({0: part(0), 1: part(1, 3)}) == [0]
    assert must_leave({0: part(0), 1: part(1, state="lost")}) == [0]
    assert must_leave({0: part(0), 1: part(1, 0, stop_requested_at_s=2.0)}) == [0]
    assert must_leave({0: part(0), 1: part(1, evicted="overlimit", stop_requested_at_s=2.0)}) == [0]
    assert must_leave({0: part(0, stop_requested_at_s=3.0), 1: part(1, 3)}) == []


def test_parts_are_grouped_by_attempt() -> None:
    other = part(0, job_id=2)
    assert grouped({0: [part(0), other], 1: [part(1)]}) == {(1, 1): {0: part(0), 1: part(1)}, (2, 1): {0: other}}
