"""Training that chooses its batch: measured step times, gradient statistics by epoch, and the goodput that follows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairlead.errors import InputError
from fairlead.model.goodput import (
    GRID_POINTS,
    Array,
    BatchLimits,
    Best,
    GradientStats,
    PerfParams,
    StepModel,
    best_batch,
)
from fairlead.model.profile import Table

FORMAT = "fairlead-goodput-1"


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """One epoch: its samples at the initial batch, and the gradient's noise as measured at some total batches."""

    samples: float
    batches: tuple[float, ...]
    stats: tuple[GradientStats, ...]

    def at(self, total_batch: ArrayLike) -> tuple[Array, Array]:
        """(var, sqr), linear between the batches and flat beyond them."""
        var, sqr = [s.var for s in self.stats], [s.sqr for s in self.stats]
        asked = np.asarray(total_batch, float)
        return np.interp(asked, self.batches, var), np.interp(asked, self.batches, sqr)


class StepTimes:
    """Measured step times by nodes, replicas and local batch, linear between them.

    A curve is (local batches, step_s, sync_s). Node counts that were not measured are between the nearest that were,
    at the same replicas per node. Outside the measurements nothing is known.
    """

    def __init__(self, curves: Mapping[tuple[int, int], tuple[Sequence[float], Sequence[float], Sequence[float]]]):
        self._curves = {at: tuple(np.asarray(c, float) for c in curve) for at, curve in curves.items()}
        self._replicas: dict[int, list[int]] = {}
        for nodes, replicas in sorted(self._curves):
            self._replicas.setdefault(nodes, []).append(replicas)
        self._nodes = sorted(self._replicas)

    def knows(self, replicas: int, nodes: int) -> bool:
        """Whether this placement lies among those measured."""
        around = _near(self._nodes, nodes)
        return bool(around) and all(_near(self._replicas[n], replicas * n / nodes) for n, _ in around)

    def iteration_s(self, replicas: int, nodes: int, local_batch: ArrayLike, accumulation: ArrayLike) -> Array:
        """The step, and for each accumulation the step without its synchronisation."""
        local, again = np.asarray(local_batch, float), np.asarray(accumulation, float)
        step, sync = np.zeros(local.shape), np.zeros(local.shape)
        if not self.knows(replicas, nodes):
            return np.asarray(step + np.inf)
        for n, node_weight in _near(self._nodes, nodes):
            for k, weight in _near(self._replicas[n], replicas * n / nodes):
                batches, step_s, sync_s = self._curves[n, k]
                step += node_weight * weight * np.interp(local, batches, step_s, left=np.inf, right=np.inf)
                sync += node_weight * weight * np.interp(local, batches, sync_s)
        return np.asarray((again + 1.0) * step - again * sync)


def _near(measured: Sequence[int], wanted: float) -> list[tuple[int, float]]:
    """The neighbours of `wanted` with their weights; one if it was measured, none outside."""
    i = bisect_left(measured, wanted)
    if i < len(measured) and measured[i] == wanted:
        return [(measured[i], 1.0)]
    if i in (0, len(measured)):
        return []
    share = (wanted - measured[i - 1]) / (measured[i] - measured[i - 1])
    return [(measured[i - 1], 1.0 - share), (measured[i], share)]


@dataclass(frozen=True, slots=True)
class Steps:
    """What is seen of the iterations of a running job: enough to fit the goodput model to them."""

    limits: BatchLimits
    batch: int
    """The batch that it keeps; 0 where it chooses one."""
    local_batch: int
    accumulation: int
    step_s: float
    sync_s: float
    stats: GradientStats


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveBatch:
    """All that decides how fast jobs train that choose the best batch in every epoch, as elastic ones do."""

    name: str
    params: PerfParams
    limits: BatchLimits
    epochs: tuple[Epoch, ...]
    measured: StepTimes | None = None
    """Used before `params` where it knows the placement."""
    grid_points: int = GRID_POINTS
    _found: dict[tuple[int, int, int], Best] = field(default_factory=dict, init=False, repr=False)

    def modelled(self) -> AdaptiveBatch:
        """The same by the equations alone."""
        return replace(self, measured=None)

    @property
    def samples(self) -> tuple[float, ...]:
        """The samples of each epoch."""
        return tuple(e.samples for e in self.epochs)

    def steps_model(self, replicas: int, nodes: int) -> StepModel:
        """What says how long its iterations take on that many replicas and nodes."""
        if self.measured is not None and self.measured.knows(replicas, nodes):
            return self.measured
        return self.params

    def best_at(self, epoch: int, replicas: int, nodes: int) -> Best:
        """The best batch in an epoch (from 0)."""
        if (found := self._found.get((epoch, replicas, nodes))) is None:
            if not 0 <= epoch < len(self.epochs):
                raise InputError(f"{self.name} has no epoch {epoch}", hint=f"0 to {len(self.epochs) - 1}")
            steps = self.steps_model(replicas, nodes)
            found = best_batch(steps, self.epochs[epoch], self.limits, replicas, nodes, points=self.grid_points)
            self._found[epoch, replicas, nodes] = found
        return found

    def goodput_at(self, epoch: int, replicas: int, nodes: int) -> float:
        """Samples per second that count, at the best batch; 0 where no batch feeds so many replicas."""
        return self.best_at(epoch, replicas, nodes).goodput

    def steps_at(self, epoch: int, replicas: int, nodes: int) -> Steps:
        """What its iterations look like at the best batch."""
        best = self.best_at(epoch, replicas, nodes)
        return self.steps_with(epoch, replicas, nodes, best.local_batch, best.accumulation)

    def steps_with(self, epoch: int, replicas: int, nodes: int, local: int, again: int, batch: int = 0) -> Steps:
        """The same with a given local batch and number of accumulation steps."""
        model = self.steps_model(replicas, nodes)
        step_s = float(model.iteration_s(replicas, nodes, local, again))
        # One accumulation step more costs one gradient; the rest of an iteration is the wait for the others.
        gradient_s = float(model.iteration_s(replicas, nodes, local, again + 1)) - step_s
        var, sqr = self.epochs[epoch].at(replicas * local * (again + 1))
        sync_s = min(max(0.0, step_s - (again + 1) * gradient_s), step_s * (1.0 - 1e-9))
        return Steps(self.limits, batch, local, again, step_s, sync_s, GradientStats(float(var), float(sqr)))

    def speedup_table(self, epoch: int, widths: Iterable[int], gpus_per_node: int) -> Table:
        """s(k) in an epoch on as few nodes as will do; widths that no batch feeds are left out."""
        at = {k: self.goodput_at(epoch, k, math.ceil(k / gpus_per_node)) for k in sorted({1, *widths})}
        fed = {k: speed for k, speed in at.items() if speed > 0.0}
        if 1 not in fed:
            raise InputError(f"{self.name}: no allowed batch for one GPU, so no speedup over one")
        return Table(tuple(map(float, fed)), tuple(speed / fed[1] for speed in fed.values()))


def adaptive_batches_from(value: Mapping[str, Any]) -> dict[str, AdaptiveBatch]:
    """By profile, from a table of applications, epochs and steps; `measure.pollux_data` makes one."""
    if value.get("format") != FORMAT:
        raise InputError(f"goodput table: format is {value.get('format')!r}, expected {FORMAT!r}")
    epochs: dict[str, list[Epoch]] = {}
    steps: dict[str, dict[tuple[int, int], tuple[list[float], list[float], list[float]]]] = {}
    batches = {a["name"]: (a["total_batches"], a["local_batches"]) for a in value["applications"]}
    for name, samples, var, sqr in value["epochs"]:
        stats = tuple(GradientStats(v, s) for v, s in zip(var, sqr, strict=True))
        epochs.setdefault(name, []).append(Epoch(samples, tuple(batches[name][0]), stats))
    for name, nodes, replicas, step_s, sync_s in value["steps"]:
        steps.setdefault(name, {})[nodes, replicas] = (batches[name][1][: len(step_s)], step_s, sync_s)
    return {
        a["name"]: AdaptiveBatch(
            a["name"],
            PerfParams(**a["params"]),
            BatchLimits(**a["limits"]),
            tuple(epochs[a["name"]]),
            StepTimes(steps[a["name"]]),
        )
        for a in value["applications"]
    }
