"""The simulator against a pool of GPUs, to the last digit."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces import load
from fairlead.traces.trace import Trace
from tests.conftest import make_trace
from tests.sim import reference_nodes, reference_tiresias
from tests.sim.reference import Spec, finish_times

POLICIES = {
    "fifo": "strict",
    "fifo:backfill=greedy": "greedy",
    "fifo:backfill=easy": "easy",
    "srtf": "srtf",
    # Where jobs are does not matter while every GPU is equal.
    "fifo,placing=spread": "strict",
    "fifo:backfill=greedy,placing=random-nonsticky": "greedy",
    "fifo:backfill=easy,placing=packed-nonsticky": "easy",
    "srtf,placing=random": "srtf",
    "srtf,placing=spread-nonsticky": "srtf",
    "srsf": "srsf",
    "sjf": "sjf-strict",
    "sjf:backfill=greedy": "sjf-greedy",
    "sjf:backfill=easy,placing=spread": "sjf-easy",
}


def simulated(jobs: list[Spec], shape: str, spec: str, round_s: float | None = None) -> list[float]:
    stack = registry.build(spec, round_s=round_s)
    run = Simulation(make_trace(jobs), parse_shape(shape), stack, World(restart_s=0.0)).run()
    return run.jobs["finish_s"].to_list()


@pytest.mark.parametrize("spec", POLICIES)
def test_equals_a_pool_of_gpus_on_random_samples_of_philly(spec: str, shared_data: Path) -> None:
    frame = pl.read_csv(shared_data / "philly" / "philly.csv", try_parse_dates=True).drop_nulls("timestamp")
    frame = frame.filter(pl.col("num_gpus") <= 64).sort("timestamp", maintain_order=True)
    for seed in range(4):
        # A slice keeps the daily pattern; a thin sample squeezed in time keeps the mix and builds long queues.
        rng = random.Random(seed)
        squeeze = 1 if seed % 2 else 100
        part = frame.slice(rng.randrange(80_000), 250) if seed % 2 else frame.sample(250, seed=seed).sort("timestamp")
        start = part["timestamp"][0]
        jobs = [
            (float((t - start).total_seconds() // squeeze), gpus, duration)
            for t, duration, gpus in part.select("timestamp", "duration", "num_gpus").iter_rows()
        ]
        assert simulated(jobs, "8x8", spec) == finish_times(jobs, 64, POLICIES[spec])


job_lists = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(1, 40)), min_size=1, max_size=25).map(
    lambda jobs: sorted((float(s), w, float(d)) for s, w, d in jobs)
)


@pytest.mark.parametrize("spec", POLICIES)
@given(jobs=job_lists)
@settings(max_examples=60, deadline=None)
def test_equals_a_pool_of_gpus_on_crowded_little_cases(spec: str, jobs: list[Spec]) -> None:
    # Small whole numbers make many events fall on one moment, and many ties.
    assert simulated(jobs, "2x4", spec) == finish_times(jobs, 8, POLICIES[spec])


@pytest.mark.parametrize("spec", POLICIES)
@given(jobs=job_lists)
@settings(max_examples=30, deadline=None)
def test_equals_a_pool_of_gpus_in_rounds(spec: str, jobs: list[Spec]) -> None:
    assert simulated(jobs, "2x4", spec, round_s=7.0) == finish_times(jobs, 8, POLICIES[spec], round_s=7.0)


# Of moments that are sums of halves, quarters and eighths nothing is lost by rounding.
dyadic_lists = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from((1, 1, 2, 4, 8)), st.integers(1, 60)), min_size=1, max_size=30
).map(lambda jobs: sorted((float(s), w, float(d)) for s, w, d in jobs))


@given(jobs=dyadic_lists, round_s=st.sampled_from((None, 8.0)))
@settings(max_examples=80, deadline=None)
def test_tiresias_equals_the_lists_of_the_published_simulator(jobs: list[Spec], round_s: float | None) -> None:
    stack = registry.build("tiresias:queues=3:thresholds=40/160", round_s=round_s)
    run = Simulation(make_trace(jobs), parse_shape("2x4"), stack, World(restart_s=0.0)).run()
    finish, preemptions = reference_tiresias.run(jobs, 8, (40.0, 160.0), round_s)
    assert run.jobs["finish_s"].to_list() == finish
    assert run.summary["preemptions"] == preemptions


def test_tiresias_equals_the_published_rules_on_a_sample_of_philly(shared_data: Path) -> None:
    frame = load(shared_data / "philly" / "philly.csv").frame.filter(pl.col("gpus") <= 32).slice(20_000, 500)
    trace = Trace.from_columns(frame.with_columns(pl.col("submit_s") - frame["submit_s"][0]))
    jobs = trace.frame.select("submit_s", "gpus", "duration_s").rows()
    finish, preemptions = reference_tiresias.run(jobs, 64, (3600.0,))
    run = Simulation(trace, parse_shape("8x8"), registry.build("tiresias")).run()
    assert run.summary["preemptions"] == preemptions
    assert run.jobs["finish_s"].to_list() == pytest.approx(finish, abs=1e-6)
    by_submission = Simulation(trace, parse_shape("8x8"), registry.build("tiresias:within=fifo")).run()
    assert by_submission.summary["preemptions"] > preemptions


@pytest.mark.parametrize("backfill", ["strict", "greedy"])
@given(jobs=job_lists)
@settings(max_examples=60, deadline=None)
def test_consolidated_fifo_equals_trying_all_sets_of_nodes(backfill: str, jobs: list[Spec]) -> None:
    spec = f"fifo:backfill={backfill},placing=consolidated"
    assert simulated(jobs, "3x4", spec) == reference_nodes.finish_times(jobs, 3, 4, greedy=backfill == "greedy")
