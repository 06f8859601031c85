"""BOA: the widths that a budget buys, kept up to date while jobs come and go."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import InfeasibleError
from fairlead.model.training import packed_nodes
from fairlead.policy.plan import OVER_BUDGET
from fairlead.policy.saved_state import reading
from fairlead.policy.sizing import saved_kind
from fairlead.policy.sizing.arrivals import Arrivals
from fairlead.policy.sizing.budget import JobType
from fairlead.policy.sizing.curves import Curves, Kind, KindKey, usual_widths
from fairlead.policy.sizing.epoch_budget import EpochType, Paths, solve_epochs
from fairlead.policy.sizing.price_control import BudgetController
from fairlead.policy.sizing.type_tables import parse_types
from fairlead.policy.stages import Sizing, file_option, option
from fairlead.policy.view import JobState, View

Floats = NDArray[np.float64]
_LEARNING_S = 60.0
"""How soon after a width is tried for the first time the widths are computed anew."""
_TURN = (math.sqrt(5.0) - 1.0) / 2.0
"""Steps of this size fall evenly into 0 to 1: which of two mixed plans a job gets."""
_THRIFTY = 10.0
"""A price at which hardly anything but GPU-seconds counts; with what is owed it rises further, or falls."""
_NUMBERS = {"due_s": float, "interval_s": float, "infeasible": int, "computed": int}


@dataclass(slots=True)
class _Table:
    """What the last computation says of one kind: the cost to go at the two prices between which the budget lies."""

    widths: tuple[int, ...]
    costs: tuple[Floats, Floats]
    switches: tuple[Floats, Floats]
    starts: tuple[Floats, Floats]
    frac: float
    """The fraction of jobs that go by the second."""
    _found: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)
    """Widths that were asked for."""

    def width(self, job_id: int, epoch: int, have: int, least: int, most: int) -> int:
        """Of a job that has so many GPUs now, in that epoch."""
        which = 1 if (job_id * _TURN) % 1.0 < self.frac else 0
        # A job may be further than any was when the table was made.
        epoch = min(epoch, len(self.costs[which]) - 1)
        asked = (which, epoch, have, least, most)
        found = self._found.get(asked)
        if found is None:
            found = self._found[asked] = self._cheapest(*asked)
        return found

    def _cheapest(self, which: int, epoch: int, have: int, least: int, most: int) -> int:
        cost, widths = self.costs[which][epoch], self.widths
        allowed = [i for i, k in enumerate(widths) if least <= k <= most]
        if not allowed:
            return least  # the next table has its widths
        extra = self.switches[which][widths.index(have)] if have in widths else self.starts[which]
        return widths[min(allowed, key=lambda i: (cost[i] + extra[i], widths[i] != have))]

    def to_dict(self) -> dict[str, Any]:
        """The table in plain types that JSON keeps."""
        arrays = {name: [_plain(a) for a in getattr(self, name)] for name in ("costs", "switches", "starts")}
        return {"widths": list(self.widths), "frac": self.frac, **arrays}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> _Table:
        """A table from what `to_dict` made."""
        costs, switches, starts = ([_array(a) for a in saved[name]] for name in ("costs", "switches", "starts"))
        pairs = ((costs[0], costs[1]), (switches[0], switches[1]), (starts[0], starts[1]))
        return cls(tuple(int(k) for k in saved["widths"]), *pairs, float(saved["frac"]))


def _sized(view: View) -> Iterator[JobState]:
    """All jobs that get widths: services do not."""
    return (s for s in (*view.running.values(), *view.waiting.values()) if s.job.kind != "service")


def _plain(values: Floats) -> list[Any]:
    """As lists; None where infinite."""
    plain = values.astype(object)
    plain[np.isinf(values)] = None
    return cast(list[Any], plain.tolist())


def _array(saved: list[Any]) -> Floats:
    values = np.array(saved, dtype=np.float64)  # None becomes NaN
    return np.where(np.isnan(values), np.inf, values)


@dataclass
class Boa(Sizing):
    """Every job gets the GPUs that make mean completion time smallest for a budget (arXiv 2602.01404, 2406.15560).

    The budget is the number of GPUs rented on average. From the rates at which jobs of each kind arrive, their sizes
    and their curves follows a table: the width of every kind in every epoch, restarts counted. Nobody queues; nodes are
    rented for what the widths add up to (`powering=rent`). Rates, sizes and curves are learnt while jobs run, and the
    table is computed anew, every `every_s` seconds at first and ever more rarely. A controller compares what is really
    paid, boot, idle and restarts included, with the budget, and makes GPUs dearer or cheaper so that the average comes
    out.

    A running job changes its width when what it saves by that, to its end, is more than the restart costs. Until
    something is known of a kind, its jobs start on one GPU and double while it is worth it. A budget below what the
    jobs need at their most efficient widths cannot be kept: they then run at those.

    When not to use it: on a cluster of your own, where idle GPUs save nothing.
    """

    budget: float = option(32.0, "GPUs to pay for on average")
    every_s: float = option(600.0, "seconds between computations of the widths, at first")
    rarest_s: float = option(1800.0, "seconds between computations of the widths, in the long run")
    horizon_s: float = option(28800.0, "GPUs are 24 times as dear when the budget of so many seconds is owed")
    widest: int = option(64, "no job gets more GPUs than this")
    known: bool = option(False, "curves were measured beforehand, nothing needs to be learnt")
    types: Sequence[JobType] = file_option(
        (), parse_types, "a file of [[type]] tables, as of `fairlead widths`: first estimates of rates and sizes"
    )
    trust_jobs: float = option(20.0, "first estimates count as much as so many jobs seen")
    resizes: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    adapts_batch: ClassVar[bool] = True
    no_width: ClassVar[str] = OVER_BUDGET
    _curves: Curves = field(init=False, repr=False)
    _arrivals: Arrivals = field(init=False, repr=False)
    _controller: BudgetController = field(init=False, repr=False)
    _tables: dict[KindKey, _Table] = field(default_factory=dict, init=False, repr=False)
    _widths: tuple[int, ...] = field(default=(), init=False, repr=False)
    _due_s: float = field(default=0.0, init=False, repr=False)
    _interval_s: float = field(default=0.0, init=False, repr=False)
    _infeasible: int = field(default=0, init=False, repr=False)
    _computed: int = field(default=0, init=False, repr=False)
    _counted: set[int] = field(default_factory=set, init=False, repr=False)
    """Jobs in the system, withdrawn ones included, that were counted when they came."""
    _primed: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("budget", "every_s", "rarest_s", "horizon_s", "widest"):
            value, may_be_zero = getattr(self, name), name == "budget" and not self.elastic
            if value < 0 or (value == 0 and not may_be_zero):
                raise ValueError(f"{name}={value:g}: {'0 or more' if may_be_zero else 'above 0'}")
        self._curves = Curves(known=self.known, adapts_batch=True)
        self._arrivals = Arrivals({t.name: t for t in self.types}, self.trust_jobs)
        self._controller = BudgetController(self.budget, self.horizon_s)
        self._interval_s = self.every_s

    # -- what the stack asks -----------------------------------------------------------------------------------------

    def allot(self, view: View) -> Mapping[int, int]:
        """Widths of those who came and those who have begun an epoch; of everybody when the table is new."""
        came, anew = self._catch_up(view)
        if anew:
            return {s.job.id: self._width(s, view) for s in _sized(view)}
        if not self._curves.kinds:
            return {}  # something happened to a node before the first job came
        moved = (*came, *view.changes.turned)
        return {s.job.id: self._width(s, view) for s in moved if s.job.id in view.running or s.job.id in view.waiting}

    def _catch_up(self, view: View) -> tuple[list[JobState], bool]:
        """Take note of what happened, and compute the table anew where that is due: who came, and whether it is new."""
        first = not self._widths
        if first:
            self._widths = usual_widths(view.cluster.node_gpus, min(self.widest, view.cluster.gpus))
        # A new BOA looks for those that came before it; one that was recalled, for those that came since.
        missed = () if self._primed else (s for s in _sized(view) if self._is_news(s))
        arrived = (s for s in view.changes.arrived if s.job.kind != "service")
        came = list(dict.fromkeys((*arrived, *missed)))
        self._primed = True
        self._take_note(view, came, everybody=first)
        due = view.now_s >= self._due_s or first or any(self._is_unheard(s) for s in came)
        if due and self._curves.kinds:
            self._compute(view)
            return came, True
        return came, False

    def _is_news(self, state: JobState) -> bool:
        return state.job.id not in self._counted or state.job.id in self._controller.away

    def _is_unheard(self, state: JobState) -> bool:
        """Whether the table has nothing for a job."""
        table = self._tables.get(self._curves.key(state.job))
        return table is None or state.job.min_gpus not in table.widths

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        """A part of it at once, where that gets clearly more done while nodes boot than the restart then loses."""
        part = max((k for k in self._widths if state.job.min_gpus <= k <= gpus), default=0)
        rental, node_gpus = view.cluster.rental, view.cluster.node_gpus
        if not part or rental is None or view.asleep | view.waking <= view.drained_nodes():
            return part
        assert view.epochs is not None
        speed = self._curves.row(state, view.epochs.done(state), (part, self._width(state, view)), node_gpus)
        gained_s = rental.boot_s * speed[0] / speed[1] if speed[1] > 0.0 else 0.0
        return part if gained_s > 2.0 * state.job.profile.restart_s else 0

    def wake_s(self, view: View) -> float | None:
        """The next computation, while there are jobs; none before the first that it sizes, which no service is."""
        return self._due_s if self._curves.kinds and (view.running or view.waiting) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The fits, and whether the budget was too small."""
        found = self._curves.notes()
        if self._infeasible:
            found += (
                f"the budget of {self._controller.budget:g} GPUs was below what the jobs need at their most"
                f" efficient widths, as far as known, at {self._infeasible} of {self._computed} computations",
            )
        return found

    # -- what is saved -----------------------------------------------------------------------------------------------

    def knowledge(self) -> dict[str, Any]:
        """Curves, counts, what is owed, and the table that widths are read from."""
        return {
            "kinds": [saved_kind.to_dict(kind) for kind in self._curves.kinds.values()],
            "arrivals": self._arrivals.to_list(),
            "controller": self._controller.to_dict(),
            "tables": [[*key, table.to_dict()] for key, table in self._tables.items()],
            "counted": sorted(self._counted),
            **{name: getattr(self, f"_{name}") for name in _NUMBERS},
        }

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """All that was learnt outlives the jobs; of those counted only the ones that may still come are kept."""
        with reading("boa", saved, "kinds", "arrivals", "controller", "tables", "counted", *_NUMBERS):
            self._curves.recalled(saved_kind.from_dict(kind) for kind in saved["kinds"])
            self._arrivals.recall(saved["arrivals"])
            self._controller.recall(saved["controller"])
            self._tables = {(str(name), int(batch)): _Table.from_dict(t) for name, batch, t in saved["tables"]}
            self._counted = {int(j) for j in saved["counted"] if view.here(j) or j in self._controller.away}
            for name, kind in _NUMBERS.items():
                setattr(self, f"_{name}", kind(saved[name]))
        if self._curves.kinds:
            self._widths = usual_widths(view.cluster.node_gpus, min(self.widest, view.cluster.gpus))
        for state in (*view.running.values(), *view.waiting.values()):
            if self._curves.key(state.job) in self._curves.kinds:
                self._curves.kind(state.job)  # it brings its profile

    # -- learning ----------------------------------------------------------------------------------------------------

    def _take_note(self, view: View, arrived: Sequence[JobState], *, everybody: bool) -> None:
        changes = view.changes
        for state in arrived:
            self._curves.kind(state.job)
            # Who has run, or is counted, was withdrawn and is back: no new arrival. At first everybody is one.
            new = state.job.id not in self._counted and (everybody or not state.starts)
            self._counted.add(state.job.id)
            self._arrivals.arrived(self._curves.key(state.job), state, new=new)
            self._controller.back(state)
        for state in changes.withdrawn:
            if not view.here(state.job.id):
                self._controller.withdrawn(state)
        for state in changes.ended:
            self._counted.discard(state.job.id)
            self._controller.ended(state)
            if (key := self._curves.key(state.job)) in self._curves.kinds:
                self._arrivals.ended(key, state, self._curves.kind(state.job))
        looked = view.running.values() if view.now_s >= self._due_s else changes.turned
        if self._curves.look(looked, view):
            self._due_s = min(self._due_s, view.now_s + _LEARNING_S)

    # -- the table ---------------------------------------------------------------------------------------------------

    def _compute(self, view: View) -> None:
        """The table anew, from what is known by now."""
        self._computed += 1
        self._due_s = view.now_s + self._interval_s
        self._interval_s = min(self._interval_s * 1.1, self.rarest_s)
        self._look(view)
        types, keys = [], []
        for key, kind in self._curves.kinds.items():
            types.append(self._type(key, kind, view))
            keys.append(key)
        try:
            solved = solve_epochs(types, self._controller.budget * self._controller.jobs_per_gpu, tolerance=1e-6)
            high, low = solved.prices
            prices, frac = (self._controller.price(high), self._controller.price(low)), solved.frac
        except InfeasibleError:
            self._infeasible += 1
            prices, frac = (self._controller.price(_THRIFTY),) * 2, 0.0
        paths = Paths(types)
        (cost, switch), (cost_fast, switch_fast) = (paths.to_go(price) for price in prices)
        for i, key in enumerate(keys):
            n = len(types[i].widths)
            self._tables[key] = _Table(
                types[i].widths,
                (cost[i, :, :n], cost_fast[i, :, :n]),
                (switch[i, :n, :n], switch_fast[i, :n, :n]),
                (paths.start(prices[0])[i, :n], paths.start(prices[1])[i, :n]),
                frac,
            )

    def _look(self, view: View) -> None:
        """Measure what starts cost and what is owed."""
        self._controller.look(view)

    def _type(self, key: KindKey, kind: Kind, view: View) -> EpochType:
        """A kind as the solver sees it."""
        node_gpus = view.cluster.node_gpus
        least, widest = self._arrivals.bounds(key)
        widths = tuple(sorted({*(k for k in self._widths if min(least) <= k <= widest), *least}))
        most = max(kind.limit, max(least))
        # Sizes are in seconds at the least width, whatever that is: only ratios of speeds count.
        rows = []
        sizes_s = []
        for epoch in range(kind.epochs):
            speeds = [kind.goodput(epoch, k, packed_nodes(k, node_gpus)) if k <= most else 0.0 for k in widths]
            base = next((s for s in speeds if s > 0.0), 1.0)
            rows.append(tuple(s / base for s in speeds))
            samples = self._arrivals.mean_size_s(key) if kind.profile.training is None else kind.samples_of(epoch)
            sizes_s.append(samples / base)
        rate = self._arrivals.rate_per_s(key, view.now_s)
        restart_s, start_s = kind.profile.restart_s, self._controller.start_s
        return EpochType(kind.profile.name, rate, widths, tuple(sizes_s), tuple(rows), restart_s, start_s)

    def _width(self, state: JobState, view: View) -> int:
        """What the table says of a job where it is now."""
        assert view.epochs is not None
        job = state.job
        table = self._tables[self._curves.key(job)]
        return table.width(job.id, view.epochs.done(state), len(state.gpus), job.min_gpus, job.max_gpus)
