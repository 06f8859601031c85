"""What EaCO's comparison runs on: the paper's tables, what is true of jobs that share, traces and clusters."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fairlead import traces
from fairlead.errors import InputError
from fairlead.model.cluster import DEFAULT_NODE_BASE_W, DEFAULT_NODE_SLEEP_W, Cluster, parse_shape
from fairlead.model.interference import Interference, built_in, prior
from fairlead.model.profile import profile_named
from fairlead.policy import registry
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.result import Result
from fairlead.sim.run import Run
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces import Trace

Key = tuple[object, ...]
GPUS = 8
"""Of a node; every job of the paper has a whole node."""
EPOCHS = 90
"""Of a whole training in the paper's measurements."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the paper's tables: a set of jobs on one node of eight V100."""

    models: tuple[str, ...]
    power_w: float
    energy_kwh: float
    jct_h: float

    @property
    def name(self) -> str:
        """The set as people write it, with plus signs."""
        return "+".join(self.models)


_J1, _J2, _J3, _J4 = MODELS = ("AlexNet", "ResNet-18", "ResNet-50", "VGG-16")
MEASURED = (
    Measured((_J1,), 712, 24.73, 34.76),
    Measured((_J2,), 959, 33.69, 35.13),
    Measured((_J3,), 1330, 47.87, 36.01),
    Measured((_J4,), 1533, 55.38, 36.13),
    Measured((_J1, _J3), 1390, 50.93, 36.63),
    Measured((_J1, _J4), 1506, 54.97, 36.51),
    Measured((_J2, _J4), 1644, 60.84, 37.01),
    Measured((_J1, _J2, _J3), 1541, 59.01, 38.28),
    Measured((_J1, _J2, _J4), 1713, 65.55, 38.26),
    Measured(MODELS, 1944, 93.66, 44.21),
)
SOLO = {m.models[0]: m for m in MEASURED if len(m.models) == 1}


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and how busy it is."""

    name: str
    nodes: int
    load: float
    """Nodes that jobs would fill on average if each had its own and none waited."""
    paper: dict[str, tuple[float, float]]
    """By baseline, the paper's savings in %: energy and mean active nodes."""

    @property
    def cluster(self) -> Cluster:
        """The nodes of eight V100 that the paper has."""
        return parse_shape(f"{self.nodes}x{GPUS}:V100")


_AT_28 = {"FIFO": (39.0, 30.0), "FIFO_packed": (24.5, 29.0), "Gandiva": (8.3, 4.0)}
_AT_64 = dict.fromkeys(_AT_28, (39.0, 47.0))
BUSY = Scene("28 nodes at 80 % load", 28, 0.8 * 28, _AT_28)
OVERLOADED = Scene("28 nodes at 130 % load", 28, 1.3 * 28, _AT_28)
ROOMY = Scene("64 nodes at 57 % load", 64, 1.3 * 28, _AT_64)
SCENES = (BUSY, OVERLOADED, ROOMY)
SEEDS = (1, 2, 3)
FREE_SEEDS = SEEDS[:1]
JOBS = 1000
ASLEEP, EACO = ",powering=sleep", "EaCO"
BASELINES = {"FIFO": "fifo", "FIFO_packed": "sharing=fifo-packed", "Gandiva": "sharing=gandiva"}
UTILISATIONS, NEIGHBOURS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (2, 3, 4)
POINTS = [(u, n) for n in NEIGHBOURS for u in UTILISATIONS]
"""Swept: utilisation threshold and jobs on a GPU."""
DEFAULT, WIDEST = (0.8, 3), (1.0, 4)
GAVEL = {
    "FIFO": "fifo",
    "the default": "sharing=eaco",
    "utilisation=1.0, empty history": "sharing=eaco:utilisation=1.0",
    "utilisation=1.0, history=gavel-v100": "sharing=eaco:utilisation=1.0:history=gavel-v100",
}
DEADLINES = (1.2, 2.0, 10.0)
"""Over the solo duration, a third of the jobs each."""


def _scene_trace(scene: Scene, seed: int) -> Trace:
    """Whole-node jobs of the four models in equal parts, 10 to 90 epochs long, arriving at random (Poisson)."""
    rng = random.Random(seed)
    mean_h = statistics.fmean(m.jct_h for m in SOLO.values()) * (10 + EPOCHS) / 2 / EPOCHS
    rows, clock_s = [], 0.0
    for number in range(JOBS):
        clock_s += rng.expovariate(scene.load / mean_h) * 3600.0
        model = rng.choice(MODELS)
        duration_s = SOLO[model].jct_h * 3600.0 * rng.randint(10, EPOCHS) / EPOCHS
        rows.append((str(number), clock_s, GPUS, duration_s, model, duration_s * rng.choice(DEADLINES)))
    return _trace(rows, f"four vision models, load of {scene.load:g} nodes, seed {seed}")


def _gavel_trace(seed: int) -> Trace:
    """600 single-GPU jobs of Gavel's types, one to seven hours long, that fill 40 GPUs on average."""
    rng = random.Random(seed)
    types = sorted({name for names, _ in built_in("gavel-v100") for name in names})
    rows, clock_s = [], 0.0
    for number in range(600):
        clock_s += rng.expovariate(40 / 4.0) * 3600.0
        duration_s = rng.uniform(1.0, 7.0) * 3600.0
        rows.append((str(number), clock_s, 1, duration_s, rng.choice(types), duration_s * rng.choice(DEADLINES)))
    return _trace(rows, f"Gavel's job types, seed {seed}")


def _trace(rows: list[tuple[str, float, int, float, str, float]], source: str) -> Trace:
    names = ("job_id", "submit_s", "gpus", "duration_s", "profile", "deadline_s")
    return Trace.from_columns(pl.DataFrame(rows, schema=names, orient="row"), source=source)


def gavel_cost() -> float:
    """What a job loses of its speed beside another in Gavel's pairs, median, in %."""
    return 100.0 * (1.0 - statistics.median(s for _, pair in built_in("gavel-v100") for s in pair.speeds))


# By weight: each application of the Chronus trace counts as the one of EaCO's four that is nearest in size.
_CHRONUS = {"alexnet": _J1, "mobilenet_v2": _J2, "inception_v3": _J3, "resnet101": _J3, "vgg16": _J4}
CHRONUS_SHAPE = "64x8:V100"
CHRONUS_JOBS = 2000


def _chronus_trace(data: Path) -> Trace:
    """The first jobs of the Philly trace with deadlines; epochs of ten minutes."""
    file = data / "chronus" / "trace_job_Philly_SLO.csv"
    if not file.is_file():
        raise InputError(f"{file} not found", hint="--data names the folder that holds chronus/")
    profiles = {name: replace(profile_named(like), epoch_s=600.0) for name, like in _CHRONUS.items()}
    return replace(traces.load(file).head(CHRONUS_JOBS), profiles=profiles)


def truth() -> Interference:
    """The measured sets as they were measured, and the others no better.

    The paper measured 6 of the 65 sets of two to four jobs that its four models can form. Left to the prior, the others
    would be free up to 100 % utilisation, and so better than anything that was measured. Here each job of a set that
    was not measured keeps what jobs of measured sets of that size keep on average, or what the prior says if less.
    """
    table = built_in("eaco")
    seen = {tuple(sorted(names)): measured.speeds for names, measured in table}
    for size in (2, 3, 4):
        kept = statistics.fmean(s for names, speeds in seen.items() if len(names) == size for s in speeds)
        for names in itertools.combinations_with_replacement(MODELS, size):
            if tuple(sorted(names)) not in seen:
                guess = prior(sum(profile_named(name).activity_frac for name in names))
                table.record(names, [min(kept, guess)] * size)
    return table


def pairs_and_triples() -> list[tuple[float, float]]:
    """From the paper's tables alone: runtime increase and energy saved, in %, of its pairs and of its triples."""
    found = []
    for size in (2, 3):
        sets = [m for m in MEASURED if len(m.models) == size]
        solo_kwh = sum(SOLO[name].energy_kwh for m in sets for name in m.models)
        longer = statistics.fmean(m.jct_h / SOLO[name].jct_h - 1.0 for m in sets for name in m.models)
        found.append((100.0 * longer, 100.0 * (1.0 - sum(m.energy_kwh for m in sets) / solo_kwh)))
    return found


# -- what is run ------------------------------------------------------------------------------------------------------


def planned(data: Path | None) -> dict[Key, Run]:
    """Every run by its key, which ends with the seed but for Chronus. The longest come first."""
    true, chronus = truth(), {} if data is None else _chronus_runs(data)
    runs: dict[Key, Run] = dict(chronus)
    for seed in SEEDS:
        for scene in SCENES:
            trace = _scene_trace(scene, seed)
            policies = {name + asleep: spec + asleep for name, spec in BASELINES.items() for asleep in ("", ASLEEP)}
            for name, policy in {**policies, EACO: f"sharing=eaco{ASLEEP}"}.items():
                runs[scene.name, name, seed] = Run(trace, scene.cluster, policy, World(interference=true))
        # The last trace is the roomy scene's.
        for point in POINTS:
            policy = f"sharing=eaco:utilisation={point[0]}:jobs={point[1]}{ASLEEP}"
            swept = Run(trace, ROOMY.cluster, policy, World(interference=true))
            runs["sweep", point, seed] = swept
            if seed in FREE_SEEDS:
                runs["free", point, seed] = replace(swept, world=World(interference=built_in("eaco")))
            if point in (DEFAULT, WIDEST):
                runs["known", point, seed] = replace(swept, history=true)
        for name, policy in GAVEL.items():
            run = Run(_gavel_trace(seed), parse_shape("16x4:V100"), policy + ASLEEP)
            runs["gavel", name, seed] = replace(run, world=World(interference=built_in("gavel-v100")))
    return runs


def _chronus_runs(data: Path) -> dict[Key, Run]:
    trace, cluster = _chronus_trace(data), parse_shape(CHRONUS_SHAPE)
    return {
        ("chronus", name): Run(trace, cluster, policy + ASLEEP, World(interference=truth()))
        for name, policy in {"EaCO": "sharing=eaco", "FIFO": "fifo"}.items()
    }


class _Together(Stack):
    """Everybody on all GPUs at once, as the paper measured."""

    def decide(self, view: View) -> Plan:
        """Start whoever waits on all GPUs, shared."""
        return Plan(place=[Place(job_id, tuple(range(GPUS)), shared=True) for job_id in view.waiting])


def together(measured: Measured) -> Result:
    """Whole trainings of a set on one node, all started at once."""
    rows = [(model, 0.0, GPUS, SOLO[model].jct_h * 3600.0, model, 1e9) for model in measured.models]
    plain = registry.build("fifo")
    stack = _Together(plain.sizing, plain.ordering, plain.sharing, plain.placing)
    return Simulation(
        _trace(rows, measured.name), parse_shape(f"1x{GPUS}:V100"), stack, World(interference=built_in("eaco"))
    ).run()


# -- what a run says, where every job has whole nodes -----------------------------------------------------------------


def busy_node_s(result: Result) -> float:
    """Node-seconds with a job on the node."""
    return float(result.summary["gpu_busy_frac"] * result.summary["gpu_hours_paid"]) * 3600.0 / GPUS


def active_j(result: Result) -> float:
    """Energy of nodes while they have a job: their GPUs, which is the jobs' energy, and their base power."""
    jobs_j = float(result.summary["energy_j"] - result.summary["idle_energy_j"])
    return jobs_j + DEFAULT_NODE_BASE_W * busy_node_s(result)


def all_asleep_j(result: Result) -> float:
    """Energy if every node slept whenever it has no job."""
    node_s = float(result.summary["gpu_hours_paid"]) * 3600.0 / GPUS
    return active_j(result) + DEFAULT_NODE_SLEEP_W * (node_s - busy_node_s(result))


def metered_j(result: Result) -> float:
    """Energy by the cluster's meter."""
    return float(result.summary["energy_j"])


def active_nodes(result: Result) -> float:
    """Nodes with a job, averaged over time until the last job ends."""
    return float(result.summary["gpu_busy_frac"] * result.summary["gpus"]) / GPUS


def mean_jct_s(result: Result) -> float:
    """Mean waiting and running time."""
    return float(result.summary["mean_jct_s"])


def slowdown(results: Sequence[Result]) -> float:
    """How much longer jobs ran than alone, mean over jobs, in %."""
    longer = (pl.col("jct_s") - pl.col("wait_s")) / pl.col("duration_s") - 1.0
    return 100.0 * statistics.fmean(float(r.jobs.select(longer.mean()).item()) for r in results)


def late(results: Sequence[Result]) -> int:
    """Jobs that missed their deadline."""
    return sum(int(r.summary["late_jobs"]) for r in results)


def late_by_sharing(results: Sequence[Result]) -> int:
    """Late jobs that would have been in time at solo speed from their first start."""
    alone_s = pl.col("first_start_s") + pl.col("duration_s")
    in_time = alone_s <= pl.col("submit_s") + pl.col("deadline_s")
    return sum(r.jobs.filter(pl.col("late") & in_time).height for r in results)
