"""Results: a summary, one row per job, a timeline. Data first; tables and plots are made from it in `report`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fairlead.sim.simjob import SimJob
from fairlead.traces.trace import Trace

_COLUMNS = (
    "first_start_s", "finish_s", "jct_s", "wait_s", "gpu_s", "energy_j", "preemptions", "moves", "resizes",
    "failures", "fairness",
)  # fmt: skip
_WHOLE = ("preemptions", "moves", "resizes", "failures")


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    policy: str
    cluster: str
    trace: str
    summary: dict[str, Any]
    """The figures that `--json` prints; see docs/results.md."""
    jobs: pl.DataFrame
    timeline: pl.DataFrame
    notes: tuple[str, ...] = ()
    history: dict[str, Any] | None = None
    """What a sharing policy has learnt of jobs beside each other, as `save_interference` writes it."""
    fleet: pl.DataFrame | None = None
    """GPUs with services over time; None without any."""
    evictions: pl.DataFrame | None = None
    """Offline jobs that guards have evicted from beside services; None without services."""


class JobRows:
    """The measured jobs as columns, written as they end, so that finished jobs cost a few numbers each."""

    def __init__(self, trace: Trace, gpus: int, services: Collection[int] = ()) -> None:
        self._trace = trace
        self._cluster_gpus = gpus
        self._columns = {name: array("d", [math.nan]) * len(trace) for name in _COLUMNS}
        self._services = services
        self.awaited = len(trace) - len(services)
        """Rows that the run waits for: all but those `services`."""
        self.finished = 0
        self.unfinished = 0
        """Of those awaited, the ones that never end."""

    def __len__(self) -> int:
        return len(self._trace)

    def write(self, job: SimJob, now_s: float, active_job_s: float) -> None:
        """A measured job ended."""
        row = job.job.id
        jct_s = now_s - job.job.submit_s
        values = (
            job.first_start_s, now_s, jct_s, jct_s - job.held_s, job.banked_gpu_s, job.energy_j, job.preemptions,
            job.moves, job.resizes, job.failures, self._fairness(job, jct_s, active_job_s - job.active_job_s_before),
        )  # fmt: skip
        for column, value in zip(self._columns.values(), values, strict=True):
            column[row] = value
        self.finished += row not in self._services

    def leave_open(self, job: SimJob) -> None:
        """A measured job that has no end in this run; it may have a start."""
        if job.first_start_s >= 0.0:
            self._columns["first_start_s"][job.job.id] = job.first_start_s
        self.unfinished += job.job.id not in self._services

    def _fairness(self, job: SimJob, jct_s: float, active_job_s: float) -> float:
        """Finish-time fairness: JCT over the time it would have had on its fair share of the cluster.

        The fair share is the cluster over the mean number of active jobs during its life; a share wider than the job
        is no faster than the GPUs it asked for.
        """
        if job.active_job_s_before < 0.0:
            return math.nan  # who else was there when it came, before the run began, is not known
        mean_active = active_job_s / jct_s if jct_s > 0.0 else 1.0
        fair_gpus = self._cluster_gpus / max(1.0, mean_active)
        return jct_s / (job.duration_s * max(1.0, job.job.gpus / fair_gpus))

    def frame(self) -> pl.DataFrame:
        """One row per measured job, in order of submission; null where there is nothing to tell."""
        about = self._trace.frame.select(
            "job_id", "model", "user", "kind", "submit_s", "gpus", "duration_s", "deadline_s"
        )
        columns = [pl.Series(name, np.frombuffer(values)).fill_nan(None) for name, values in self._columns.items()]
        whole = about.with_columns(columns).with_columns(pl.col(name).cast(pl.Int64) for name in _WHOLE)
        # Half a microsecond of slack: a job that was promised its exact run time is not late by rounding.
        late = (pl.col("jct_s") > pl.col("deadline_s") + 5e-7).fill_null(False)
        return whole.with_columns(late.alias("late"))
