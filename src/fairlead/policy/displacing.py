"""Who runs where jobs ahead in order take the GPUs of those behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.model.placement import Placement
from fairlead.policy.plan import NO_FREE_GPU, Place, Plan
from fairlead.policy.ranked import Rank
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


@dataclass(frozen=True)
class Displacing:
    """Whoever is ahead in order may take the GPUs of those behind."""

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """First who runs, by the number of GPUs alone; then where, when all that leave have left.

        A job may find no place though there are enough GPUs: they are on too many nodes, or too small. Then jobs behind
        it leave one by one, the last first, until it has one. If it has none even so, it is skipped. Both times the
        rest is filled again, and whoever had to leave may stay after all, or move.
        """
        walk, widest = _Walk(stack, view, plan), None
        while True:
            chosen, displaced = stack.ranking.fill(view.free.count, widest)
            walk.leave(displaced)
            again, widest = walk.place(chosen, widest)
            if not again:
                break
        stack.ranking.restore()
        walk.write()


class _Walk:
    """What a decision has done so far, to be written into the plan at its end."""

    def __init__(self, stack: Stack, view: View, plan: Plan) -> None:
        self._stack, self._view, self._plan = stack, view, plan
        self._leaving: dict[int, JobState] = {}
        """Running jobs that are off their GPUs."""
        self._placed: dict[int, tuple[JobState, Placement]] = {}

    def leave(self, displaced: Mapping[int, JobState]) -> None:
        """Jobs give back what they have, or were given in this decision."""
        free, view = self._view.free, self._view
        for job_id, state in displaced.items():
            if job_id in self._placed:
                free.give(self._placed.pop(job_id)[1])
            else:
                free.give(view.usable(state.gpus))
                self._leaving[job_id] = state

    def place(self, chosen: Iterable[Rank], widest: int | None) -> tuple[bool, int | None]:
        """Find GPUs for all of these; whether the rest is to be filled again, and the widest job that may be tried."""
        again = False
        for rank in chosen:
            state = rank.state
            if state.job.id in self._leaving and self._stays(state):
                continue
            gpus = self._stack.place(state, rank.width, self._view, self._view.free)
            if gpus is None:
                again = True
                gpus = self._make_room(rank) if widest is None or rank.width <= widest else None
            if gpus is not None:
                self._placed[state.job.id] = (state, gpus)
                continue
            self._plan.waits[state.job.id] = NO_FREE_GPU
            self._skip(state)
            if self._stack.ordering.may_block and self._stack.ordering.blocks(state):
                return False, widest
            if state.job.memory_mib <= self._view.cluster.least_memory_mib:
                widest = rank.width - 1  # who is as wide, and behind it, finds no place either
        return again, widest

    def write(self) -> None:
        """Into the plan: who leaves, and who is placed."""
        self._plan.evict.extend(job_id for job_id in self._leaving if job_id not in self._placed)
        shared = self._stack.sharing.shared
        for job_id, (state, gpus) in self._placed.items():
            self._plan.place.append(Place(job_id, gpus, shared(state)))

    def _stays(self, state: JobState) -> bool:
        """Whether a job that was to leave can have its own GPUs back."""
        view = self._view
        if view.usable(state.gpus) != state.gpus or any(g not in view.free for g in state.gpus):
            return False
        view.free.take(state.gpus)
        del self._leaving[state.job.id]
        return True

    def _make_room(self, rank: Rank) -> Placement | None:
        """Let jobs behind one leave, the last first, until it finds a place; if it finds none, they stay."""
        ranking, view = self._stack.ranking, self._view
        left: dict[int, JobState] = {}
        for behind in reversed(ranking.ranked):
            if behind.key < rank.key:
                break
            state = behind.state
            if not state.gpus or state.job.id in self._leaving or state.job.id in self._placed:
                continue
            left[state.job.id] = state
            view.free.give(view.usable(state.gpus))
            gpus = self._stack.place(rank.state, rank.width, view, view.free)
            if gpus is not None:
                self._leaving |= left
                for other in left.values():
                    ranking.stop(other)
                return gpus
        for state in left.values():
            view.free.take(view.usable(state.gpus))
        return None

    def _skip(self, state: JobState) -> None:
        """Leave a job out of the rest of this decision."""
        ranking = self._stack.ranking
        ranking.stop(state)
        entry = ranking.get(state.job.id)
        if entry is not None:
            ranking.set_aside(entry)
