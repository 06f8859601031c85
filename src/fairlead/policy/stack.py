"""The policy stack: one stage each for sizing, ordering, sharing and placing, joined into `decide(view) -> plan`.

Every decision has the same phases:

1. *Absorb*: what changed since the last one goes into the queue of waiting jobs and the ranking of running ones.
2. *Who runs*: by ordering, one of the regimes below.
3. *Where*: for each job that is to start, sharing offers pools of GPUs and placing picks from the first that holds it.
   A placing that is not sticky then places all running jobs anew.

Regimes on events: strict, greedy, EASY, and preemptive; elastic.py where sizing changes widths. With `round_s`
decisions are taken at multiples of it only, by the rules of rounds.py. The stack's own state (queue, ranking) is
derived from views alone, and what stages learn can be saved: a new stack that recalls it and is shown a full view
decides as one that has seen it grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.errors import InputError
from fairlead.model.placement import Placement
from fairlead.policy import rounds
from fairlead.policy.easy import Lanes
from fairlead.policy.elastic import Elastic
from fairlead.policy.explain import explain_queue
from fairlead.policy.knowledge import reading
from fairlead.policy.plan import LOOKED_AT, NO_FREE_GPU, Place, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Entry, Queue
from fairlead.policy.ranked import Rank, Ranked
from fairlead.policy.stages import Ordering, Placing, Powering, Sharing, Sizing, Stage
from fairlead.policy.view import JobState, View


class Stack:
    """A policy: `decide` is all that a driver calls."""

    def __init__(
        self,
        sizing: Sizing,
        ordering: Ordering,
        sharing: Sharing,
        placing: Placing,
        powering: Powering | None = None,
        *,
        round_s: float | None = None,
        spec: str = "",
    ) -> None:
        if round_s is not None and ordering.skips == "easy":
            raise InputError(
                "backfill=easy plans on events, it cannot be used in rounds",
                hint="leave out --round-s, or take backfill=greedy",
            )
        if sharing.shares and (round_s is not None or ordering.skips == "easy"):
            what = "in rounds" if round_s is not None else "with backfill=easy"
            raise InputError(f"a sharing of GPUs decides on events, it cannot be used {what}")
        plain = round_s is None and not ordering.preemptive and ordering.skips != "easy" and not sharing.shares
        if sizing.elastic and not plain:
            raise InputError(
                "a sizing that changes widths decides who runs: it cannot be used in rounds, with an ordering that "
                "preempts or backfills, or with shared GPUs",
                hint="ordering=fifo goes with it; it has an interval of its own where it needs one",
            )
        self.sizing = sizing
        self.ordering = ordering
        self.sharing = sharing
        self.placing = placing
        self.powering = powering or Powering()
        self.round_s = round_s
        self.spec = spec
        self.explains = False
        """Whether plans say why jobs wait and what was considered for them; for people, it costs some time."""
        self.queue = Queue(by_width=ordering.skips == "greedy" and round_s is None)
        self.ranked = Ranked()
        self._easy = ordering.skips == "easy"
        self._lanes = Lanes()
        self._ends = Ranked()
        """EASY: the running jobs by the moment of their end."""
        # The strict and greedy regimes never ask who runs where in the order, so they need not pay for knowing.
        self._sticky = placing.sticky or sharing.shares
        displaces = ordering.preemptive and not sharing.shares
        self._ranks = displaces or self._easy or round_s is not None or not self._sticky
        # Whether a decision may differ from the last one though nothing happened.
        self._moves = ordering.drifts or (placing.redraws and not self._sticky)
        self._again = False
        """Whether sharing wants to be asked again at once, when what it has decided is true."""
        self._started: list[JobState] = []
        self._stopped: list[JobState] = []
        self._primed = False
        self._missed = True
        """Whether things may have happened that no view's changes have told."""
        self._elastic = Elastic() if sizing.elastic else None

    @property
    def needs_oracle(self) -> bool:
        """Whether the driver must let it see true run times."""
        return self.ordering.needs_oracle or self.sizing.needs_oracle

    def decide(self, view: View) -> Plan:
        """What should change now."""
        if self._elastic is not None:
            return self._decide_widths(self._elastic, view)
        fallen = self.ordering.expired(view) if self._ranks else []
        changed = bool(view.changes) or bool(fallen) or self._missed
        self._missed = False
        self._absorb(view, fallen)
        plan = Plan()
        if self.sharing.shares and self._undo(view, plan):
            return plan
        view.free.begin()
        try:
            looks = changed or self._moves or self._again
            if looks:
                self._again = False
                self._run_regime(view, plan)
            if self.powering.active:
                self.powering.decide(self.queue.demand_gpus, None, view, plan)
            if self.explains and looks and not self._again:
                explain_queue(self, view, plan)
        finally:
            view.free.rollback()
        self._note(view, plan)
        self._set_wake(view, plan)
        return plan

    def _decide_widths(self, elastic: Elastic, view: View) -> Plan:
        plan = Plan()
        view.free.begin()
        try:
            elastic.decide(self, view, plan)
        finally:
            view.free.rollback()
        moments = [m for m in (plan.wake_s, self.sizing.wake_s(view)) if m is not None]
        plan.wake_s = min(moments, default=None)
        return plan

    # -- what is saved ---------------------------------------------------------------------------------------------

    def knowledge(self) -> dict[str, Any]:
        """What the stages have learnt and promised, and the stack itself: what the view does not show. JSON keeps it.

        To be saved after a decision, with the plan.
        """
        own: dict[str, Any] = {"again": self._again}
        if self._elastic is not None:
            own["wants"] = [list(wish) for wish in self._elastic.wants.items()]
        parts = {name: stage.knowledge() for name, stage in self._stages.items()}
        return {"stack": own, **{name: part for name, part in parts.items() if part}}

    def recall(self, saved: Mapping[str, Any], view: View, *, missed: bool = True) -> None:
        """Go on where a stack of the same policies was saved: to be called before the first decision.

        `missed`: things may have happened since that `view.changes` does not tell, as after a restart; then everything
        is looked at anew.
        """
        with reading("the policies", saved, "stack", *self._stages):
            own = saved["stack"]
        with reading("the stack", own, "again", "wants"):
            self._again = bool(own["again"])
            if self._elastic is not None:
                self._elastic.recall(own["wants"], view)
        for name, stage in self._stages.items():
            if name in saved:
                stage.recall(saved[name], view)
        self._missed = missed

    @property
    def _stages(self) -> dict[str, Stage]:
        return {
            "sizing": self.sizing,
            "ordering": self.ordering,
            "placing": self.placing,
            "sharing": self.sharing,
            "powering": self.powering,
        }

    def _undo(self, view: View, plan: Plan) -> bool:
        """Put back whom sharing wants out; what that frees is decided about at once, when it is true."""
        leaving, opened = self.sharing.review(view)
        self._again = self._again or opened
        for state in leaving:
            plan.evict.append(state.job.id)
        if leaving:
            self._note(view, plan)
            self._again = True
            plan.wake_s = view.now_s
        return bool(leaving)

    # -- 1. absorb -------------------------------------------------------------------------------------------------

    def _absorb(self, view: View, fallen: list[JobState]) -> None:
        changes = view.changes
        for state in (*changes.ended, *changes.withdrawn):
            self.dequeue(state.job.id)
            self._unrank(state.job.id)
        if not self._primed:
            self._primed = True
            arrived: Iterable[JobState] = view.waiting.values()
            running: list[JobState] = list(view.running.values())
            for state in running:
                self.ordering.watch(state, len(state.gpus), state.starts, view)
        else:
            arrived = (*changes.arrived, *changes.returned, *self._stopped)
            running = [*self._started, *changes.retimed, *fallen]
        for state in arrived:
            self._unrank(state.job.id)
            if state.job.id in view.waiting:
                self.enqueue(state, view)
        if not self._ranks:
            return
        key = self.ordering.running_key
        if self.ordering.drifts:
            self.ranked.rekey(Rank(key(s, view), s, len(s.gpus)) for s in view.running.values())
        else:
            for state in running:
                if state.gpus:
                    self.ranked.add(Rank(key(state, view), state, len(state.gpus)))
                    if self._easy:
                        self._ends.add(Rank((_end_s(state, view), state.job.id), state, len(state.gpus)))

    def _unrank(self, job_id: int) -> None:
        if self._ranks:
            self.ranked.discard(job_id)
            if self._easy:
                self._ends.discard(job_id)

    def enqueue(self, state: JobState, view: View) -> None:
        """A job waits."""
        key = self.ordering.waiting_key(state, view)
        width = self.sizing.width(state, view)
        self.queue.push(key, state, width)
        if self._easy:
            self._lanes.push(Entry(key, state, width), _end_s(state, view) - view.now_s)

    def dequeue(self, job_id: int) -> None:
        """A job no longer waits."""
        self.queue.remove(job_id)
        if self._easy:
            self._lanes.remove(job_id)

    def _note(self, view: View, plan: Plan) -> None:
        """What this plan starts and stops gets its lasting key at the next decision, when it is true."""
        self._started = []
        self._stopped = [view.running[job_id] for job_id in plan.evict]
        if self.sharing.shares:
            for place in plan.place:
                self.sharing.placed(view.waiting[place.job_id], place.gpus, view)
        if self._ranks:
            for place in plan.place:
                state = view.waiting.get(place.job_id) or view.running[place.job_id]
                self.ordering.watch(state, len(place.gpus), state.starts + 1, view)
                self._started.append(state)

    def _set_wake(self, view: View, plan: Plan) -> None:
        moments = [plan.wake_s, self.sharing.wake_s(view) if self.sharing.shares else None]
        if self.round_s is not None and self._moves and (view.running or view.waiting):
            moments.append(view.now_s + self.round_s)
        elif self._ranks:
            moments.append(self.ordering.wake_s(view))
        if self._again:
            moments.append(view.now_s)
        plan.wake_s = min((m for m in moments if m is not None), default=None)

    # -- 2. who runs -----------------------------------------------------------------------------------------------

    def _run_regime(self, view: View, plan: Plan) -> None:
        if self.round_s is not None:
            rounds.decide(self, view, plan)
            return
        if self.sharing.shares:
            self._share(view, plan)
        elif self.ordering.preemptive:
            self._preempt(view, plan)
        else:
            self._start_in_order(view, plan)
            if self._easy:
                self._backfill(view, plan)
        if not self._sticky:
            self._replace_all(view, plan)

    def _start_in_order(self, view: View, plan: Plan) -> None:
        """Strict: the head starts while it fits. Greedy: so does the first that fits, whoever is skipped."""
        queue, greedy = self.queue, self.ordering.skips == "greedy"
        unplaced: list[Entry] = []
        while len(queue):
            entry = queue.first_within(view.free.count) if greedy else queue.head()
            if entry is None:
                break
            gpus = self.place(entry.state, entry.width, view, view.free)
            if gpus is not None:
                self.start(entry, gpus, view, plan)
                continue
            plan.waits[entry.state.job.id] = NO_FREE_GPU
            if not greedy:
                break
            queue.remove(entry.state.job.id)
            unplaced.append(entry)
        for entry in unplaced:
            queue.push(entry.key, entry.state, entry.width)

    def _share(self, view: View, plan: Plan) -> None:
        """Waiting jobs in order, on GPUs of their own or beside others; nobody is displaced.

        Strict orderings stop at the first who finds nothing, others look at some dozens. The first who joins others
        ends the decision, as the next one must see it there; the stack asks to be called again at once. A sharing that
        decides `at_once` says itself who is to be placed.
        """
        if self.sharing.at_once:
            for job_id in self.sharing.chosen(self.queue, view):
                found = self.queue.get(job_id)
                gpus = self.place(found.state, found.width, view, view.free) if found is not None else None
                if found is not None and gpus is not None:
                    self.start(found, gpus, view, plan)
            return
        strict = self.ordering.skips == "none"
        unplaced: list[Entry] = []
        while (entry := self.queue.head()) is not None and len(unplaced) < LOOKED_AT:
            gpus = self.place(entry.state, entry.width, view, view.free)
            if gpus is not None:
                self.start(entry, gpus, view, plan)
                if self._again:
                    break
                continue
            plan.waits[entry.state.job.id] = NO_FREE_GPU
            if strict:
                break
            self.queue.remove(entry.state.job.id)
            unplaced.append(entry)
        for entry in unplaced:
            self.queue.push(entry.key, entry.state, entry.width)
        if plan.place and len(self.queue) and not self.sharing.at_once:
            # Those who found nothing may want to join those who have just been placed.
            self._again = True

    def _backfill(self, view: View, plan: Plan) -> None:
        """EASY: the head has a reservation; who fits now and does not delay it starts."""
        head = self.queue.head()
        if head is None:
            return
        reserved_s, spare = self._reservation(head.width, view)
        while (entry := self._lanes.first(view.free.count, spare, reserved_s - view.now_s)) is not None:
            gpus = self.place(entry.state, entry.width, view, view.free)
            if gpus is None:
                break
            if _end_s(entry.state, view) > reserved_s:
                spare -= entry.width
            self.start(entry, gpus, view, plan)

    def _reservation(self, width: int, view: View) -> tuple[float, int]:
        """When `width` GPUs will be free if nobody else starts, and how many more will be then."""
        free, reserved_s = view.free.count, float("inf")
        for (end_s, _), _, freed in self._ends:
            if end_s > reserved_s:
                break
            free += freed
            if free >= width:
                reserved_s = end_s
        return reserved_s, max(0, free - width)

    def _preempt(self, view: View, plan: Plan) -> None:
        """Fill greedily in order over running and waiting jobs; touches only the tail of the ranking that changes.

        Take the first waiting job in order that fits into the free GPUs and those of the running jobs behind it; take
        the jobs it displaces off the tail and put back those that still fit; repeat. Everyone ahead of the job taken
        is as the greedy walk over the whole order would leave them, so when nobody is left to take, all are.
        """
        ordering, ranked, now_s = self.ordering, self.ranked, view.now_s
        chosen: dict[int, Rank] = {}
        displaced: dict[int, JobState] = {}
        free = view.free.count
        while (entry := self._first_that_fits(free, now_s)) is not None:
            self.dequeue(entry.state.job.id)
            off: list[Rank] = []
            while free < entry.width:
                off.append(ranked.pop())
                free += off[-1].width
            free -= entry.width
            rank = Rank(ordering.as_running(entry.key, now_s), entry.state, entry.width)
            ranked.add(rank)
            if displaced.pop(entry.state.job.id, None) is None:
                chosen[entry.state.job.id] = rank
            for behind in reversed(off):
                if behind.width <= free:
                    ranked.add(behind)
                    free -= behind.width
                else:
                    # One that was chosen a moment ago: who was displaced for it is worth more as one that waits.
                    if chosen.pop(behind.state.job.id, None) is None:
                        displaced[behind.state.job.id] = behind.state
                    self.enqueue(behind.state, view)
        self._settle(list(chosen.values()), displaced, view, plan)

    def _first_that_fits(self, free: int, now_s: float) -> Entry | None:
        best: Entry | None = None
        for entry in self.queue.heads():
            if best is not None and best.key < entry.key:
                continue
            short = entry.width - free
            key = self.ordering.as_running(entry.key, now_s)
            if short <= 0 or self.ranked.width_behind(key, short) >= short:
                best = entry
        return best

    # -- 3. where --------------------------------------------------------------------------------------------------

    def _settle(self, chosen: list[Rank], displaced: dict[int, JobState], view: View, plan: Plan) -> None:
        for job_id, state in displaced.items():
            plan.evict.append(job_id)
            view.free.give(view.usable(state.gpus))
        for rank in chosen:
            gpus = self.place(rank.state, rank.width, view, view.free)
            if gpus is None:
                self._unplace(rank, view, plan)
            else:
                plan.place.append(Place(rank.state.job.id, gpus, self.sharing.shared(rank.state)))

    def place(self, state: JobState, width: int, view: View, pool: Pool) -> Placement | None:
        """GPUs for a job, taken from the pool; None where it can't be placed."""
        for offer in self.sharing.offers(state, width, pool, view):
            gpus = self.placing.pick(state, width, offer, view) if isinstance(offer, Pool) else offer
            if gpus is None:
                continue
            if self.sharing.shares and any(view.on_gpu[g] for g in gpus):
                self._again = not self.sharing.at_once
                pool.take(tuple(g for g in gpus if g in pool))
            else:
                pool.take(gpus)
            return gpus
        return None

    def start(self, entry: Entry, gpus: Placement, view: View, plan: Plan) -> None:
        """A waiting job runs from now on."""
        self.dequeue(entry.state.job.id)
        share = self.sharing.sm_share(entry.state, gpus, view)
        plan.place.append(Place(entry.state.job.id, gpus, self.sharing.shared(entry.state), share))
        if self._ranks:
            self.ranked.add(Rank(self.ordering.as_running(entry.key, view.now_s), entry.state, entry.width))
        if self._easy:
            self._ends.add(Rank((_end_s(entry.state, view), entry.state.job.id), entry.state, entry.width))

    def _replace_all(self, view: View, plan: Plan) -> None:
        """Not sticky: whoever runs now picks anew, in order, from all GPUs."""
        changes = view.changes
        if not (plan.place or plan.evict or changes.ended or changes.nodes or changes.rescored or self.placing.redraws):
            return
        starting = {p.job_id: p.gpus for p in plan.place}
        ranks = sorted(self.ranked, key=lambda r: self.placing.turn(r.state))
        for rank in ranks:
            view.free.give(view.usable(starting.get(rank.state.job.id, rank.state.gpus)))
        plan.place = []
        for rank in ranks:
            gpus = self.place(rank.state, rank.width, view, view.free)
            if gpus is None:
                self._unplace(rank, view, plan)
            elif gpus != rank.state.gpus:
                plan.place.append(Place(rank.state.job.id, gpus, self.sharing.shared(rank.state)))

    def _unplace(self, rank: Rank, view: View, plan: Plan) -> None:
        """A job that was to run finds no GPUs: one of its own was drained, or others took those that hold it."""
        job_id = rank.state.job.id
        plan.waits[job_id] = NO_FREE_GPU
        if rank.state.gpus:
            plan.evict.append(job_id)
        self._unrank(job_id)
        self.enqueue(rank.state, view)


def _end_s(state: JobState, view: View) -> float:
    assert view.oracle is not None, "easy backfill was shown a view without an oracle"
    return view.now_s + view.oracle.remaining_s(state)
