"""Decisions where widths change while jobs run: sizing wishes, this carries the wishes out as far as GPUs allow.

Sizing names the widths that have changed; they hold until it names others. Whoever has another width than it should is
unmet, and only the unmet are looked at:

1. Jobs that should wait are evicted; those that should be narrower, and those on nodes that are to be given up, hand
   their GPUs back.
2. If all that is wished for fits, everybody concerned is placed anew, the widest first, since those need whole nodes.
3. Else the narrowed and moved are placed first, then waiting jobs in the queue's order, on fewer GPUs if sizing agrees
   (partly placed), then jobs that should grow, each once it can have all of it.
4. What is still missing is what powering rents or wakes nodes for.

A width or a place that changes costs the job a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.errors import InputError
from fairlead.model.placement import Placement
from fairlead.policy.explain import explain_widths
from fairlead.policy.plan import NO_FREE_GPU, Place, Plan
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


@dataclass(slots=True)
class _Unmet:
    """Jobs whose width is to change in this decision."""

    placed_anew: list[JobState] = field(default_factory=list)
    """Off their GPUs: narrowed, or their node is to be given up."""
    waiting: list[JobState] = field(default_factory=list)
    growing: list[JobState] = field(default_factory=list)


class Elastic:
    """The wishes, and what is not as wished."""

    def __init__(self) -> None:
        self.wants: dict[int, int] = {}
        self._unmet: dict[int, JobState] = {}
        self._primed = False

    def decide(self, stack: Stack, view: View, plan: Plan) -> None:
        """One decision; the pool of the view is left as the plan leaves it."""
        self._absorb(stack, view)
        nodes = stack.sizing.nodes(view)
        if nodes is not None and stack.powering.active and not stack.powering.rents:
            raise InputError(
                "sizing says how many nodes to have, but the nodes that sleep are woken for jobs only",
                hint="powering=rent goes with it, or a sizing without a target",
            )
        leaving = self._leaving(view, nodes) if stack.powering.rents and nodes is not None else frozenset()
        withheld: list[Placement] = []
        unmet = self._sort_out(stack, view, plan, leaving, withheld)
        if unmet.placed_anew or unmet.waiting or unmet.growing:
            fits = self._missing_gpus(unmet, view) <= view.free.count
            (self._place_all if fits else self._place_some)(stack, view, plan, unmet)
        for gpus in withheld:
            view.free.give(gpus)
        given = dict.fromkeys(plan.evict, 0) | {p.job_id: len(p.gpus) for p in plan.place}
        short = 0
        for job_id, state in list(self._unmet.items()):
            missing = self.wants[job_id] - given.get(job_id, len(state.gpus))
            if not missing or not self.wants[job_id]:
                del self._unmet[job_id]
            short += max(0, missing)
        if stack.powering.active:
            stack.powering.decide(short, nodes, view, plan)
        if stack.explains:
            explain_widths(stack, self.wants, view, plan)

    def recall(self, wants: Sequence[Sequence[int]], view: View) -> None:
        """Wishes of jobs that are still here; what is not as wished shows at the next decision."""
        self.wants = {int(job_id): int(width) for job_id, width in wants if view.here(job_id)}

    def _absorb(self, stack: Stack, view: View) -> None:
        changes = view.changes
        for state in (*changes.ended, *changes.withdrawn):
            self.wants.pop(state.job.id, None)
            self._unmet.pop(state.job.id, None)
        back: list[JobState] = list(changes.returned)
        if not self._primed:
            self._primed = True
            back = [*view.waiting.values(), *view.running.values()]
        for job_id, width in stack.sizing.allot(view).items():
            self.wants[job_id] = width
            back.append(view.running.get(job_id) or view.waiting[job_id])
        for state in back:
            wanted = self.wants.get(state.job.id)
            if wanted is not None and wanted != len(state.gpus):
                self._unmet[state.job.id] = state
            else:
                self._unmet.pop(state.job.id, None)

    def _leaving(self, view: View, nodes: int) -> frozenset[int]:
        """The nodes to give up: those that the fewest GPUs are in use of, the last of equals."""
        off = view.asleep | view.down | view.drained_nodes()
        on = [n for n in range(len(view.cluster.nodes)) if n not in off]
        spare, first = len(on) - nodes, view.cluster.first_gpu
        if spare <= 0:
            return frozenset()
        used = {n: sum(map(bool, view.on_gpu[first[n] : first[n + 1]])) for n in on}
        return frozenset(sorted(on, key=lambda n: (used[n], -n))[:spare])

    def _sort_out(
        self, stack: Stack, view: View, plan: Plan, leaving: frozenset[int], withheld: list[Placement]
    ) -> _Unmet:
        """Who waits, shrinks, moves and grows; GPUs that are given up go back to the pool, if others may have them."""
        node_of, found = view.cluster.node_of, _Unmet()
        if leaving:
            for node in leaving:
                # Nothing is placed there any more.
                first = view.cluster.first_gpu[node]
                gpus = tuple(g for g in range(first, view.cluster.first_gpu[node + 1]) if g in view.free)
                if gpus:
                    view.free.take(gpus)
                    withheld.append(gpus)
            for job_id in sorted({j for n in leaving for j in _jobs_on(view, n)}):
                if job_id in self.wants:
                    self._unmet.setdefault(job_id, view.running[job_id])
        for job_id, state in sorted(self._unmet.items()):
            wanted, have = self.wants[job_id], len(state.gpus)
            if not have:
                if wanted:
                    found.waiting.append(state)
            elif not wanted:
                plan.evict.append(job_id)
                self._hand_back(view, state, leaving, withheld)
            elif wanted < have or (leaving and any(node_of[g] in leaving for g in state.gpus)):
                self._hand_back(view, state, leaving, withheld)
                found.placed_anew.append(state)
            else:
                found.growing.append(state)
        found.waiting.sort(key=lambda s: stack.ordering.waiting_key(s, view))
        found.growing.sort(key=lambda s: stack.ordering.waiting_key(s, view))
        return found

    def _hand_back(self, view: View, state: JobState, leaving: frozenset[int], withheld: list[Placement]) -> None:
        node_of, gpus = view.cluster.node_of, view.usable(state.gpus)
        view.free.give(tuple(g for g in gpus if node_of[g] not in leaving))
        withheld.append(tuple(g for g in gpus if node_of[g] in leaving))

    def _missing_gpus(self, unmet: _Unmet, view: View) -> int:
        """What everybody wants beyond the pool and the GPUs that growing jobs have, less those that are drained."""
        anew = sum(self.wants[s.job.id] for s in (*unmet.placed_anew, *unmet.waiting))
        return anew + sum(self.wants[s.job.id] - len(view.usable(s.gpus)) for s in unmet.growing)

    def _place_all(self, stack: Stack, view: View, plan: Plan, unmet: _Unmet) -> None:
        for state in unmet.growing:
            view.free.give(view.usable(state.gpus))
        everybody = (*unmet.placed_anew, *unmet.waiting, *unmet.growing)
        for state in sorted(everybody, key=lambda s: (-self.wants[s.job.id], s.job.id)):
            self._place(stack, view, plan, state, self.wants[state.job.id])

    def _place_some(self, stack: Stack, view: View, plan: Plan, unmet: _Unmet) -> None:
        for state in sorted(unmet.placed_anew, key=lambda s: (-self.wants[s.job.id], s.job.id)):
            self._place(stack, view, plan, state, self._within(stack, view, state, view.free.count))
        for state in unmet.waiting:
            self._place(stack, view, plan, state, self._within(stack, view, state, view.free.count))
        more_to_come = not view.waking | view.asleep <= view.drained_nodes()
        for state in unmet.growing:
            have, usable = len(state.gpus), view.usable(state.gpus)
            width, at_most = self.wants[state.job.id], len(usable) + view.free.count
            if width > at_most:
                width = 0 if more_to_come else stack.sizing.narrower(state, at_most, view)
            if width > have:
                view.free.give(usable)
                self._place(stack, view, plan, state, width)

    def _within(self, stack: Stack, view: View, state: JobState, gpus: int) -> int:
        wanted = self.wants[state.job.id]
        return wanted if wanted <= gpus else stack.sizing.narrower(state, gpus, view)

    def _place(self, stack: Stack, view: View, plan: Plan, state: JobState, width: int) -> None:
        """On that many GPUs, else back into the queue."""
        job_id = state.job.id
        gpus = stack.place(state, width, view, view.free) if width >= max(1, state.job.min_gpus) else None
        if gpus is None:
            if state.gpus:
                plan.evict.append(job_id)
            plan.waits[job_id] = NO_FREE_GPU
        elif gpus != state.gpus:
            plan.place.append(Place(job_id, gpus))


def _jobs_on(view: View, node: int) -> set[int]:
    first, last = view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]
    return {j for g in range(first, last) for j in view.on_gpu[g]}
