"""The stages of a stack, as base classes with the plainest behaviour.

A policy subclasses one of them as a dataclass: its fields are its options (name, type, default), so that
`ordering=las:queues=3` needs no further code. Put `help` into a field's metadata with `option()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fairlead.errors import InputError
from fairlead.model.contention import Mode
from fairlead.model.interference import Interference
from fairlead.model.placement import Placement
from fairlead.policy.knowledge import reading
from fairlead.policy.plan import NO_FREE_GPU, OVER_MEMORY, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Key, Queue
from fairlead.policy.view import JobState, View

Skips = Literal["none", "greedy", "easy"]


def option(default: Any, help: str) -> Any:
    """A dataclass field that is an option of a policy."""
    return field(default=default, metadata={"help": help})


class Stage:
    """What all stages have in common: they can be saved, for a controller that is killed and goes on.

    A stage that learns or promises something which the view does not show overrides both. What is saved of jobs that
    are no longer in the view is dropped, and what cannot be read is an `InputError` (see knowledge.py).
    """

    def knowledge(self) -> dict[str, Any]:
        """What it has learnt and promised, in plain types that JSON keeps; empty where that is nothing."""
        return {}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on from there: called on a new stage before its first decision, with the view as it is now."""
        with reading(type(self).__name__.lower(), saved):
            pass


@dataclass
class Sizing(Stage):
    """How many GPUs each job gets."""

    resizes: ClassVar[bool] = False
    """Whether a job may get fewer GPUs than it asked for."""

    elastic: ClassVar[bool] = False
    """Whether it also changes the widths of jobs that run: then `allot` is asked, not `width`."""
    adapts_batch: ClassVar[bool] = False
    """Whether jobs choose their batch as they go; else they keep the one that they were submitted with."""
    needs_oracle: ClassVar[bool] = False
    """Whether it reads true run times."""
    no_width: ClassVar[str] = "outbid"
    """Elastic: why a job is given no GPUs; here others gain more by them."""

    def width(self, state: JobState, view: View) -> int:
        """The width of a job that waits; within its minimum and maximum."""
        raise NotImplementedError

    def allot(self, view: View) -> Mapping[int, int]:
        """Elastic: the widths that have changed, by job; 0 is to wait. A width holds until another one is given."""
        raise NotImplementedError

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        """Elastic: what a job that waits takes where only so many GPUs can be had; 0 is to wait for more."""
        return 0

    def nodes(self, view: View) -> int | None:
        """Elastic: how many nodes to have; None leaves it to what the jobs want."""
        return None

    def wake_s(self, view: View) -> float | None:
        """Elastic: when it wants to be asked again."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What an operator should know after a run."""
        return ()


@dataclass
class Ordering(Stage):
    """Who is next.

    Keys are compared smallest first and end with the job's id. A key may depend on anything in the view, as long as it
    stays the same while the job waits, and while it runs until the ordering itself says otherwise (`expired`), unless
    it `drifts`.
    """

    @property
    def preemptive(self) -> bool:
        """Whether a job ahead in order may take the GPUs of one behind it, at every event."""
        return False

    @property
    def skips(self) -> Skips:
        """What happens behind a head that doesn't fit: `none` (it blocks), `greedy` (skip it), `easy`."""
        return "greedy" if self.preemptive else "none"

    @property
    def drifts(self) -> bool:
        """Whether the keys of running jobs move all the time, so that they must be asked for at every decision."""
        return False

    @property
    def needs_oracle(self) -> bool:
        """Whether it reads true run times."""
        return False

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The key of a job that waits."""
        raise NotImplementedError

    def running_key(self, state: JobState, view: View) -> Key:
        """The key of a job that runs."""
        return self.waiting_key(state, view)

    def as_running(self, key: Key, now_s: float) -> Key:
        """A waiting job's key as it compares with those of running jobs at this moment."""
        return key

    def watch(self, state: JobState, width: int, starts: int, view: View) -> None:
        """A job runs on `width` GPUs from now on, for the `starts`-th time: note when its key will change.

        After `recall` it is told once more of every job that runs.
        """

    def expired(self, view: View) -> list[JobState]:
        """Running jobs whose key has changed since the last decision."""
        return []

    def wake_s(self, view: View) -> float | None:
        """When the next key of a running job changes, as things stand."""
        return None


@dataclass
class Placing(Stage):
    """Which GPUs."""

    sticky: bool = option(True, "running jobs keep their GPUs; false re-places every job at every decision")
    redraws: ClassVar[bool] = False
    """Whether the same question may get another answer next round."""

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """`width` GPUs of the pool in ascending order, or None where there is no such set."""
        raise NotImplementedError

    def turn(self, state: JobState) -> Any:
        """Who picks first among the jobs that run in a round: smallest first, equal ones in queue order."""
        return 0


@dataclass
class Sharing(Stage):
    """Beside whom: the GPUs that a job may use now, best first.

    A sharing that `shares` decides on events, places one job beside others per decision (so that the next one sees it
    there), and is never undone by ordering or placing: nobody is displaced or moved to make room.
    """

    shares: ClassVar[bool] = False
    """Whether jobs are placed on GPUs that others may use too."""
    at_once: ClassVar[bool] = False
    """Whether many may join others in one decision, since it gives every GPU to at most one of them."""
    mode: ClassVar[Mode] = "mps"
    """How an offline job and a service share a GPU."""
    guarded: ClassVar[bool] = False
    """Whether a guard watches every GPU with a service and evicts offline work from it when it must."""

    @property
    def learnt(self) -> Interference | None:
        """What it knows of jobs beside each other; None where it keeps no history."""
        return None

    def learn_from(self, history: Interference) -> None:
        """Start from what is known already."""
        raise InputError("a history was given, but this sharing keeps none", hint="sharing=eaco does")

    def shared(self, state: JobState) -> bool:
        """Whether others may join this job on its GPUs; a service only where something watches over its latency."""
        return self.shares and state.job.kind != "service"

    def chosen(self, queue: Queue, view: View) -> Iterable[int]:
        """At once: the waiting jobs to be placed in this decision."""
        return ()

    def sm_share(self, state: JobState, gpus: Placement, view: View) -> float:
        """The part of the SMs that a job may use there."""
        return 1.0

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """Pools, or the very GPUs, in order of preference; `pool` holds the GPUs that nobody has at this point."""
        raise NotImplementedError

    def placed(self, state: JobState, gpus: Placement, view: View) -> None:
        """The plan places a job there."""

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Running jobs that must leave again, since what was hoped of their company did not come true; and whether
        GPUs have become open to others without that.
        """
        return [], False

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """Why a job that was looked at was given nothing, and what was considered; the pool is as the plan leaves it.

        Only a stack that `explains` asks.
        """
        too_small = view.free.count >= width and state.job.memory_mib > view.cluster.least_memory_mib
        return (OVER_MEMORY if too_small else NO_FREE_GPU), []

    def wake_s(self, view: View) -> float | None:
        """When it wants to review next."""
        return None


@dataclass
class Powering(Stage):
    """Which nodes are on."""

    active: ClassVar[bool] = False
    """Whether it has anything to decide."""
    rents: ClassVar[bool] = False
    """Whether sleeping nodes are nodes given back, and waking ones are rented."""

    def decide(self, wanted_gpus: int, nodes: int | None, view: View, plan: Plan) -> None:
        """Add to the plan which nodes go to sleep and which wake; the pool shows what the plan leaves free.

        `wanted_gpus` is what jobs want and the plan does not give them, `nodes` how many nodes sizing wants to have.
        """
