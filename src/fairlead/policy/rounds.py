"""An order that is cut where the cluster is full: the rules of PAL's simulator (docs/papers/pal.md).

1. All active jobs, running and waiting, stand in one order.
2. Walk it adding up GPUs; cut at the first job that would exceed the cluster. Nobody behind the cut starts, however
   small and however many GPUs are free.
3. Sticky: running jobs keep their GPUs, those behind the cut too. A waiting job before the cut that can't be placed
   evicts running jobs one by one from the tail of the order, never one ahead of itself, and tries again after each; if
   it still can't be placed, the decision ends.
   Not sticky: all jobs give their GPUs back and those before the cut are placed anew, so that whoever runs behind it is
   evicted; the first that can't be placed ends the decision. A job that gets the same GPUs again has not moved.
4. In both the jobs pick in the order that placing asks for (PAL: by class), equal ones in the order of the queue.

This is `backfill=strict` in rounds, and on events where ordering preempts. `backfill=greedy` decides the same in rounds
as on events (admission.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.policy.plan import NO_FREE_GPU, Place, Plan
from fairlead.policy.queue import Entry
from fairlead.policy.ranked import Rank
from fairlead.policy.view import View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


@dataclass(frozen=True)
class Rounds:
    """A regime of admission: all jobs in one order, cut where the cluster is full."""

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Fill the cluster for one round, from the top of the ranking down to the cut."""
        prefix, waiting = _prefix(stack, view)
        if stack.placing.sticky:
            _place_sticky(stack, view, plan, waiting)
        else:
            _place_anew(stack, view, plan, prefix, waiting)


def _prefix(stack: Stack, view: View) -> tuple[list[Rank], dict[int, Entry]]:
    """The jobs before the cut, in order, and which of them wait (taken out of the queue)."""
    ordering, ranking = stack.ordering, stack.ranking
    running = iter(ranking.ranked)
    prefix: list[Rank] = []
    waiting: dict[int, Entry] = {}
    room = view.up_gpus + view.usable_gpus(view.asleep | view.waking)
    rank = next(running, None)
    while room > 0:
        entry = ranking.head()
        if entry is None and rank is None:
            break
        if entry is not None:
            candidate = Rank(ordering.as_running(entry.key, view.now_s), entry.state, entry.width)
        if entry is None or (rank is not None and rank.key < candidate.key):
            assert rank is not None
            candidate, entry = rank, None
            rank = next(running, None)
        if candidate.width > room:
            break
        room -= candidate.width
        prefix.append(candidate)
        if entry is not None:
            ranking.dequeue(entry.state.job.id)
            waiting[entry.state.job.id] = entry
    return prefix, waiting


def _place_sticky(stack: Stack, view: View, plan: Plan, waiting: dict[int, Entry]) -> None:
    ended = False
    for entry in sorted(waiting.values(), key=lambda e: stack.placing.turn(e.state)):
        gpus = None if ended else _place_or_evict(stack, view, plan, entry)
        if gpus is None:
            ended = True
            plan.waits[entry.state.job.id] = NO_FREE_GPU
            stack.ranking.enqueue(entry.state)
        else:
            stack.start(entry, gpus, view, plan)


def _place_or_evict(stack: Stack, view: View, plan: Plan, entry: Entry) -> tuple[int, ...] | None:
    key = stack.ordering.as_running(entry.key, view.now_s)
    while (gpus := stack.place(entry.state, entry.width, view, view.free)) is None:
        victim = next((r for r in reversed(stack.ranking.ranked) if r.state.gpus), None)
        if victim is None or victim.key < key:
            return None
        view.free.give(view.usable(victim.state.gpus))
        plan.evict.append(victim.state.job.id)
        stack.ranking.stop(victim.state)
    return gpus


def _place_anew(stack: Stack, view: View, plan: Plan, prefix: list[Rank], waiting: dict[int, Entry]) -> None:
    ranking = stack.ranking
    for rank in ranking.ranked:
        view.free.give(view.usable(rank.state.gpus))
    run: set[int] = set()
    for rank in sorted(prefix, key=lambda r: stack.placing.turn(r.state)):
        gpus = stack.place(rank.state, rank.width, view, view.free)
        if gpus is None:
            plan.waits[rank.state.job.id] = NO_FREE_GPU
            break
        run.add(rank.state.job.id)
        if gpus != rank.state.gpus:
            plan.place.append(Place(rank.state.job.id, gpus))
    for rank in list(ranking.ranked):
        if rank.state.job.id not in run:
            plan.evict.append(rank.state.job.id)
            ranking.stop(rank.state)
    for job_id, entry in waiting.items():
        if job_id not in run:
            ranking.enqueue(entry.state)
        else:
            ranking.start(entry, entry.width)
