"""What Pollux, Sia and the like have in common: every interval all widths are chosen anew, by goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.saved_state import reading
from fairlead.policy.sizing import saved_kind
from fairlead.policy.sizing.allocate import Allocation
from fairlead.policy.sizing.curves import Curves, all_widths
from fairlead.policy.stages import Sizing, option
from fairlead.policy.view import JobState, View

Floats = NDArray[np.float64]


@dataclass
class Interval(Sizing):
    """Asked every `interval_s` seconds: all active jobs, and the GPUs that are on."""

    interval_s: float = option(60.0, "seconds between decisions")
    widest: int = option(64, "no job gets more GPUs than this")
    known: bool = option(False, "curves were measured beforehand, nothing needs to be learnt")
    resizes: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    adapts_batch: ClassVar[bool] = True
    _curves: Curves = field(init=False, repr=False)
    _due_s: float = field(default=0.0, init=False, repr=False)
    _widths: tuple[int, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.widest < 1:
            raise ValueError(f"interval_s={self.interval_s:g}, widest={self.widest}: above 0")
        self._curves = Curves(known=self.known, adapts_batch=self.adapts_batch)

    def choose(self, states: Sequence[JobState], gpus: int, view: View) -> list[int]:
        """A width for each job; together no more than so many GPUs."""
        raise NotImplementedError

    def allot(self, view: View) -> Mapping[int, int]:
        """Everybody's width, at the moments when it is decided."""
        if view.now_s < self._due_s:
            return {}
        self._due_s = (view.now_s // self.interval_s + 1.0) * self.interval_s
        self._curves.look(view.running.values(), view)
        active = (*view.running.values(), *view.waiting.values())
        states = sorted((s for s in active if s.job.kind != "service"), key=lambda s: s.job.id)
        self._widths = self.widths_of(states, view)
        if not states:
            return {}
        return dict(zip([s.job.id for s in states], self.choose(states, self._gpus(view), view), strict=True))

    def widths_of(self, states: Sequence[JobState], view: View) -> tuple[int, ...]:
        """The widths to choose from: those that pack well, and the least of each job."""
        usual = all_widths(view.cluster.node_gpus, min(self.widest, view.cluster.gpus))
        return tuple(sorted({*usual, *(s.job.min_gpus for s in states)}))

    def wake_s(self, view: View) -> float | None:
        """The next interval, while there are jobs."""
        return self._due_s if view.running or view.waiting else None

    def knowledge(self) -> dict[str, Any]:
        """The curves, and when it decides next."""
        return {"due_s": self._due_s, "kinds": [saved_kind.to_dict(kind) for kind in self._curves.kinds.values()]}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """All of it: curves outlive the jobs that they were learnt from."""
        with reading("a sizing by goodput", saved, "due_s", "kinds"):
            self._due_s = float(saved["due_s"])
            self._curves.recalled(saved_kind.from_dict(kind) for kind in saved["kinds"])

    @property
    def notes(self) -> tuple[str, ...]:
        """The quality of the fits."""
        return self._curves.notes()

    def _gpus(self, view: View) -> int:
        """GPUs to share out, which services have not; nodes that sleep are on soon where jobs want them."""
        asleep = () if self._sized(view) else view.asleep | view.waking
        served = sum(len(view.usable(s.gpus)) for s in view.running.values() if s.job.kind == "service")
        return view.up_gpus + view.usable_gpus(asleep) - served

    def _sized(self, view: View) -> bool:
        """Whether it also says how many nodes there are."""
        return False

    def _goodputs(self, states: Sequence[JobState], view: View) -> Floats:
        """Of each job at each width in its present epoch."""
        node_gpus = view.cluster.node_gpus
        return np.array([self._curves.row(s, self._epoch(s, view), self._widths, node_gpus) for s in states])

    def _epoch(self, state: JobState, view: View) -> int:
        """Where a job is; 0 where nothing is known of its epochs."""
        assert view.epochs is not None
        return view.epochs.done(state) if self._curves.kind(state.job).epochs > 1 else 0


def restart_factor(state: JobState, delay_s: float, now_s: float) -> float:
    """What a job that is restarted now keeps of its speed: the more restarts and the younger, the less."""
    age_s = now_s - state.job.submit_s
    restarts = max(0, state.starts - 1)
    return max(age_s - restarts * delay_s, 0.0) / (age_s + delay_s) if age_s + delay_s > 0.0 else 1.0


def power_mean_costs(
    states: Sequence[JobState],
    speedups: Floats,
    widths: Sequence[int],
    p: float,
    now_s: float,
) -> Floats:
    """Per job the cost of waiting, then of each width: speedup^p, p < 0, restarts counted; infinite if not allowed."""
    least = 1e-3
    factors = np.array([restart_factor(s, max(s.job.profile.restart_s, 1.0), now_s) for s in states])
    scaled = speedups * factors[:, None]
    for i, state in enumerate(states):
        have = len(state.gpus)
        if have in widths:
            at = widths.index(have)
            scaled[i, at] = speedups[i, at]
    costs = np.where(speedups > 0.0, (scaled + least) ** p, np.inf)
    return np.column_stack([np.full(len(states), least**p), costs])


def best_widths(costs: Floats, widths: Sequence[int], gpus: int) -> Allocation:
    """The exact optimum for every number of GPUs up to that."""
    return Allocation(costs, (0, *widths), gpus)
