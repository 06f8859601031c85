"""The simulator against queueing theory; bench/queueing.py does it over millions of jobs and more servers."""

from __future__ import annotations

import heapq
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


def trace_of(submit: np.ndarray, durations: np.ndarray) -> Trace:
    n = len(durations)
    frame = {"job_id": [str(i) for i in range(n)], "submit_s": submit, "gpus": [1] * n, "duration_s": durations}
    return Trace.from_columns(pl.DataFrame(frame))


def waits_s(submit_s: np.ndarray, durations_s: np.ndarray, servers: int) -> np.ndarray:
    """First come, first served: each takes the server that is free first."""
    free_s, waits = [0.0] * servers, []
    for submit, duration in zip(submit_s.tolist(), durations_s.tolist(), strict=True):
        start = max(submit, free_s[0])
        heapq.heapreplace(free_s, start + duration)
        waits.append(start - submit)
    return np.array(waits)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7)])
def test_waiting_in_mmk_is_erlang_c(servers: int, load: float) -> None:
    """The simulator waits as the recursion says, job by job; over ten times as many jobs that is what theory says."""
    mean_s, n = 100.0, 500_000
    rate = load * servers / mean_s
    submit, durations = np.cumsum(exponential(1.0 / rate, n, seed=1)), exponential(mean_s, n, seed=2)
    expected = waits_s(submit, durations, servers)
    assert expected.mean() == pytest.approx(erlang_c_wait_s(rate, mean_s, servers), rel=0.02)
    trace = trace_of(submit[: n // 10], durations[: n // 10])
    run = Simulation(trace, parse_shape(f"{servers}x1"), registry.build("fifo")).run()
    found = run.jobs.sort("submit_s")
    assert found["wait_s"].to_numpy() == pytest.approx(expected[: n // 10], abs=1e-5)


@pytest.mark.parametrize("sizes", ["deterministic", "heavy"])
def test_occupancy_in_mg_infinity_is_poisson(sizes: str) -> None:
    """Nobody waits, so each leaves when its time is over; theory knows how many of such jobs there are."""
    mean_s, n, occupancy = 100.0, 150_000, 40.0
    rng = np.random.default_rng(5)
    durations = np.full(n, mean_s) if sizes == "deterministic" else rng.lognormal(math.log(mean_s) - 0.72, 1.2, n)
    submit = np.cumsum(exponential(mean_s / occupancy, n, seed=6))
    # Poisson arrivals see time averages: how many are there when a job comes, after the cluster has filled.
    settled = (np.arange(n) - np.searchsorted(np.sort(submit + durations), submit))[n // 20 :]
    assert settled.mean() == pytest.approx(occupancy, rel=0.02)
    assert settled.var() == pytest.approx(occupancy, rel=0.05)
    some = slice(0, n // 10)
    run = Simulation(trace_of(submit[some], durations[some]), parse_shape("100x4"), registry.build("fifo")).run()
    assert run.summary["mean_wait_s"] == 0.0
    assert run.jobs.sort("submit_s")["finish_s"].to_numpy() == pytest.approx((submit + durations)[some], abs=1e-5)
    assert run.summary["gpu_hours"] == pytest.approx(durations[some].sum() / 3600.0)
