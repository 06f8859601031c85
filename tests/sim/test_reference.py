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
from tests.conftest import make_trace
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
}


def simulated(jobs: list[Spec], shape: str, spec: str) -> list[float]:
    run = Simulation(make_trace(jobs), parse_shape(shape), registry.build(spec), restart_s=0.0).run()
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
