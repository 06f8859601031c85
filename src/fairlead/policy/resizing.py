"""Widths that change while jobs run: sizing wishes, this carries the wishes out as far as GPUs allow.

Sizing names the widths that have changed; they hold until it names others. Whoever has another width than it should is
unmet, and only the unmet are looked at:

1. Jobs that should wait are evicted; those that should be narrower, and those on nodes that are to be given up, hand
   their GPUs back.
2. If all that is wished for fits, everybody concerned is placed anew, the widest first, since those need whole nodes.
3. Else the narrowed and moved are placed first, then waiting jobs in the queue's order, on fewer GPUs if sizing agrees
   (partly placed), then jobs that should grow, each once it can have all of it.
4. What is still missing is what powering rents or wakes nodes for.

Where ordering displaces or reserves, or GPUs are shared, waiting jobs are admitted by that regime, and the steps are
decisions of their own, one after the other at one moment, so that each sees the one before it come true: jobs shrink on
the GPUs that they have; then waiting jobs are admitted; then jobs grow, on GPUs of their own.

A width or a place that changes costs the job a restart. Services have the width that they asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.model.placement import Placement
from fairlead.policy.admission import InOrder, pick_among
from fairlead.policy.displacing import Displacing
from fairlead.policy.plan import LOOKED_AT, NO_FREE_GPU, Place, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Entry
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


@dataclass(slots=True)
class _Unmet:
    """Jobs whose width is to change in this decision."""

    placed_anew: list[JobState] = field(default_factory=list)
    """Off their GPUs: narrowed, or their node is to be given up."""
    growing: list[JobState] = field(default_factory=list)
    outbid: list[JobState] = field(default_factory=list)
    """They run, and should wait."""


class Resizing:
    """The wishes, and what is not as wished."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.wants: dict[int, int] = {}
        self.nodes: int | None = None
        """How many nodes sizing wants to have; None leaves it to what the jobs want."""
        self.short_gpus = 0
        """GPUs that jobs want and the plan does not give them."""
        # The unmet, those that wait and those that run; of the many that wait a decision needs the sum only.
        self._waiting: dict[int, JobState] = {}
        self._wanted_gpus = 0
        """By all that wait."""
        self._running: dict[int, JobState] = {}
        self._touched: list[int] = []
        """Whom the last plan has placed or evicted."""
        self._primed = False

    def widths(self, state: JobState) -> tuple[int, int]:
        """The width wished for a waiting job, and the least that it can run on."""
        wanted = self.wants.get(state.job.id, 0)
        return wanted, min(wanted, max(1, state.job.min_gpus))

    def absorb(self, view: View) -> list[JobState]:
        """Ask sizing; gives the waiting jobs whose width it has changed."""
        changes = view.changes
        for state in (*changes.ended, *changes.withdrawn):
            self._met(state.job.id)
            self.wants.pop(state.job.id, None)
        back: list[JobState] = [*changes.returned]
        back += [s for j in self._touched if (s := view.running.get(j) or view.waiting.get(j)) is not None]
        came: Sequence[JobState] = changes.arrived
        if not self._primed:
            self._primed = True
            back = [*view.waiting.values(), *view.running.values()]
            came = back
        wished = {s.job.id: s.job.gpus for s in came if s.job.kind == "service" and view.here(s.job.id)}
        for job_id, width in self._stack.sizing.allot(view).items():
            if self.wants.get(job_id) == width:
                continue  # sizings may say again what they said before
            if (view.running.get(job_id) or view.waiting[job_id]).job.kind != "service":
                wished[job_id] = width
        back += [view.running.get(job_id) or view.waiting[job_id] for job_id in wished]
        for state in back:
            self._met(state.job.id)
        self.wants.update(wished)
        for state in back:
            self._look_at(state)
        self._touched = []
        return [view.waiting[job_id] for job_id in wished if job_id in view.waiting]

    def _met(self, job_id: int) -> None:
        self._running.pop(job_id, None)
        if self._waiting.pop(job_id, None) is not None:
            self._wanted_gpus -= self.wants[job_id]

    def _look_at(self, state: JobState) -> None:
        job_id = state.job.id
        wanted = self.wants.get(job_id)
        if wanted is None or wanted == len(state.gpus) or job_id in self._waiting:
            return
        if state.gpus:
            self._running[job_id] = state
        else:
            self._waiting[job_id] = state
            self._wanted_gpus += wanted

    def decide(self, view: View, plan: Plan) -> None:
        """Take one decision; the pool of the view is left as the plan leaves it."""
        stack = self._stack
        self.nodes = nodes = stack.sizing.nodes(view)
        leaving = self._leaving(view, nodes) if stack.powering.rents and nodes is not None else frozenset()
        withheld = self._withhold(view, leaving)
        unmet = self._sort_out(view, leaving)
        if isinstance(stack.regime, InOrder):
            self._all_in_one(view, plan, unmet, leaving, withheld)
        else:
            self._step_by_step(view, plan, unmet, leaving)
        for gpus in withheld:
            view.free.give(gpus)
        self._count_short(plan, unmet)

    def note(self, plan: Plan) -> None:
        """Whom a plan has placed or evicted is looked at when that has come true."""
        self._touched += [*plan.evict, *(place.job_id for place in plan.place)]

    def _count_short(self, plan: Plan, unmet: _Unmet) -> None:
        """What is missing of the wishes if the plan comes true; who is displaced counts when that is so."""
        given = dict.fromkeys(plan.evict, 0) | {p.job_id: len(p.gpus) for p in plan.place}
        self.short_gpus = self._wanted_gpus
        for job_id, gpus in given.items():
            if job_id in self._waiting:
                self.short_gpus -= min(gpus, self.wants[job_id])
        for state in (*unmet.placed_anew, *unmet.growing):
            missing = self.wants[state.job.id] - given.get(state.job.id, len(state.gpus))
            self.short_gpus += max(0, missing)

    def recall(self, wants: Sequence[Sequence[int]], view: View) -> None:
        """Wishes of jobs that are still here; what is not as wished shows at the next decision."""
        self.wants = {int(job_id): int(width) for job_id, width in wants if view.here(job_id)}

    # -- who is not as wished ----------------------------------------------------------------------------------------

    def _leaving(self, view: View, nodes: int) -> frozenset[int]:
        """The nodes to give up: those that the fewest GPUs are in use of, the last of equals."""
        off = view.asleep | view.down | view.drained_nodes()
        on = [n for n in range(len(view.cluster.nodes)) if n not in off]
        spare, first = len(on) - nodes, view.cluster.first_gpu
        if spare <= 0:
            return frozenset()
        used = {n: sum(map(bool, view.on_gpu[first[n] : first[n + 1]])) for n in on}
        return frozenset(sorted(on, key=lambda n: (used[n], -n))[:spare])

    def _withhold(self, view: View, leaving: frozenset[int]) -> list[Placement]:
        """Take the free GPUs of nodes that are given up out of the pool."""
        withheld = []
        for node in leaving:
            first, last = view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]
            gpus = tuple(g for g in range(first, last) if g in view.free)
            if gpus:
                view.free.take(gpus)
                withheld.append(gpus)
        return withheld

    def _sort_out(self, view: View, leaving: frozenset[int]) -> _Unmet:
        """Of those who run and are unmet, or on nodes that are given up: who leaves, shrinks or moves, and grows."""
        node_of, found, running = view.cluster.node_of, _Unmet(), {**self._running}
        for job_id in {j for n in leaving for j in _jobs_on(view, n)}:
            if job_id in self.wants and view.running[job_id].job.kind != "service":
                running[job_id] = view.running[job_id]
        for job_id, state in sorted(running.items()):
            wanted = self.wants[job_id]
            if not wanted:
                found.outbid.append(state)
            elif wanted < len(state.gpus) or (leaving and any(node_of[g] in leaving for g in state.gpus)):
                found.placed_anew.append(state)
            else:
                found.growing.append(state)
        key = self._stack.ordering.waiting_key
        found.growing.sort(key=lambda s: key(s, view))
        return found

    # -- on GPUs of their own, with nobody displaced: one decision -----------------------------------------------------

    def _all_in_one(
        self, view: View, plan: Plan, unmet: _Unmet, leaving: frozenset[int], withheld: list[Placement]
    ) -> None:
        stack = self._stack
        for state in (*unmet.outbid, *unmet.placed_anew):
            self._hand_back(view, state, leaving, withheld)
        plan.evict.extend(s.job.id for s in unmet.outbid)
        if unmet.placed_anew or unmet.growing or self._waiting:
            fits = self._missing_gpus(unmet, view) <= view.free.count and stack.ranking.blocker() is None
            (self._place_all if fits else self._place_some)(view, plan, unmet)

    def _hand_back(self, view: View, state: JobState, leaving: frozenset[int], withheld: list[Placement]) -> None:
        node_of, gpus = view.cluster.node_of, view.usable(state.gpus)
        view.free.give(tuple(g for g in gpus if node_of[g] not in leaving))
        withheld.append(tuple(g for g in gpus if node_of[g] in leaving))

    def _missing_gpus(self, unmet: _Unmet, view: View) -> int:
        """What everybody wants beyond the pool and the GPUs that growing jobs have, less those that are drained."""
        anew = sum(self.wants[s.job.id] for s in unmet.placed_anew)
        return self._wanted_gpus + anew + sum(self.wants[s.job.id] - len(view.usable(s.gpus)) for s in unmet.growing)

    def _place_all(self, view: View, plan: Plan, unmet: _Unmet) -> None:
        for state in unmet.growing:
            view.free.give(view.usable(state.gpus))
        everybody = (*unmet.placed_anew, *self._waiting.values(), *unmet.growing)
        for state in sorted(everybody, key=lambda s: (-self.wants[s.job.id], s.job.id)):
            self._place(view, plan, state, self.wants[state.job.id])

    def _place_some(self, view: View, plan: Plan, unmet: _Unmet) -> None:
        for state in sorted(unmet.placed_anew, key=lambda s: (-self.wants[s.job.id], s.job.id)):
            self._place(view, plan, state, self._within(view, state, view.free.count))
        if not self._start_waiting(view, plan):
            return
        more_to_come = not view.waking | view.asleep <= view.drained_nodes()
        for state in unmet.growing:
            have, usable = len(state.gpus), view.usable(state.gpus)
            width, at_most = self.wants[state.job.id], len(usable) + view.free.count
            if width > at_most:
                width = 0 if more_to_come else self._stack.sizing.narrower(state, at_most, view)
            if width > have:
                view.free.give(usable)
                self._place(view, plan, state, width)

    def _start_waiting(self, view: View, plan: Plan, most: int | None = None) -> bool:
        """Waiting jobs in order, as wide as can be had; whether all were looked at, as nobody blocks the others."""
        stack, ranking = self._stack, self._stack.ranking
        looked_at, blocked = 0, False
        while view.free.count and looked_at != most and (entry := self._next(view)) is not None:
            if entry.state.gpus or not stack.try_start(entry, view, plan):  # one that is displaced does not come back
                blocked = stack.skips == "none" or stack.ordering.blocks(entry.state)
                if blocked:
                    break
                ranking.set_aside(entry)
            looked_at += 1
        ranking.restore()
        return not blocked

    def _next(self, view: View) -> Entry | None:
        """The first who may start; where everybody else is passed by, the first who can do with what is free."""
        ranking = self._stack.ranking
        if self._stack.regime != InOrder("greedy"):
            return ranking.head()
        return ranking.blocker() or ranking.first_within(view.free.count)

    def _within(self, view: View, state: JobState, gpus: int) -> int:
        wanted = self.wants[state.job.id]
        return wanted if wanted <= gpus else self._stack.sizing.narrower(state, gpus, view)

    def _place(self, view: View, plan: Plan, state: JobState, width: int) -> None:
        """Place a job on that many GPUs, else let it wait."""
        job_id, stack = state.job.id, self._stack
        gpus = stack.place(state, width, view, view.free) if width >= max(1, state.job.min_gpus) else None
        if gpus is None:
            if state.gpus:
                plan.evict.append(job_id)
            plan.waits[job_id] = NO_FREE_GPU
            return
        if gpus != state.gpus:
            plan.place.append(Place(job_id, gpus))
        if not state.gpus and (entry := stack.ranking.get(job_id)) is not None:
            stack.ranking.start(entry, width)

    # -- with jobs that are displaced, reservations or shared GPUs: one step at a time ---------------------------------

    def _step_by_step(self, view: View, plan: Plan, unmet: _Unmet, leaving: frozenset[int]) -> None:
        stack = self._stack
        for state in unmet.outbid:
            plan.evict.append(state.job.id)
        for state in unmet.placed_anew:
            self._shrink_or_move(view, plan, state, leaving)
        if plan.evict or plan.place:
            stack.asks_again = True
            return
        stack.regime.admit(stack, view, plan)
        if isinstance(stack.regime, Displacing):
            self._start_waiting(view, plan, LOOKED_AT)  # who was not admitted at full width
        reserved = stack.ranking.blocker() is not None or (stack.skips == "easy" and len(stack.ranking))
        if not (plan.evict or plan.place or reserved):
            for state in unmet.growing:
                self._grow(view, plan, state)

    def _shrink_or_move(self, view: View, plan: Plan, state: JobState, leaving: frozenset[int]) -> None:
        """A job keeps some of its GPUs, or if its node is to be given up it goes to free ones, or waits."""
        width, node_of = self.wants[state.job.id], view.cluster.node_of
        staying = [g for g in state.gpus if node_of[g] not in leaving]
        if len(staying) >= width:
            usable = view.usable(tuple(staying))
            among = usable if len(usable) >= width else tuple(staying)
            gpus = self._stack.placing.pick(state, width, Pool(view.cluster, among), view) or among[:width]
            plan.place.append(Place(state.job.id, gpus, state.shared, state.sm_share))
            return
        found = pick_among(self._stack, state, width, view.free, view)
        if found is None:
            plan.evict.append(state.job.id)
        else:
            view.free.take(found)
            plan.place.append(Place(state.job.id, found, self._stack.sharing.shared(state)))

    def _grow(self, view: View, plan: Plan, state: JobState) -> None:
        """More GPUs for a job once it can have all of them: free ones, and those that it has to itself."""
        width, job_id = self.wants[state.job.id], state.job.id
        own = tuple(g for g in view.usable(state.gpus) if view.on_gpu[g] == (job_id,))
        gpus = pick_among(self._stack, state, width, (*view.free, *own), view)
        if gpus is not None:
            view.free.give(own)
            view.free.take(gpus)
            plan.place.append(Place(job_id, gpus, self._stack.sharing.shared(state)))


def _jobs_on(view: View, node: int) -> set[int]:
    first, last = view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]
    return {j for g in range(first, last) for j in view.on_gpu[g]}
