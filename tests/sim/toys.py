"""Small elastic worlds: an application with epochs, a sizing that follows a script, failures at given moments."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fairlead.model.adaptive_batch import AdaptiveBatch, Epoch
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.goodput import BatchLimits, GradientStats, PerfParams
from fairlead.model.training import GoodputTable, Training
from fairlead.policy.ordering.fifo import Fifo
from fairlead.policy.placing.packed import Packed
from fairlead.policy.sharing.exclusive import Exclusive
from fairlead.policy.stack import Stack
from fairlead.policy.stages import Powering, Sizing
from fairlead.policy.view import JobState, View
from fairlead.traces.trace import Trace
from tests.conftest import make_trace

PARAMS = PerfParams(alpha_c=0.1, beta_c=0.01, alpha_r=0.02, beta_r=0.003, alpha_n=0.08, beta_n=0.005, gamma=2.0)
LIMITS = BatchLimits(initial=32, max_total=1024, local_min=8, local_max=64)
# The gradient gets noisier, so that larger batches, and more GPUs, pay later on.
NOISES = (0.5, 3.0, 20.0)


def toy_app(name: str = "toy", samples: Sequence[float] = (3000.0, 5000.0, 4000.0)) -> AdaptiveBatch:
    """By the equations, with an epoch for each number of samples."""
    epochs = (Epoch(n, (1.0,), (GradientStats(NOISES[i % 3], 0.5),)) for i, n in enumerate(samples))
    return AdaptiveBatch(name, PARAMS, LIMITS, tuple(epochs))


# Two epochs: 100 samples a second on one GPU in the first, 50 in the second, where more GPUs help more.
TABLE = GoodputTable(
    "table", (6000.0, 6000.0), (1, 2, 4, 8), ((100.0, 150.0, 200.0, 250.0), (50.0, 100.0, 150.0, 200.0))
)


def elastic_trace(
    training: Training | None, jobs: Sequence[tuple[float, int, float]], widest: int = 8, node_gpus: int = 4
) -> Trace:
    """Jobs of one application that run on 1 to `widest` GPUs."""
    name = training.name if training is not None else "generic"
    n = len(jobs)
    trace = make_trace(jobs, profile=[name] * n, min_gpus=[1] * n, max_gpus=[widest] * n)
    return trace.training({name: training}, node_gpus) if training is not None else trace


def rented(shape: str, boot_s: float = 0.0, minimum_s: float = 0.0, step_s: float = 1.0) -> Cluster:
    return parse_shape(shape).rented(Rental(boot_s, minimum_s, step_s))


@dataclass
class Script(Sizing):
    """Gives out the widths that are written down, when their moment has come."""

    lines: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """(moment, width by job); those of jobs that have ended are skipped."""
    part: bool = False
    """Whether jobs take fewer GPUs than they were given."""
    kept: list[tuple[float, int | None]] = field(default_factory=list)
    """(moment, how many nodes to have from then on)."""
    resizes: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    adapts_batch: ClassVar[bool] = True

    def allot(self, view: View) -> Mapping[int, int]:
        widths: dict[int, int] = {}
        while self.lines and self.lines[0][0] <= view.now_s:
            widths.update(self.lines.pop(0)[1])
        return {j: k for j, k in widths.items() if j in view.running or j in view.waiting}

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        return min(gpus, state.job.max_gpus) if self.part else 0

    def nodes(self, view: View) -> int | None:
        return next((n for moment, n in reversed(self.kept) if moment <= view.now_s), None)

    def wake_s(self, view: View) -> float | None:
        moments = [m for m, _ in (*self.lines, *self.kept) if m > view.now_s]
        return min(moments, default=None)


@dataclass
class Whims(Sizing):
    """Widths drawn at random, for some jobs, at random moments; everybody gets one in the end."""

    seed: int = 0
    partial: float = 0.5
    resizes_nodes: bool = False
    resizes: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    adapts_batch: ClassVar[bool] = True
    _due_s: float = 0.0
    _given: dict[int, int] = field(default_factory=dict)
    _nodes: int | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def allot(self, view: View) -> Mapping[int, int]:
        rng, found = self.rng, {}
        again = view.now_s >= self._due_s
        if again:
            self._due_s = view.now_s + rng.choice((1.0, 20.0, 200.0))
            if self.resizes_nodes:
                self._nodes = rng.randrange(1, len(view.cluster.nodes) + 1)
        for job_id, state in sorted((*view.running.items(), *view.waiting.items())):
            # Whoever waits by its wish is given another one soon; the others keep theirs until a whim.
            if job_id not in self._given or (again and (not self._given[job_id] or rng.random() < 0.2)):
                most = min(state.job.max_gpus, view.cluster.gpus)
                draw = rng.randrange(state.job.min_gpus, most + 1)
                found[job_id] = self._given[job_id] = 0 if rng.random() < 0.1 else draw
        return found

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        least, most = state.job.min_gpus, min(gpus, state.job.max_gpus)
        return self.rng.randrange(least, most + 1) if most >= least and self.rng.random() < self.partial else 0

    def nodes(self, view: View) -> int | None:
        return self._nodes

    def wake_s(self, view: View) -> float | None:
        return self._due_s if view.running or view.waiting else None


def stack_of(sizing: Sizing, powering: Powering | None = None) -> Stack:
    return Stack(sizing, Fifo(), Exclusive(), Packed(), powering)


class Planned:
    """Failures and repairs at given moments, in place of the random ones."""

    def __init__(self, events: Sequence[tuple[float, int, bool]]) -> None:
        self._events = sorted(events)

    @property
    def next_s(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def pop(self) -> tuple[int, bool]:
        _, node, down = self._events.pop(0)
        return node, down
