"""Results made up for the tests of reports and reproductions, so that they need no simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairlead.sim.result import Result

MakeResult = Callable[..., Result]


def _jobs(jct_s: np.ndarray) -> pl.DataFrame:
    numbers = range(len(jct_s))
    return pl.DataFrame({
        "job_id": [f"job-{n}" for n in numbers],
        "user": [f"user-{n % 3}" for n in numbers],
        "gpus": [1 + n % 4 for n in numbers],
        "jct_s": jct_s,
        "wait_s": jct_s / 10,
        "gpu_s": jct_s,
        "energy_j": 250.0 * jct_s,
        "fairness": jct_s / 3600.0,
        "late": [False for _ in numbers],
    })  # fmt: skip


def _timeline(intervals: int, slowness: float) -> pl.DataFrame:
    edges = np.linspace(0.0, 400_000.0 * slowness, intervals + 1)
    wave = 1 + np.sin(edges[:-1] / 40_000)
    return pl.DataFrame(
        {
            "start_s": edges[:-1],
            "end_s": edges[1:],
            "busy_gpus": 30 * wave,
            "activity_gpus": 15 * wave,
            "running_jobs": 10 * wave,
            "waiting_jobs": 20 * slowness * wave,
            "power_w": 6_000 + 3_900 * wave,
            "paid_gpus": 4 + 30 * wave,
        }
    )


@pytest.fixture
def make_result() -> MakeResult:
    """A result of `jobs` jobs that is `slowness` times as slow as another; further values go into its summary."""

    def make(
        ordering: str = "fifo", *, slowness: float = 1.0, jobs: int = 200, intervals: int = 300, **summary: Any
    ) -> Result:
        jct_s = np.random.default_rng(1).lognormal(8.0, 1.5, jobs) * slowness
        values: dict[str, Any] = {
            "jobs": jobs,
            "mean_jct_s": float(jct_s.mean()) if jobs else float("nan"),
            "p99_jct_s": 90_000.0 * slowness,
            "mean_wait_s": 600.0 * slowness,
            "makespan_s": 400_000.0 * slowness,
            "gpu_busy_frac": 0.5 / slowness,
            "energy_j": 4.2e9 * slowness,
            "cost_usd": 1234.5,
            "preemptions": 0,
            "late_jobs": 0,
            "node_failures": 0,
            "worst_fairness": float("inf"),
        }
        return Result(
            policy=f"sizing=fixed,ordering={ordering},placing=packed,sharing=exclusive",
            cluster="16 nodes x 4 V100, 64 GPUs",
            trace="made-up",
            summary={**values, **summary},
            jobs=_jobs(jct_s),
            timeline=_timeline(intervals, slowness),
        )

    return make
