"""Who starts, and who makes room: the ways to walk the ranking over the GPUs that there are.

A regime is what ordering and sharing ask for:

- `InOrder`: waiting jobs in order, on free GPUs. Strict: the first that finds no place blocks; greedy: it is skipped.
- `Easy`: the same, where the first that finds no place has a reservation and others start if they do not delay it.
- `Displacing` (displacing.py): jobs ahead in order take the GPUs of those behind.
- `OneByOne`: where GPUs are shared. Jobs go beside others, on free GPUs, or where ordering displaces on those of jobs
  behind; every decision changes the company of one job only, as the next one must see it there.
- `AtOnce`: sharing itself says who goes beside whom, for many jobs in one decision.

`rounds` has one more, of PAL's simulator: an order that is cut at the first job that does not fit; `by_parts` another,
while there are jobs that ask for a part of a GPU. Each is given the
stack, whose `place` asks sharing for offers and placing for GPUs, and whose `start` writes a placement into the plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fairlead.model.placement import Placement
from fairlead.policy.plan import LOOKED_AT, NO_FREE_GPU, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Entry
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack
    from fairlead.policy.stages import Skips

_NEVER = float("inf")


class Regime(Protocol):
    """One way to admit jobs."""

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Start whoever may start now, and displace whoever must make room; the view's pool follows."""
        ...


@dataclass(frozen=True)
class InOrder:
    """Admission that displaces nobody: waiting jobs are placed where there is room."""

    skips: Skips

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Start the head while it fits; where it is greedy, the first that fits, whoever is skipped."""
        ranking, greedy = stack.ranking, self.skips == "greedy"
        while (entry := self._next(stack, view) if greedy else ranking.head()) is not None:
            if stack.try_start(entry, view, plan):
                continue
            if not greedy or stack.ordering.blocks(entry.state):
                break
            ranking.set_aside(entry)
        ranking.restore()

    def _next(self, stack: Stack, view: View) -> Entry | None:
        """The first that fits, or the head where nobody may pass it."""
        return stack.ranking.blocker() or stack.ranking.first_within(view.free.count)


@dataclass(frozen=True)
class Easy:
    """The first job that does not fit has a reservation."""

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """In order while they fit; then whoever fits and either ends before the reservation or uses what it leaves."""
        InOrder("none").admit(stack, view, plan)
        ranking = stack.ranking
        head = ranking.head()
        if head is None:
            return
        reserved_s, spare = self._reservation(stack, head.width, view)
        while (entry := ranking.first_in_time(view.free.count, spare, reserved_s - view.now_s)) is not None:
            delays = ranking.end_s(entry.state) > reserved_s
            if not stack.try_start(entry, view, plan):
                break
            spare -= entry.width if delays else 0

    def _reservation(self, stack: Stack, width: int, view: View) -> tuple[float, int]:
        """When `width` GPUs will be free if nobody else starts, and how many more will be then."""
        free, reserved_s = view.free.count, _NEVER
        for end_s, _, freed in stack.ranking.ends():
            if end_s > reserved_s:
                break
            free += freed
            if free >= width:
                reserved_s = min(reserved_s, end_s)
        return reserved_s, max(0, free - width)


@dataclass(frozen=True)
class OneByOne:
    """Where GPUs are shared: beside others, on free GPUs, or on GPUs that jobs behind must leave."""

    skips: Skips
    displaces: bool

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Waiting jobs in order; a strict order stops at the first who finds nothing, others look at some dozens.

        The first who joins others, or displaces some, ends the decision; the stack asks to be called again at once.
        """
        ranking, looked_at = stack.ranking, 0
        reserved: tuple[float, int] | None = None
        refused: set[Hashable] = set()
        """What those are like who found no place: GPUs only become fewer in the course of a decision."""
        while looked_at < LOOKED_AT and (entry := ranking.head()) is not None:
            if reserved is not None and not keeps(stack, entry, reserved):
                ranking.set_aside(entry)
                looked_at += 1
                continue
            delays = reserved is not None and ranking.end_s(entry.state) > reserved[0]
            alike = self._alike(stack, entry)
            if alike is not None and alike in refused:
                plan.waits[entry.state.job.id] = NO_FREE_GPU
            elif stack.try_start(entry, view, plan):
                if reserved is not None and delays:
                    reserved = (reserved[0], reserved[1] - entry.width)
                if stack.asks_again:
                    break
                continue
            if alike is not None:
                refused.add(alike)
            if self.displaces and displace(stack, entry, view, plan):
                break
            if self.skips == "none" or (self.skips != "easy" and stack.ordering.blocks(entry.state)):
                break
            if self.skips == "easy" and reserved is None:
                reserved = reservation(entry.width, view)
            ranking.set_aside(entry)
            looked_at += 1
        ranking.restore()
        if plan.place and len(ranking):
            # Those who found nothing may want to join those who have just been placed.
            stack.asks_again = True

    def _alike(self, stack: Stack, entry: Entry) -> Hashable | None:
        """What decides whether a job finds a place; an elastic sizing may see more in two jobs than this."""
        alike = None if stack.sizing.elastic else stack.sharing.alike(entry.state)
        return None if alike is None else (alike, entry.width, entry.least)


@dataclass(frozen=True)
class AtOnce:
    """Where sharing gives every GPU to at most one of those who come: it says itself who is to be placed."""

    displaces: bool

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Whom sharing has chosen; then, where ordering displaces, the first who found nothing may take a place."""
        ranking = stack.ranking
        for job_id in stack.sharing.chosen(ranking, view):
            entry = ranking.get(job_id)
            if entry is not None:
                stack.try_start(entry, view, plan)
        if self.displaces and not plan.place:
            for entry in ranking.first(LOOKED_AT):
                if displace(stack, entry, view, plan):
                    return


def displace(stack: Stack, entry: Entry, view: View, plan: Plan) -> bool:
    """Give a waiting job a place that running jobs behind it must leave, the last in order first.

    Services stay, and so does whoever was placed at this very moment: else two jobs whose order depends on where they
    run would displace each other for ever.
    """
    key = stack.ordering.as_running(entry.key, view.now_s)
    leaving: set[int] = set()
    freed: set[int] = set()
    for state in behind(stack, key, view):
        if state.job.gpu_frac < 1.0:
            continue  # who holds a part of a GPU goes by other rules (by_parts.py)
        leaving.add(state.job.id)
        freed.update(_emptied(state, leaving, view))
        gpus = stack.sharing.vacated(entry.state, entry.width, state, view)
        if gpus is None and len(freed) + view.free.count >= entry.width:
            gpus = pick_among(stack, entry.state, entry.width, (*freed, *view.free), view)
        if gpus is None:
            continue
        # Whoever is not on the GPUs that were picked can stay.
        victims = leaving.intersection(j for g in gpus for j in view.on_gpu[g])
        for victim in (view.running[j] for j in sorted(victims)):
            plan.evict.append(victim.job.id)
            view.free.give(tuple(g for g in _emptied(victim, victims, view) if g not in view.free))
            stack.ranking.stop(victim)
        view.free.take(tuple(g for g in gpus if g in view.free))
        stack.start(entry, gpus, view, plan)
        stack.asks_again = True
        return True
    return False


def _emptied(state: JobState, leaving: set[int], view: View) -> Iterator[int]:
    """The GPUs of a job that are empty, and can be used, when all of these have left."""
    return (g for g in view.usable(state.gpus) if leaving.issuperset(view.on_gpu[g]))


def behind(stack: Stack, key: tuple[object, ...], view: View) -> Iterator[JobState]:
    """Who runs behind a key and may be displaced, the last first."""
    for rank in reversed(stack.ranking.ranked):
        if rank.key < key:
            return
        state = rank.state
        if state.gpus and state.job.kind != "service" and state.since_s < view.now_s:
            yield state


def pick_among(stack: Stack, state: JobState, width: int, gpus: Iterable[int], view: View) -> Placement | None:
    """GPUs for a job out of these, all of which are or will be empty; those without the memory do not count."""
    model, need_mib = view.cluster.gpu_model, state.job.memory_mib
    pool = Pool(view.cluster, sorted(g for g in gpus if model(g).memory_mib >= need_mib))
    return stack.placing.pick(state, width, pool, view) if pool.count >= width else None


def reservation(width: int, view: View) -> tuple[float, int]:
    """When `width` GPUs will be empty if nobody else starts, and how many more will be then; also of shared GPUs."""
    assert view.oracle is not None, "easy backfill was shown a view without an oracle"
    end_s = {j: view.now_s + view.oracle.remaining_s(s) for j, s in view.running.items()}
    empty_s = sorted(max(end_s[j] for j in on) for g, on in enumerate(view.on_gpu) if on and g not in view.drained)
    short = width - view.free.count
    if short <= 0:
        return view.now_s, 0  # enough are free, and none of them will do: nobody else may have them
    if short > len(empty_s):
        return _NEVER, 0
    reserved_s = empty_s[short - 1]
    return reserved_s, sum(at_s <= reserved_s for at_s in empty_s) - short


def keeps(stack: Stack, entry: Entry, reserved: tuple[float, int]) -> bool:
    """Whether a job that starts now leaves the reservation as it is."""
    return entry.width <= reserved[1] or stack.ranking.end_s(entry.state) <= reserved[0]
