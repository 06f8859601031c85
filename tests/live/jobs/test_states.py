"""The table of a job's states, whole; and that nothing changes a job behind its back."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fairlead.live.jobs import states
from fairlead.live.jobs.states import ACTIVE, OVER, TABLE, Cause, IllegalTransitionError, State
from tests.live.scripted import World

BY_ITSELF = (Cause.FAILED, Cause.GAVE_UP, Cause.FINISHED, Cause.RETURNED)
EVERY = list(itertools.product(State, Cause))
LEGAL = {
    ("waiting", "placed", "running"), ("waiting", "finished", "finished"), ("waiting", "held", "held"),
    ("waiting", "cancelled", "cancelled"),
    ("held", "finished", "finished"), ("held", "released", "waiting"), ("held", "cancelled", "cancelled"),
    ("backing-off", "retried", "waiting"), ("backing-off", "held", "held"), ("backing-off", "released", "waiting"),
    ("backing-off", "cancelled", "cancelled"),
    ("running", "placed", "running"), ("running", "preempted", "waiting"), ("running", "unplaced", "waiting"),
    ("running", "returned", "waiting"), ("running", "failed", "backing-off"), ("running", "gave-up", "parked"),
    ("running", "finished", "finished"), ("running", "held", "held"), ("running", "cancelled", "cancelled"),
    ("parked", "released", "waiting"),
}  # fmt: skip
"""By hand, so that a change of the table is noticed."""


@pytest.mark.parametrize(("state", "cause"), EVERY)
def test_what_is_in_the_table_happens_and_all_else_is_refused_with_the_story(state: State, cause: Cause) -> None:
    story = ["1.0 waiting: submitted", "2.0 placed: on n0:1"]
    expected = next((after for before, why, after in LEGAL if (before, why) == (state, cause)), None)
    assert states.may(state, cause) == (expected is not None)
    if expected is not None:
        assert states.after(7, state, cause, lambda: story) == expected
        return
    with pytest.raises(IllegalTransitionError, match=f"job 7 is {state}: it cannot be {cause}") as refused:
        states.after(7, state, cause, lambda: story)
    assert all(line in refused.value.message for line in story)


def reachable(begin: set[State]) -> set[State]:
    found = set(begin)
    while new := {after for state in found for after in TABLE[state].values()} - found:
        found |= new
    return found


def test_every_state_can_be_reached_and_every_cause_happens() -> None:
    assert reachable({states.first(False), states.first(True)}) == set(State)
    assert {cause for legal in TABLE.values() for cause in legal} == set(Cause)
    assert set(TABLE) == set(State) == OVER | set(ACTIVE)


@pytest.mark.parametrize("state", ACTIVE)
def test_a_job_that_is_not_over_can_always_be_cancelled_and_always_come_to_run(state: State) -> None:
    assert TABLE[state][Cause.CANCELLED] is State.CANCELLED
    assert State.RUNNING in reachable({state})


@pytest.mark.parametrize("state", sorted(OVER))
def test_what_is_over_stays_over_unless_its_user_releases_it(state: State) -> None:
    assert set(TABLE[state]) <= {Cause.RELEASED}
    assert state.is_over


@pytest.mark.parametrize("cause", BY_ITSELF)
def test_only_a_job_with_an_attempt_ends_by_itself(cause: Cause) -> None:
    without = {State.BACKING_OFF, *OVER}
    assert not any(states.may(state, cause) for state in without)


def test_a_job_begins_as_its_user_wants() -> None:
    assert (states.first(is_held=False), states.first(is_held=True)) == (State.WAITING, State.HELD)


def test_a_change_that_cannot_be_tells_all_that_happened_to_the_job(world: World) -> None:
    job_id = world.submit()
    world.settle()
    job = world.controller.driver.jobs[job_id]
    with pytest.raises(IllegalTransitionError, match="job 1 is running: it cannot be retried") as refused:
        world.controller.lifecycle.change(job, Cause.RETRIED, "retry")
    assert (job.state, job.reason) == (State.RUNNING, "placed")
    for word in ("placed: on ", f"attempt {job.attempt} on GPUs (0,), to stay", "on GPUs (0,)"):
        assert word in refused.value.message
    with pytest.raises(AttributeError):
        job.state = State.FINISHED  # type: ignore[misc]


def test_the_states_are_those_that_the_page_lists() -> None:
    page = (Path(__file__).parents[3] / "docs" / "live.md").read_text()
    listed = [
        line.split("`")[1] for line in page.splitlines() if line.startswith("| `") and line.split("`")[1] in list(State)
    ]
    assert sorted(set(listed)) == sorted(State)
