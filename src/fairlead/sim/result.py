"""Results: a summary, one row per job, a timeline. Data first; tables and plots are made from it in `report`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.sim.recording import Occupancy
from fairlead.sim.simjob import SimJob
from fairlead.traces.trace import Trace

Floats = NDArray[np.float64]
_COUNTS = ("preemptions", "moves", "resizes", "failures")
_MEASURED = ("first_start_s", "finish_s", "held_s", "gpu_s", "energy_j", *_COUNTS, "active_job_s")
"""What is written of each job; `active_job_s` is the integral of the jobs in the system over its life."""
_COLUMNS = (
    "first_start_s", "finish_s", "jct_s", "wait_s", "gpu_s", "energy_j", *_COUNTS, "fairness",
)  # fmt: skip
"""What is told of each."""


@dataclass(frozen=True)
class Result:
    """What a simulation gave: tables, a summary and notes."""

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
    occupancy: Occupancy | None = None
    """Who was on which GPU when, where that was to be recorded."""
    needs_oracle: bool = False
    """Whether the policy knew what nobody can know: how long jobs run."""
    parts: Mapping[str, Result] = field(default_factory=dict)
    """The results of its parts, where the trace was split and each part had a cluster of its own."""


class JobRows:
    """The measured jobs as columns, written as they end, so that finished jobs cost a few numbers each."""

    def __init__(
        self, trace: Trace, gpus: int, services: Collection[int] = (), row_of: Mapping[int, int] | None = None
    ) -> None:
        self._trace = trace
        self._row_of = row_of
        """The row of each job where they are not numbered by their rows."""
        self._cluster_gpus = gpus
        self._columns: dict[str, array[float] | Floats] = {}
        """Made when the first job is written; of plain runs these are columns that the loop has made."""
        self._duration_s: dict[int, float] = {}
        """Of jobs that train by goodput, whose work is not what the trace says."""
        self._services = services
        self.awaited = len(trace) - len(services)
        """Rows that the run waits for: all but those `services`."""
        self.finished = 0
        self.unfinished = 0
        """Of those awaited, the ones that never end."""

    def write(self, job: SimJob, now_s: float, active_job_s: float) -> None:
        """A job ended; of a trace that wraps only the first lap is measured."""
        row = self._row(job)
        if row >= len(self._trace):
            return
        before_s = job.active_job_s_before
        values = (
            job.first_start_s, now_s, job.held_s, job.banked_gpu_s, job.energy_j, job.preemptions, job.moves,
            job.resizes, job.failures,
            active_job_s - before_s if before_s >= 0.0 else math.nan,  # before the run began nobody counted
        )  # fmt: skip
        if job.work is not None:
            self._duration_s[row] = job.duration_s
        for column, value in zip(self._written().values(), values, strict=True):
            column[row] = value
        self.finished += row not in self._services

    def write_all(self, **columns: Floats) -> None:
        """All jobs have ended; nobody was preempted, moved or resized, and no node failed."""
        self._columns = {**columns, **dict.fromkeys(_COUNTS, np.zeros(len(self._trace)))}
        self.finished = self.awaited

    def leave_open(self, job: SimJob) -> None:
        """A measured job that has no end in this run; it may have a start."""
        row = self._row(job)
        if job.first_start_s >= 0.0:
            self._written()["first_start_s"][row] = job.first_start_s
        self.unfinished += row not in self._services

    def _written(self) -> dict[str, array[float] | Floats]:
        if not self._columns:
            self._columns = {name: array("d", [math.nan]) * len(self._trace) for name in _MEASURED}
        return self._columns

    def _row(self, job: SimJob) -> int:
        return job.job.id if self._row_of is None else self._row_of[job.job.id]

    def frame(self) -> pl.DataFrame:
        """One row per measured job, in order of submission; null where there is nothing to tell."""
        about = self._trace.frame.select(
            "job_id", "profile", "user", "vc", "kind", "submit_s", "gpus", "duration_s", "deadline_s"
        )
        told: dict[str, Floats] = {name: np.asarray(values) for name, values in self._written().items()}
        told["jct_s"] = told["finish_s"] - about["submit_s"].to_numpy()
        told["wait_s"] = told["jct_s"] - told["held_s"]
        told["fairness"] = self._fairness(told["jct_s"], told["active_job_s"])
        columns = [pl.Series(name, told[name]).fill_nan(None) for name in _COLUMNS]
        whole = about.with_columns(columns).with_columns(pl.col(name).cast(pl.Int64) for name in _COUNTS)
        # Half a microsecond of slack: a job that was promised its exact run time is not late by rounding.
        late = (pl.col("jct_s") > pl.col("deadline_s") + 5e-7).fill_null(False)
        return whole.with_columns(late.alias("late"))

    def _fairness(self, jct_s: Floats, active_job_s: Floats) -> Floats:
        """Finish-time fairness: JCT over the time that a job would have had on its fair share of the cluster.

        The fair share is the cluster over the mean number of active jobs during its life; a share wider than the job
        is no faster than the GPUs it asked for. NaN where it is not known who else was there.
        """
        duration_s, gpus = self._trace.frame["duration_s"].to_numpy().copy(), self._trace.frame["gpus"].to_numpy()
        duration_s[list(self._duration_s)] = list(self._duration_s.values())
        mean_active = np.divide(active_job_s, jct_s, out=np.ones_like(jct_s), where=jct_s > 0.0)
        fair_gpus = self._cluster_gpus / np.maximum(1.0, mean_active)
        fairness = jct_s / (duration_s * np.maximum(1.0, gpus / fair_gpus))
        return np.where(np.isnan(active_job_s), math.nan, fairness)
