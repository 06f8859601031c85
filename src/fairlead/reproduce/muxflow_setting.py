"""What MuxFlow's comparison runs on: a fleet of services with best-effort work, under every way to share.

The paper's traces, thresholds and predictor are not public. Loads, sizes of jobs and the contention model are ours
(`traces/services.py`, `model/contention.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from fairlead.errors import InputError
from fairlead.measure.pair_table import read_pairs
from fairlead.measure.predictor import Evaluation, evaluate, train
from fairlead.measure.synthetic_pairs import synthetic_pairs
from fairlead.model.cluster import parse_shape
from fairlead.model.predictor import save_predictor
from fairlead.model.service import Burst, DailyLoad, TableLoad, latencies
from fairlead.sim.result import Result
from fairlead.sim.run import Run
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

Key = tuple[object, ...]
SHAPE, GPUS = "125x8:T4", 1000
SMALL_SHAPE, SMALL_GPUS = "25x8:T4", 200
"""For what is run many times."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the day."""

    name: str
    hours: float
    start_h: float


WORKING_DAY = Scene("12 h", 12.0, 8.0)
WHOLE_DAY = Scene("24 h", 24.0, 0.0)
SCENES = (WORKING_DAY, WHOLE_DAY)

BEFORE, MUXFLOW, TIME, PRIORITY = "online only", "MuxFlow", "time-sharing", "priority time-sharing"
POLICIES = {
    BEFORE: "online-only",
    MUXFLOW: "muxflow",
    "without dynamic share": "muxflow:dynamic=false",
    "without matching": "muxflow:matched=false",
    "without both": "muxflow:matched=false:dynamic=false",
    TIME: "time-sharing",
    PRIORITY: "priority-time-sharing",
}
ABLATIONS = tuple(name for name in POLICIES if name.startswith("without"))
PREDICTED = "MuxFlow, trained predictor"
LOADS, SEEDS = (0.5, 0.95, 1.3), (0, 1, 2)
"""Offline work over what the GPUs could do alone, and fleets drawn anew; the first of each is not the default's."""
LOAD, SEED = 0.95, 0
COMPARED = (MUXFLOW, TIME, PRIORITY)
LIGHT, HEAVY = "the paper's four models", "heavier jobs"
STATIC = (0.5, 0.6, 0.7, 0.9)
"""Shares for the ablation without dynamic shares: one alone would say more about itself than about the ablation."""
UNMATCHED = "without matching"
PAIRS = 2000
"""Invented pairs that the predictor is trained on."""
BURST = Burst(12 * 3600.0, 12.5 * 3600.0, 5.0)
EVERY = 5
"""One service in so many has a burst."""
MEASURED_H = 22.0
"""So long is the measured request rate."""


def policy(name: str) -> str:
    """The whole stack around a sharing, as the comparison runs it."""
    return f"ordering=fifo:backfill=greedy,sharing={POLICIES.get(name, name)}"


def planned(data: Path | None, predictor: Path) -> dict[Key, Run]:
    """Every run by its key. The longest come first."""
    runs: dict[Key, Run] = {}
    for scene in (WHOLE_DAY, WORKING_DAY):
        trace, cluster = service_fleet(GPUS, scene.hours, start_h=scene.start_h), parse_shape(SHAPE)
        for name in POLICIES:
            runs[scene.name, name] = Run(trace, cluster, policy(name))
    for load, seed in {(load, SEED) for load in LOADS} | {(LOAD, seed) for seed in SEEDS}:
        _add(runs, ("fleet", load, seed), service_fleet(SMALL_GPUS, 24.0, load=load, seed=seed), COMPARED)
    for seed in SEEDS:
        _add(runs, ("fleet", LOAD, seed), service_fleet(SMALL_GPUS, 24.0, seed=seed), (UNMATCHED,))
    light = service_fleet(SMALL_GPUS, 24.0)
    for kind, trace in ((LIGHT, light), (HEAVY, with_heavier_jobs(light))):
        _add(runs, (kind,), trace, (MUXFLOW, UNMATCHED, TIME))
        for share in STATIC:
            static = f"muxflow:dynamic=false:share={share}"
            runs[kind, share] = Run(trace, parse_shape(SMALL_SHAPE), policy(static))
        trained = policy(f"muxflow:predictor={predictor}")
        runs[kind, PREDICTED] = Run(trace, parse_shape(SMALL_SHAPE), trained)
    _add(runs, ("bursts",), with_bursts(service_fleet(SMALL_GPUS, 24.0)), (MUXFLOW, TIME))
    if data is not None:
        _add(runs, ("measured",), measured_fleet(data), (BEFORE, *COMPARED))
    return runs


def _add(runs: dict[Key, Run], key: Key, trace: Trace, names: tuple[str, ...]) -> None:
    for name in names:
        runs[(*key, name)] = Run(trace, parse_shape(SMALL_SHAPE), policy(name))


def train_predictor(path: Path) -> None:
    """From noisy pairs of invented workloads; trees, as they are trained in no time and hardly worse than the MLP."""
    save_predictor(train(synthetic_pairs(0, PAIRS, gpu_model="T4"), "trees"), path)


def with_bursts(trace: Trace) -> Trace:
    """The same fleet where some services have five times the load for half an hour at noon."""
    profiles = dict(trace.profiles)
    for number, name in enumerate(sorted(n for n, p in profiles.items() if p.service is not None)):
        service = profiles[name].service
        if number % EVERY == 0 and service is not None:
            profiles[name] = replace(profiles[name], service=service.with_bursts(BURST))
    return replace(trace, profiles=profiles)


def with_heavier_jobs(trace: Trace) -> Trace:
    """The same fleet where offline jobs use twice the SMs, and more of the rest, so that pairs differ."""
    profiles = dict(trace.profiles)
    for name, profile in trace.profiles.items():
        solo = profile.solo
        if profile.service is None and solo is not None:
            heavier = replace(
                solo,
                sm_activity_frac=min(0.95, 2.0 * solo.sm_activity_frac),
                occupancy_frac=min(0.95, 1.6 * solo.occupancy_frac),
                bandwidth_frac=min(0.95, 1.5 * solo.bandwidth_frac),
            )
            profiles[name] = replace(profile, solo=heavier)
    return replace(trace, profiles=profiles)


# -- public data ------------------------------------------------------------------------------------------------------


def measured_fleet(data: Path) -> Trace:
    """The fleet where every service has the measured request rate of a production service, scaled to its own mean."""
    times_s, rates = request_rate(data)
    trace = service_fleet(SMALL_GPUS, MEASURED_H)
    profiles = dict(trace.profiles)
    for name, profile in trace.profiles.items():
        service = profile.service
        if service is None or not isinstance(service.load, DailyLoad):
            continue
        # As drawn, but never over 75 % at the peak, which is far higher over the mean than a sine's.
        scale = min(service.load.mean_frac / float(rates.mean()), 0.75 / float(rates.max()))
        curve = TableLoad(tuple(times_s.tolist()), tuple((scale * rates).tolist()))
        peak = np.array(scale * rates.max())
        _, p99 = latencies(peak, np.array(service.solo.time_s), np.array(1.0))
        profiles[name] = replace(profile, service=replace(service, load=curve, slo_s=2.0 * float(p99)))
    return replace(trace, profiles=profiles, source=f"{trace.source}, measured request rates")


def request_rate(data: Path) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """(seconds, requests a second) of Alibaba's serving trace, means of a quarter of an hour."""
    file = data / "alibaba" / "genai_qps.csv"
    if not file.is_file():
        raise InputError(f"{file} not found", hint="--data names the folder that holds alibaba/")
    rows = pl.read_csv(file, infer_schema_length=None).filter(pl.col("request_type") == "API Requests")
    quarter = ((pl.col("timestamp_anon") - pl.col("timestamp_anon").min()) // 900.0 * 900.0).alias("at_s")
    means = rows.group_by(quarter).agg(pl.col("value").mean()).sort("at_s")
    return means["at_s"].to_numpy().astype(np.float64), means["value"].to_numpy().astype(np.float64)


def gavel(data: Path) -> Evaluation:
    """Trees on Gavel's measured pairs (V100) that they have not seen."""
    file = data / "gavel" / "simulation_throughputs.json"
    return next(e for e in evaluate(read_pairs(file).of("V100"), ("trees",)) if e.held_out == "pair")


# -- what a run says --------------------------------------------------------------------------------------------------


def offline(result: Result) -> pl.DataFrame:
    """The jobs that are no services."""
    return result.jobs.filter(pl.col("kind") == "training")


def mean_jct_s(result: Result) -> float:
    """The mean completion time of offline jobs."""
    return float(offline(result).select(pl.col("jct_s").mean()).item())


def makespan_s(result: Result) -> float:
    """Until the last offline job has ended."""
    return float(offline(result).select(pl.col("finish_s").max()).item())


def percent(result: Result, key: str) -> float:
    """A fraction of the summary."""
    return 100.0 * float(result.summary[key])


def misses_ppm(result: Result, key: str = "slo_miss_frac") -> float:
    """Requests over the SLO in a million."""
    return 1e6 * float(result.summary[key])


def slower(result: Result, key: str = "service_slowdown") -> float:
    """How much slower services are than alone, in %."""
    return 100.0 * (float(result.summary[key]) - 1.0)


Results = Mapping[Key, Result]
