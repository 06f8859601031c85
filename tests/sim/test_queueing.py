"""The simulator against queueing theory; bench/queueing.py does it over millions of jobs and more servers."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace


def erlang_c_wait_s(arrival_rate_per_s: float, mean_s: float, servers: int) -> float:
    """Mean waiting time in M/M/k."""
    load = arrival_rate_per_s * mean_s
    blocked = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = blocked / (sum(load**i / math.factorial(i) for i in range(servers)) + blocked)
    return waits * mean_s / (servers - load)


def exponential(mean: float, n: int, seed: int) -> np.ndarray:
    """A sample scaled to its exact mean: the sample's own load would else be off by more than what is tested."""
    sample = np.random.default_rng(seed).exponential(mean, n)
    return sample * (mean / sample.mean())


def poisson_trace(rate_per_s: float, durations: np.ndarray, seed: int) -> Trace:
    n = len(durations)
    submit = np.cumsum(exponential(1.0 / rate_per_s, n, seed))
    frame = {"job_id": [str(i) for i in range(n)], "submit_s": submit, "gpus": [1] * n, "duration_s": durations}
    return Trace.from_columns(pl.DataFrame(frame))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7)])
def test_waiting_in_mmk_is_erlang_c(servers: int, load: float) -> None:
    mean_s, n = 100.0, 500_000
    rate = load * servers / mean_s
    trace = poisson_trace(rate, exponential(mean_s, n, seed=2), seed=1)
    run = Simulation(trace, parse_shape(f"{servers}x1"), registry.build("fifo")).run()
    assert run.summary["mean_wait_s"] == pytest.approx(erlang_c_wait_s(rate, mean_s, servers), rel=0.02)


@pytest.mark.parametrize("sizes", ["deterministic", "heavy"])
def test_occupancy_in_mg_infinity_is_poisson(sizes: str) -> None:
    mean_s, n, occupancy = 100.0, 150_000, 40.0
    rng = np.random.default_rng(5)
    durations = np.full(n, mean_s) if sizes == "deterministic" else rng.lognormal(math.log(mean_s) - 0.72, 1.2, n)
    run = Simulation(
        poisson_trace(occupancy / mean_s, durations, 6), parse_shape("100x4"), registry.build("fifo")
    ).run()
    assert run.summary["mean_wait_s"] == 0.0
    # Poisson arrivals see time averages: how many are there when a job comes, after the cluster has filled.
    submit, finish = run.jobs["submit_s"].to_numpy(), np.sort(run.jobs["finish_s"].to_numpy())
    present = np.arange(n) - np.searchsorted(finish, submit)
    settled = present[n // 20 :]
    assert settled.mean() == pytest.approx(occupancy, rel=0.02)
    assert settled.var() == pytest.approx(occupancy, rel=0.05)
    assert run.summary["gpu_hours"] == pytest.approx(durations.sum() / 3600.0)
