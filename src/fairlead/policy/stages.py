"""The stages of a stack, as base classes with the plainest behaviour.

A policy subclasses one of them as a dataclass: its fields are its options (name, type, default), so that
`ordering=las:queues=3` needs no further code. Put `help` into a field's metadata with `option()`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fairlead.errors import InputError
from fairlead.model.contention import Mode
from fairlead.model.interference import Interference
from fairlead.model.placement import Placement
from fairlead.policy.parts import ask_of
from fairlead.policy.plan import NO_FREE_GPU, OVER_MEMORY, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Key
from fairlead.policy.ranking import Ranking
from fairlead.policy.saved_state import reading
from fairlead.policy.view import JobState, View

Skips = Literal["auto", "none", "strict", "greedy", "easy"]
"""`strict` is another name of `none`."""
Cut = Literal["greedy", "strict"]
"""What orderings do that fill the cluster from the front, where a job does not fit: skip it, or stop there."""


def option(default: Any, help: str) -> Any:
    """A dataclass field that is an option of a policy."""
    return field(default=default, metadata={"help": help})


def file_option(default: Any, parse: Callable[[str, str], Any], help: str) -> Any:
    """An option that is named by a file: `parse` makes the value of the file's text and of the name for errors.

    Policies read no files. Whoever builds a stack from a text says how they are read (`registry.build`).
    """
    return field(default=default, metadata={"help": help, "parse": parse})


class Stage:
    """What all stages have in common: they can be saved, for a controller that is killed and goes on.

    A stage that learns or promises something which the view does not show overrides both. What is saved of jobs that
    are no longer in the view is dropped, and what cannot be read is an `InputError` (see saved_state.py).
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
    """Whether it also changes the widths of jobs that run: then `allot` is asked, not `width`. Services are not its
    concern: they have the width that they asked for."""
    adapts_batch: ClassVar[bool] = False
    """Whether jobs choose their batch as they go; else they keep the one that they were submitted with."""
    narrows: ClassVar[bool] = False
    """Not elastic: whether a waiting job may start on fewer GPUs than it should have (`narrower`)."""
    needs_oracle: ClassVar[bool] = False
    """Whether it reads true run times."""
    no_width: ClassVar[str] = "outbid"
    """Elastic: why a job is given no GPUs; here others gain more by them."""

    def width(self, state: JobState, view: View) -> int:
        """The width of a job that waits; within its minimum and maximum."""
        raise NotImplementedError

    def observe(self, view: View) -> bool:
        """Not elastic: called first in every decision, for a sizing that learns or counts; whether widths may differ
        from now on.
        """
        return False

    def allot(self, view: View) -> Mapping[int, int]:
        """Elastic: the widths that have changed, by job; 0 is to wait. A width holds until another one is given."""
        raise NotImplementedError

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        """Elastic: what a job that waits takes where only so many GPUs can be had; 0 is to wait for more."""
        return 0

    @property
    def names_nodes(self) -> bool:
        """Elastic: whether `nodes` ever gives a number; only rented nodes follow it."""
        return False

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
    stays the same while the job waits or runs until the ordering itself says otherwise: by `expired` of single jobs, by
    `drifts` of all running ones, and by `lanes` of waiting ones, where the key is `(lane_key, ...)` and only the order
    among the lanes moves.
    """

    lanes: ClassVar[bool] = False
    """Whether waiting jobs stand in lanes, one for each user say, whose order is asked for at every decision; so are
    then the keys of running jobs, where they are compared."""

    may_block: ClassVar[bool] = False
    """Whether there may be jobs that nobody passes (`blocks`), whatever the rule of backfill."""

    @property
    def preemptive(self) -> bool:
        """Whether a job ahead in order may take the GPUs of one behind it, at every event."""
        return False

    @property
    def skips(self) -> Skips:
        """What happens behind a job that finds no place: `none` (it blocks), `greedy` (it is skipped), `easy`.

        It is the same on events and in rounds. `auto` is `greedy` where sizing changes widths, since that says itself
        who waits, else `none`.
        """
        return "greedy" if self.preemptive else "auto"

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

    def waits(self, state: JobState, view: View) -> None:
        """A job waits from now on; told before its key is asked for, perhaps more than once."""

    def watch(self, state: JobState, width: int, starts: int, view: View) -> None:
        """A job runs on `width` GPUs from now on, for the `starts`-th time: note when its key will change.

        After `recall` it is told once more of every job that runs.
        """

    def expired(self, view: View) -> list[JobState]:
        """Running and waiting jobs whose key, or lane, has changed since the last decision."""
        return []

    def wake_s(self, view: View) -> float | None:
        """When the next key changes, as things stand."""
        return None

    def lane(self, state: JobState) -> Hashable:
        """With `lanes`: the lane of a waiting job; the order inside it does not change."""
        return None

    def lane_key(self, lane: Hashable, view: View) -> Any:
        """With `lanes`: where a lane stands now, smallest first; the first part of the key of all its jobs.

        No two lanes have the same key: let it end with the lane's name.
        """
        return ()

    def blocks(self, state: JobState) -> bool:
        """Whether nobody behind this waiting job starts before it; asked of the first in order."""
        return False

    def took(self, state: JobState, width: int, view: View) -> Iterable[Hashable] | None:
        """A waiting job is given GPUs in the present decision: gives the lanes whose keys have changed by that.

        None is any of them: all are asked for anew.
        """
        return ()

    def passed(self, state: JobState) -> None:
        """A waiting job is given GPUs in the present decision, ahead of one before it that does not fit."""


@dataclass
class Placing(Stage):
    """The stage that picks GPUs within an offer."""

    sticky: bool = option(True, "running jobs keep their GPUs; false re-places every job at every decision")
    redraws: ClassVar[bool] = False
    """Whether the same question may get another answer next round."""
    may_refuse: ClassVar[bool] = False
    """Whether a job may find no place in a pool that has GPUs enough for it."""

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """`width` GPUs of the pool in ascending order, or None where there is no such set."""
        raise NotImplementedError

    weighs_hosts: ClassVar[bool] = False
    """Whether it looks at CPUs and memory of hosts itself, and so need not be shown a pool of those that have them."""
    learns: ClassVar[bool] = False
    """Whether it is told of every job that comes (`learn`)."""

    def pick_part(self, state: JobState, pool: Pool, view: View) -> int | None:
        """The GPU for a job that asks for a part of one: the fullest that has room, else one of the pool."""
        assert view.parts is not None
        open_gpu = next((g for g in view.parts.fullest(ask_of(state.job)) if g not in view.drained), None)
        if open_gpu is not None:
            return open_gpu
        found = self.pick(state, 1, view.parts.offered(state.job, 1, pool), view)
        return found[0] if found else None

    def learn(self, arrived: Iterable[JobState]) -> None:
        """These jobs have come since the last decision."""

    def turn(self, state: JobState) -> Any:
        """Who picks first among the jobs that run in a round: smallest first, equal ones in queue order."""
        return 0


@dataclass
class Sharing(Stage):
    """Beside whom: the GPUs that a job may use now, best first.

    A sharing that `shares` places one job beside others per decision, so that the next one sees it there, or is asked
    for many `at_once`. Placing moves nobody then; an ordering that preempts may displace whoever is behind.
    """

    shares: ClassVar[bool] = False
    """Whether jobs are placed on GPUs that others may use too."""
    at_once: ClassVar[bool] = False
    """Whether many may join others in one decision, since it gives every GPU to at most one of them."""
    mode: ClassVar[Mode] = "mps"
    """How an offline job and a service share a GPU."""
    declared_epochs: ClassVar[bool] = False
    """Whether it goes by the epochs that jobs with a deadline have declared, and so by how long these take."""
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

    def chosen(self, ranking: Ranking, view: View) -> Iterable[int]:
        """At once: the waiting jobs to be placed in this decision."""
        return ()

    def vacated(self, state: JobState, width: int, leaving: JobState, view: View) -> Placement | None:
        """The place that a job could take over from one behind it that leaves, with those who stay there.

        GPUs that are empty then are found without asking.
        """
        return None

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

    def alike(self, state: JobState) -> Hashable | None:
        """What its offers depend on besides the view: a job that is like one which found no place finds none either.

        None is nobody is like it.
        """
        return None

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
    """The stage that says which nodes are on."""

    active: ClassVar[bool] = False
    """Whether it has anything to decide."""
    rents: ClassVar[bool] = False
    """Whether sleeping nodes are nodes given back, and waking ones are rented."""

    def decide(self, wanted_gpus: int, nodes: int | None, view: View, plan: Plan) -> None:
        """Add to the plan which nodes go to sleep and which wake; the pool shows what the plan leaves free.

        `wanted_gpus` is what jobs want and the plan does not give them, `nodes` how many nodes sizing wants to have.
        """
