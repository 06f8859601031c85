"""The states of a job, and what may become of it in each: one table, through which every change goes. Pure.

Whatever happens to a job is a `Cause`. What is not in the table cannot happen to a job in that state; if it does all
the same, that is a mistake of ours, and the error tells the job's whole story.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from fairlead.errors import FairleadError


class State(enum.StrEnum):
    """The states of a job; `TABLE` says what leads from one to another."""

    WAITING = "waiting"
    HELD = "held"
    """By its user; does not wait for GPUs."""
    BACKING_OFF = "backing-off"
    """It failed, and will wait again in a while."""
    RUNNING = "running"
    """It has GPUs. `phase` tells whether it is starting or stopping there."""
    FINISHED = "finished"
    PARKED = "parked"
    """It kept failing; `fairlead release` lets it try again."""
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether it is no concern of the policy any more."""
        return self in OVER


class Cause(enum.StrEnum):
    """What happened to a job."""

    PLACED = "placed"
    """The policy gave it GPUs, or others than it had."""
    PREEMPTED = "preempted"
    """The policy took its GPUs."""
    UNPLACED = "unplaced"
    """Its GPUs were drained before it started there, or their node is no longer in the cluster."""
    RETURNED = "returned"
    """Its attempt ended without fault of its own: evicted, stopped by an operator, interrupted, ended early."""
    FAILED = "failed"
    """Its attempt failed, or was interrupted once more, and it may try again later."""
    GAVE_UP = "gave-up"
    """Its attempt failed once too often."""
    FINISHED = "finished"
    RETRIED = "retried"
    """It has backed off for long enough."""
    HELD = "held"
    RELEASED = "released"
    CANCELLED = "cancelled"


OVER = frozenset({State.FINISHED, State.PARKED, State.CANCELLED})
ACTIVE = tuple(state for state in State if state not in OVER)
_RUNNING: dict[Cause, State] = {
    Cause.PLACED: State.RUNNING,
    Cause.PREEMPTED: State.WAITING,
    Cause.UNPLACED: State.WAITING,
    Cause.RETURNED: State.WAITING,
    Cause.FAILED: State.BACKING_OFF,
    Cause.GAVE_UP: State.PARKED,
    Cause.FINISHED: State.FINISHED,
    Cause.HELD: State.HELD,
    Cause.CANCELLED: State.CANCELLED,
}
TABLE: Mapping[State, Mapping[Cause, State]] = MappingProxyType({
    # One that was preempted or held may still be stopping, and be done before it has.
    State.WAITING: {
        Cause.PLACED: State.RUNNING,
        Cause.FINISHED: State.FINISHED,
        Cause.HELD: State.HELD,
        Cause.CANCELLED: State.CANCELLED,
    },
    State.HELD: {
        Cause.FINISHED: State.FINISHED,
        Cause.RELEASED: State.WAITING,
        Cause.CANCELLED: State.CANCELLED,
    },
    State.BACKING_OFF: {
        Cause.RETRIED: State.WAITING,
        Cause.HELD: State.HELD,
        Cause.RELEASED: State.WAITING,
        Cause.CANCELLED: State.CANCELLED,
    },
    State.RUNNING: _RUNNING,
    State.FINISHED: {},
    State.PARKED: {Cause.RELEASED: State.WAITING},
    State.CANCELLED: {},
})  # fmt: skip


class IllegalTransitionError(FairleadError):
    """Something happened to a job that cannot happen in its state; a mistake of ours."""


def first(is_held: bool) -> State:
    """Of a job that was just submitted."""
    return State.HELD if is_held else State.WAITING


def may(state: State, cause: Cause) -> bool:
    """Whether that can happen to a job in this state."""
    return cause in TABLE[state]


def after(job_id: int, state: State, cause: Cause, story: Callable[[], Iterable[str]] = tuple) -> State:
    """The state that follows. `story` gives what has happened to the job so far, a line each, for the error."""
    found = TABLE[state].get(cause)
    if found is None:
        allowed = ", ".join(TABLE[state]) or "nothing"
        told = "".join(f"\n  {line}" for line in story())
        raise IllegalTransitionError(f"job {job_id} is {state}: it cannot be {cause}, only {allowed}. Its story:{told}")
    return found
