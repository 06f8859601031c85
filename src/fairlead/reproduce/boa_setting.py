"""The traces, clusters and runs of the comparison with BOA."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import polars as pl

from fairlead import traces
from fairlead.errors import InputError
from fairlead.measure.pollux_data import read_training
from fairlead.model.adaptive_batch import AdaptiveBatch
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.profile import Amdahl, Profile
from fairlead.model.training import packed_nodes, read_goodput_tables
from fairlead.policy.sizing.curves import usual_widths
from fairlead.policy.sizing.epoch_budget import EpochType, Paths, solve_epochs
from fairlead.sim.run import Run
from fairlead.sim.world import World
from fairlead.traces import Trace

NODE_GPUS = 4
RESTART_S = 30.0
WIDEST = 64
TESTBED_S = 26752.0
"""From the start to the last arrival of the testbed's trace; rates are counts over it."""
TESTBED_BUDGETS = (32.0, 48.0, 56.0, 68.0)
STREAM_PER_H = 43.0
"""Arrivals an hour: with them the stream needs about 200 GPUs at least."""
DECLARED_PER_H = 60.0
DECLARED_MEAN_S = 9000.0
PARALLEL = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Amdahl fractions of the stream with declared curves, in equal parts."""
BOA, POLLUX = "BOA", "Pollux, autoscaled"
LEARNING = ", learning"
"""After the name of a line: its curves are fitted while jobs run, not measured beforehand."""
TIRESIAS = "ordering=las:queues=2:thresholds=57600"
OPTIMUS = "Optimus, fixed"
FIXED = {
    "Pollux, fixed": "sizing=pollux:known=true",
    "Sia, fixed": "sizing=sia:known=true",
    OPTIMUS: "sizing=optimus",
    "equal shares, fixed": "sizing=equal",
    "Tiresias, fixed": TIRESIAS,
}
STATIC = "one width, rented"
BASELINES = (POLLUX, *FIXED, STATIC)


@dataclass(frozen=True, slots=True)
class Scale:
    """How many jobs and traces are run."""

    stream_jobs: int = 10_000
    traces: tuple[int, ...] = (1, 2, 3, 4, 5)
    on_64: tuple[int, ...] = (1, 2, 3, 4, 5)
    promise_jobs: int = 120_000
    thin: int = 1
    """Of the knobs of every sweep only each so many-th."""
    learning: bool = True
    """Whether policies that fit curves while jobs run are run as well: these take longest."""


FULL = Scale()


@dataclass(frozen=True)
class Scene:
    """A trace, the nodes that can be rented for it, and how far each policy's knob is turned."""

    name: str
    trace: Trace
    nodes: int
    budgets: tuple[float, ...]
    fixed: tuple[int, ...]
    """Nodes of the clusters that are owned."""
    optimus: tuple[int, ...] = ()
    """The same for Optimus: it takes up to a minute a run, and is never near the best."""
    wanted: float | None = None
    """How much lower BOA's mean JCT should be than the best baseline's."""
    judged: tuple[float, ...] = ()
    """The budgets at which that is looked at."""
    learnt: tuple[float, ...] = ()
    """The budgets at which curves are also learnt."""
    targets: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    learnt_targets: tuple[float, ...] = ()
    widths: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 32)
    rental: Rental = field(default_factory=Rental)
    restart_s: float = RESTART_S

    @property
    def cluster(self) -> Cluster:
        """The cluster that can be rented in this scene."""
        return parse_shape(f"{self.nodes}x{NODE_GPUS}:T4").rented(self.rental)

    @property
    def span_s(self) -> float:
        """Seconds until the last arrival."""
        return float(self.trace.frame["submit_s"].max())  # type: ignore[arg-type]

    def run(self, policy: str, nodes: int | None = None) -> Run:
        """A policy on rented nodes, or on so many owned ones."""
        cluster = self.cluster if nodes is None else parse_shape(f"{nodes}x{NODE_GPUS}:T4")
        return Run(self.trace, cluster, policy, World(restart_s=self.restart_s))

    def types(self, widths: Sequence[int], rescale_s: float = 0.0, start_s: float = 0.0) -> list[EpochType]:
        """The profiles, each with its rate over the length of the trace."""
        grouped = self.trace.frame.group_by("profile").agg(pl.len().alias("jobs"), pl.col("duration_s").mean())
        found = []
        for name, jobs, mean_s in grouped.sort("profile").iter_rows():
            profile = self.trace.profile(name)
            sizes_s, speedups = _epochs(profile, mean_s, widths)
            found.append(
                EpochType(name, jobs / self.span_s, tuple(widths), sizes_s, speedups, rescale_s, start_s)
            )  # fmt: skip
        return found

    @cached_property
    def _free(self) -> list[EpochType]:
        return self.types(range(1, WIDEST + 1))

    @cached_property
    def least_gpus(self) -> float:
        """What the jobs use on average at their most efficient widths, if nothing boots and nobody restarts."""
        return _least(self._free)

    @cached_property
    def least_booted_gpus(self) -> float:
        """The same where every GPU that a job starts on or grows by boots first: no smaller budget can be kept."""
        return _least(self.types(usual_widths(NODE_GPUS, WIDEST), self.restart_s, self.rental.boot_s))

    def bound_jct_s(self, gpu_hours: float) -> float:
        """The mean JCT that no policy can beat with so many GPU-hours: any widths, no boot, no restart, no wait."""
        budget = gpu_hours * 3600.0 / self.span_s
        return solve_epochs(self._free, budget, tolerance=1e-9).mean_jct_s if budget >= self.least_gpus else math.inf


def _least(types: Sequence[EpochType]) -> float:
    rates = np.array([t.arrival_rate_per_s for t in types])
    return float(rates @ [p.gpu_s for p in Paths(types).best(1e12)])


def _epochs(
    profile: Profile, mean_s: float, widths: Sequence[int]
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """(size, speedup at each width) of each epoch, whatever the unit: only their ratio counts."""
    training = profile.training
    if training is None:
        return (mean_s,), (tuple(profile.speedup(k) for k in widths),)
    epochs = range(len(training.samples))
    rows = [[training.goodput_at(e, k, packed_nodes(k, NODE_GPUS)) for k in widths] for e in epochs]
    return training.samples, tuple(map(tuple, rows))


# -- the scenes -------------------------------------------------------------------------------------------------------

DECLARED = "10,000 jobs with declared curves"
STREAM = "10,000 jobs drawn from Pollux's traces"
TESTBED_T4, TESTBED_G4DN = "testbed trace, T4 applications", "testbed trace, measured on g4dn"


def scenes(data: Path | None, scale: Scale) -> dict[str, Scene]:
    """By name; without data only the stream whose curves are declared."""
    found = [_declared_scene(scale)]
    if data is not None:
        found += [_stream_scene(data, scale), *_testbed_scenes(data, scale), *_trace_scenes(data, scale)]
    return {s.name: s if scale.thin == 1 else _thinned(s, scale.thin) for s in found}


def _thinned(scene: Scene, step: int) -> Scene:
    return replace(
        scene, budgets=tuple(sorted({*scene.budgets[::step], *scene.judged})), fixed=scene.fixed[::step],
        targets=scene.targets[::step], widths=scene.widths[1::step], learnt=scene.learnt[:1],
        learnt_targets=scene.learnt_targets[:1],
    )  # fmt: skip


def _file(data: Path, *parts: str) -> Path:
    path = data.joinpath(*parts)
    if not path.exists():
        raise InputError(f"{path} not found", hint="--data names the folder that holds pollux/ and boa/")
    return path


@cache
def training(data: Path) -> dict[str, AdaptiveBatch]:
    """Read once, so that all runs share what is worked out of them."""
    return read_training(_file(data, "pollux"))


def _submitted(data: Path, number: int) -> Trace:
    return traces.load(_file(data, "pollux", "workloads", f"workload-{number}.csv"))


def pollux_trace(data: Path, number: int) -> Trace:
    """One of Pollux's traces, its jobs trained as was measured."""
    return _submitted(data, number).training(training(data), NODE_GPUS)


def _trace_scenes(data: Path, scale: Scale) -> list[Scene]:
    return [
        Scene(
            f"Pollux's trace {number}",
            pollux_trace(data, number),
            nodes=64,
            budgets=(130.0, 140.0, 150.0, 165.0, 180.0, 200.0, 230.0, 260.0),
            judged=(150.0, 180.0),
            fixed=(10, 12, 14, 16, 20, 24, 32, 40, 48),
            optimus=(10, 20, 48) if number == 1 and scale.learning else (),
            learnt=(150.0,) if number == 1 and scale.learning else (),
            learnt_targets=(0.4, 0.5, 0.6) if number == 1 and scale.learning else (),
        )
        for number in scale.traces
    ]


def _testbed_scenes(data: Path, scale: Scale) -> list[Scene]:
    samples = {name: app.samples for name, app in training(data).items()}
    tables = read_goodput_tables(_file(data, "boa", "goodput_g4dn.csv"), samples)
    trace = traces.load(_file(data, "boa", "workload-1-cbd.csv"))
    common = Scene(
        TESTBED_T4,
        trace.training(training(data), NODE_GPUS),
        nodes=64,
        budgets=(26.0, 28.0, 30.0, *TESTBED_BUDGETS, 38.0, 42.0, 80.0, 100.0),
        judged=TESTBED_BUDGETS,
        fixed=(5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30),
        optimus=(5, 8, 12, 20) if scale.learning else (),
        wanted=1.6,
        learnt=TESTBED_BUDGETS if scale.learning else (),
        learnt_targets=(0.3, 0.5, 0.7, 0.9) if scale.learning else (),
    )
    g4dn = replace(
        common,
        name=TESTBED_G4DN,
        trace=trace.training(tables, NODE_GPUS),
        budgets=(34.0, 36.0, *TESTBED_BUDGETS, 40.0, 44.0, 80.0, 100.0),
        targets=(0.2, 0.25, *common.targets),
    )
    return [common, g4dn]


def _stream_scene(data: Path, scale: Scale) -> Scene:
    five = [_submitted(data, number) for number in range(1, 6)]
    rows, rng = pl.concat([t.frame for t in five]), random.Random(1)
    drawn = rows[[rng.randrange(rows.height) for _ in range(scale.stream_jobs)]]
    submit_s = _poisson(rng, scale.stream_jobs, STREAM_PER_H)
    numbered = drawn.with_columns(
        pl.int_range(pl.len()).cast(pl.String).alias("job_id"), pl.Series("submit_s", submit_s)
    )
    trace = Trace.from_columns(numbered, profiles=five[0].profiles, source=STREAM)
    return Scene(
        STREAM,
        trace.training(training(data), NODE_GPUS),
        nodes=256,
        budgets=(210.0, 230.0, 260.0, 300.0, 360.0),
        judged=(230.0, 260.0, 300.0),
        fixed=(55, 65, 80),
        wanted=2.0,
        learnt=(260.0,) if scale.learning else (),
        targets=(0.4, 0.5, 0.6, 0.7, 0.8),
        learnt_targets=(0.6, 0.7) if scale.learning else (),
        widths=(1, 4, 8, 16, 32),
    )


def _poisson(rng: random.Random, jobs: int, per_h: float) -> list[float]:
    clock_s, found = 0.0, []
    for _ in range(jobs):
        clock_s += rng.expovariate(per_h / 3600.0)
        found.append(clock_s)
    return found


def _declared_scene(scale: Scale) -> Scene:
    rng = random.Random(2)
    sigma = 1.0
    profiles = {f"amdahl-{f}": Profile(f"amdahl-{f}", speedup=Amdahl(f), restart_s=RESTART_S) for f in PARALLEL}
    names = list(profiles)
    submit_s = _poisson(rng, scale.stream_jobs, DECLARED_PER_H)
    rows = [
        (str(n), at, 1, rng.lognormvariate(math.log(DECLARED_MEAN_S) - sigma**2 / 2, sigma), rng.choice(names), 1, 64)
        for n, at in enumerate(submit_s)
    ]
    columns = ("job_id", "submit_s", "gpus", "duration_s", "profile", "min_gpus", "max_gpus")
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    return Scene(
        DECLARED,
        Trace.from_columns(frame, profiles=profiles, source=DECLARED),
        nodes=256,
        budgets=(180.0, 220.0, 300.0, 400.0, 600.0),
        judged=(220.0, 300.0, 400.0),
        fixed=(50, 70, 95),
        wanted=2.0,
        targets=(0.4, 0.5, 0.6, 0.7, 0.8),
        widths=(1, 2, 4, 8, 16),
    )
