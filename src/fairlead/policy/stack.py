"""The policy stack: one stage each for sizing, ordering, sharing, placing and powering, joined into `decide`.

Every decision has the same steps, whatever the stages are:

1. *Undo*: sharing takes back what has not come true of the company that it hoped for.
2. *Size*: sizing says what width each job should have now; who has another one is resized (resizing.py).
3. *Order*: all jobs, waiting and running, stand in one ranking (ranking.py; ranking_index.py keeps it up to date).
4. *Admit*: a walk over the ranking says who starts and who makes room, by one of the regimes of admission.py. For each
   job to be placed sharing makes offers (`offers`), and placing picks GPUs within the first that holds it.
5. *Power*: powering hears what is still missing and what is spare.

The plan is the difference to what is. With `round_s` the same decision is taken at multiples of it only. An order that
stops at the first job that does not fit follows the rules of PAL's simulator there (rounds.py). While there are jobs
that ask for a part of a GPU, or of hosts, all are admitted as by_parts.py says.

The stack's own state (the ranking) is derived from views alone, and what stages learn can be saved: a new stack that
recalls it and is shown a full view decides as one that has seen it grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairlead.errors import InputError, RunError
from fairlead.model.placement import Placement
from fairlead.policy.admission import AtOnce, Easy, InOrder, OneByOne, Regime
from fairlead.policy.by_parts import ByParts, refusal
from fairlead.policy.displacing import Displacing
from fairlead.policy.explain import explain_queue, explain_widths
from fairlead.policy.plan import NO_FREE_GPU, Place, Plan
from fairlead.policy.pool import Pool
from fairlead.policy.queue import By, Entry
from fairlead.policy.ranking import Ranking
from fairlead.policy.ranking_index import IndexedRanking
from fairlead.policy.repicking import pick_in_turn, place_anew
from fairlead.policy.resizing import Resizing
from fairlead.policy.rounds import Rounds
from fairlead.policy.saved_state import reading
from fairlead.policy.stages import Ordering, Placing, Powering, Sharing, Sizing, Skips, Stage
from fairlead.policy.view import JobState, View


class Stack:
    """A policy: `decide` is all that a driver calls. `plain` does without indexes, to be compared with."""

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
        plain: bool = False,
    ) -> None:
        self.sizing, self.ordering, self.sharing, self.placing = sizing, ordering, sharing, placing
        self.powering = powering or Powering()
        if sizing.names_nodes and self.powering.active and not self.powering.rents:
            raise InputError(
                f"policy {spec!r}: sizing says how many nodes to have, but nodes that sleep are woken for jobs only",
                hint="powering=rent goes with it, or a sizing without a target",
            )
        self.round_s = round_s
        self.spec = spec
        self.explains = False
        """Whether plans say why jobs wait and what was considered for them; for people, it costs some time."""
        self.asks_again = False
        """Whether to be asked again at once, when what was decided is true: the next step depends on it."""
        self.resizing = Resizing(self) if sizing.elastic else None
        self.skips = _skips(ordering, sizing)
        """What happens behind a job that finds no place."""
        self.regime = self._regime()
        self._by_parts = ByParts(self.skips, ordering.preemptive)
        easy = self.skips == "easy"
        # The walks that displace nobody never ask who runs where in the order, so they need not pay for knowing.
        self._sticky = placing.sticky or sharing.shares or sizing.elastic
        ranks = ordering.preemptive or isinstance(self.regime, Rounds) or not self._sticky
        self._follows = ranks or easy
        """Whether the ranking is told of the jobs that run."""
        self.ranking = (
            Ranking(ordering, self._widths)
            if plain
            else IndexedRanking(ordering, self._widths, by=self._heaps(), easy=easy, ranks=ranks)
        )
        # Whether a decision may differ from the last one though nothing happened.
        self._moves = ordering.drifts or (placing.redraws and not self._sticky)
        self._started: list[JobState] = []
        self._stopped: list[JobState] = []
        self._missed = True
        """Whether things may have happened that no view's changes have told."""

    def _regime(self) -> Regime:
        """How jobs are admitted, by what ordering and sharing ask for."""
        displaces = self.ordering.preemptive
        if self.sharing.shares:
            return AtOnce(displaces) if self.sharing.at_once else OneByOne(self.skips, displaces)
        if self.skips == "easy" and not displaces:
            return Easy()
        if self.skips == "none" and not self.sizing.elastic and (displaces or self.round_s is not None):
            return Rounds()
        return Displacing() if displaces else InOrder(self.skips)

    def _heaps(self) -> By:
        """What the index of waiting jobs is asked for."""
        if self.regime == InOrder("greedy"):
            return "least" if self.sizing.elastic else "width"
        return "width" if self.regime == Displacing() else ""

    @property
    def needs_oracle(self) -> bool:
        """Whether the driver must let it see true run times."""
        return self.ordering.needs_oracle or self.sizing.needs_oracle

    def decide(self, view: View) -> Plan:
        """Take one decision: the plan that leads from the view to what the stages want."""
        plan = Plan()
        if view.asking and (reason := refusal(self)) is not None:
            raise RunError(f"policy {self.spec!r}: {reason}")
        if self.placing.learns:
            self.placing.learn(view.changes.arrived)
        if self.resizing is not None:
            self._stopped += self.resizing.absorb(view)
        elif self.sizing.observe(view):
            self._missed = True
        moved = self.ranking.update(view, self._started, self._stopped)
        looks = moved or self._missed or self._moves or self.resizing is not None or bool(view.changes)
        self._missed = False
        if self.sharing.shares and self._undo(view, plan):
            return plan
        view.free.begin()
        if view.parts is not None:
            view.parts.begin()
        try:
            looks = looks or self.asks_again
            if looks:
                self.asks_again = False
                self._admit(view, plan)
            self._power(view, plan)
            if self.explains and looks and not self.asks_again:
                self._explain(view, plan)
        finally:
            view.free.rollback()
            if view.parts is not None:
                view.parts.rollback()
        self._note(view, plan)
        self._set_wake(view, plan)
        return plan

    # -- the steps -------------------------------------------------------------------------------------------------

    def _undo(self, view: View, plan: Plan) -> bool:
        """Put back whom sharing wants out; what that frees is decided about at once, when it is true."""
        leaving, opened = self.sharing.review(view)
        self.asks_again = self.asks_again or opened
        for state in leaving:
            plan.evict.append(state.job.id)
        if leaving:
            self._note(view, plan)
            self.asks_again = True
            plan.wake_s = view.now_s
        return bool(leaving)

    def _widths(self, state: JobState, view: View) -> tuple[int, int]:
        """What sizing wants for a waiting job, and the least that it would accept."""
        if self.resizing is not None:
            return self.resizing.widths(state)
        width = self.sizing.width(state, view)
        return width, min(width, max(1, state.job.min_gpus)) if self.sizing.narrows else width

    def _admit(self, view: View, plan: Plan) -> None:
        if self.resizing is not None:
            self.resizing.decide(view, plan)
            return
        if view.asking:
            self._by_parts.admit(self, view, plan)
            return
        self.regime.admit(self, view, plan)
        if isinstance(self.regime, Rounds):
            return
        if not self._sticky:
            place_anew(self, view, plan)
        elif self.round_s is not None and not self.sharing.shares:
            pick_in_turn(self, view, plan)

    def _power(self, view: View, plan: Plan) -> None:
        if not self.powering.active:
            return
        if view.asking:
            placed = {place.job_id for place in plan.place}
            wanted = math.ceil(sum(s.job.gpus * s.job.gpu_frac for j, s in view.waiting.items() if j not in placed))
            # What is free and has not helped whoever waits is of no use to them.
            self.powering.decide(wanted + (view.free.count if wanted else 0), None, view, plan)
            return
        scattered = view.free.count if self.placing.may_refuse and self._somebody_is_refused(view) else 0
        if self.resizing is not None:
            self.powering.decide(self.resizing.short_gpus + scattered, self.resizing.nodes, view, plan)
        else:
            self.powering.decide(self.ranking.demand_gpus + scattered, None, view, plan)

    def _somebody_is_refused(self, view: View) -> bool:
        """Whether a job waits for which enough GPUs are free, but not where placing wants them: they are of no use."""
        if self.resizing is not None:
            return self.resizing.short_gpus > 0
        skips = self.skips == "greedy" and isinstance(self.regime, InOrder | Displacing)
        entry = self.ranking.first_within(view.free.count) if skips else self.ranking.head()
        return entry is not None and entry.width <= view.free.count

    def _explain(self, view: View, plan: Plan) -> None:
        if self.resizing is not None:
            explain_widths(self, self.resizing.wants, view, plan)
        else:
            explain_queue(self, view, plan)

    def _note(self, view: View, plan: Plan) -> None:
        """What this plan starts and stops gets its lasting key at the next decision, when it is true."""
        self._started = []
        self._stopped = [view.running[job_id] for job_id in plan.evict]
        if self.resizing is not None:
            self.resizing.note(plan)
        if self.sharing.shares:
            for place in plan.place:
                if place.job_id in view.waiting and view.waiting[place.job_id].job.gpu_frac >= 1.0:
                    self.sharing.placed(view.waiting[place.job_id], place.gpus, view)
        if self._follows:
            for place in plan.place:
                state = view.waiting.get(place.job_id) or view.running[place.job_id]
                self.ordering.watch(state, len(place.gpus), state.starts + 1, view)
                self._started.append(state)

    def _set_wake(self, view: View, plan: Plan) -> None:
        """When to be asked again, though nothing happens: the first moment that a stage has named."""
        _sooner(plan, self.ordering.wake_s(view))
        if self.sharing.shares:
            _sooner(plan, self.sharing.wake_s(view))
        _sooner(plan, self.sizing.wake_s(view))
        if self.round_s is not None and self._moves and (view.running or view.waiting):
            _sooner(plan, view.now_s + self.round_s)
        if self.asks_again:
            _sooner(plan, view.now_s)

    # -- what the regimes use ----------------------------------------------------------------------------------------

    def place(self, state: JobState, width: int, view: View, pool: Pool) -> Placement | None:
        """GPUs for a job, taken from the pool; None where it can't be placed."""
        if state.job.gpu_frac < 1.0:
            return self._place_part(state, view, pool)
        parts = view.parts if state.job.id in view.asking else None
        offered = pool if parts is None or self.placing.weighs_hosts else parts.offered(state.job, width, pool)
        for offer in self.sharing.offers(state, width, offered, view):
            gpus = self.placing.pick(state, width, offer, view) if isinstance(offer, Pool) else offer
            if gpus is None or (parts is not None and not parts.hosts(state.job, gpus)):
                continue
            if parts is not None:
                parts.take(state.job, gpus)
            if self.sharing.shares and any(view.on_gpu[g] for g in gpus):
                self.asks_again = not self.sharing.at_once
                pool.take(tuple(g for g in gpus if g in pool))
            else:
                pool.take(gpus)
            return gpus
        return None

    def _place_part(self, state: JobState, view: View, pool: Pool) -> Placement | None:
        """The GPU of which a job gets the part that it asks for, whatever the sharing."""
        assert view.parts is not None, "a job asks for a part of a GPU, and the view does not know"
        gpu = self.placing.pick_part(state, pool, view)
        if gpu is None:
            return None
        if gpu in pool:
            pool.take((gpu,))
        view.parts.take(state.job, (gpu,))
        return (gpu,)

    def try_start(self, entry: Entry, view: View, plan: Plan) -> bool:
        """Start a waiting job if it finds a place, narrower than it should be where sizing agrees."""
        gpus = self.place(entry.state, entry.width, view, view.free)
        if gpus is None and entry.least < entry.width:
            narrower = self.sizing.narrower(entry.state, view.free.count, view)
            if entry.least <= narrower < entry.width:
                gpus = self.place(entry.state, narrower, view, view.free)
        if gpus is None:
            plan.waits[entry.state.job.id] = NO_FREE_GPU
            return False
        self.start(entry, gpus, view, plan)
        return True

    def start(self, entry: Entry, gpus: Placement, view: View, plan: Plan) -> None:
        """Write into the plan that a waiting job runs from now on."""
        job = entry.state.job
        if job.gpu_frac < 1.0:
            plan.place.append(Place(job.id, gpus, True, job.gpu_frac))
        else:
            share = self.sharing.sm_share(entry.state, gpus, view)
            plan.place.append(Place(job.id, gpus, self.sharing.shared(entry.state), share))
        self.ranking.start(entry, len(gpus))

    def unplace(self, state: JobState, view: View, plan: Plan) -> None:
        """A job that was to run finds no GPUs: one of its own was drained, or others took those that hold it."""
        plan.waits[state.job.id] = NO_FREE_GPU
        if state.gpus:
            plan.evict.append(state.job.id)
        self.ranking.stop(state)

    # -- what is saved ---------------------------------------------------------------------------------------------

    def knowledge(self) -> dict[str, Any]:
        """What the stages have learnt and promised, and the stack itself: what the view does not show. JSON keeps it.

        To be saved after a decision, with the plan.
        """
        own: dict[str, Any] = {"again": self.asks_again}
        if self.resizing is not None:
            own["wants"] = [list(wish) for wish in self.resizing.wants.items()]
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
            self.asks_again = bool(own["again"])
            if self.resizing is not None:
                self.resizing.recall(own["wants"], view)
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


def _skips(ordering: Ordering, sizing: Sizing) -> Skips:
    """What ordering says of jobs that find no place, `auto` and other names resolved."""
    if ordering.skips == "auto":
        return "greedy" if sizing.elastic else "none"
    return "none" if ordering.skips == "strict" else ordering.skips


def _sooner(plan: Plan, moment_s: float | None) -> None:
    if moment_s is not None and (plan.wake_s is None or moment_s < plan.wake_s):
        plan.wake_s = moment_s
