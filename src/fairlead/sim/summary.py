"""The figures of a run, and the audit that every run must pass."""

from __future__ import annotations

from typing import Any

import polars as pl

from fairlead.errors import RunError
from fairlead.model.cluster import Cluster
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.result import JobRows
from fairlead.sim.simjob import SimJob

COUNTED = (
    "events", "preemptions", "moves", "resizes", "node_failures", "arrived", "ended", "sleeps", "rentals",
)  # fmt: skip
"""What a run counts."""
FIGURES = (
    "jobs", "gpus", "mean_jct_s", "median_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "gpu_busy_frac",
    "gpu_activity_frac", "gpu_hours", "gpu_hours_paid", "energy_j", "idle_energy_j", "wh_per_job", "gpus_paid_mean",
    "cost_usd", "preemptions", "moves", "resizes", "node_failures", "node_sleeps", "node_rentals", "mean_fairness",
    "worst_fairness", "late_jobs", "events", "wall_s",
)  # fmt: skip
"""Of every run, in the order in which they are told."""
_TOLERANCE = 1e-9


def audit(
    rows: JobRows, meters: Meters, counts: dict[str, int], active: list[SimJob], ended_gpu_s: float, ended_j: float,
    before_gpu_s: float = 0.0,
) -> None:  # fmt: skip
    """Jobs in = jobs out, and what the jobs had adds up to what the cluster gave; `before_gpu_s` before the run."""
    if counts["arrived"] != counts["ended"] + len(active) or rows.finished + rows.unfinished != rows.awaited:
        raise RunError(
            f"jobs were lost: {counts['arrived']} came, {counts['ended']} ended, {len(active)} are in the system"
        )
    had_gpu_s = ended_gpu_s + sum(j.banked_gpu_s for j in active)
    _agree("GPU-seconds", had_gpu_s, before_gpu_s + meters.held_gpu_s)
    _agree("joules", ended_j + sum(j.energy_j for j in active), meters.jobs_j)


def _agree(unit: str, jobs: float, cluster: float) -> None:
    if abs(jobs - cluster) > _TOLERANCE * max(abs(jobs), abs(cluster)) + 1e-3:
        raise RunError(f"{unit} are not conserved: the jobs had {jobs!r}, the cluster gave {cluster!r}")


def summarise(
    jobs: pl.DataFrame, meters: Meters, counts: dict[str, int], cluster: Cluster, wall_s: float, online: Online | None
) -> dict[str, Any]:
    """The figures of a run that `--json` prints."""
    return {
        **_figures(jobs, meters, counts, cluster, wall_s),
        **(_of_services(jobs, online) if online is not None else {}),
    }


def figures_of_jobs(jobs: pl.DataFrame, begin_s: float = 0.0) -> dict[str, Any]:
    """What follows from the rows of the jobs alone."""
    jct, fairness = jobs["jct_s"], jobs["fairness"]
    ends_s = jobs["finish_s"].drop_nulls().to_list()
    return {
        "jobs": jobs.height,
        "mean_jct_s": jct.mean(),
        "median_jct_s": jct.median(),
        "p99_jct_s": jct.quantile(0.99, interpolation="higher"),
        "mean_wait_s": jobs["wait_s"].mean(),
        "makespan_s": max(ends_s) - begin_s if ends_s else None,
        "wh_per_job": _over(float(jobs["energy_j"].sum()), jobs.height) / 3600.0,
        "mean_fairness": fairness.mean(),
        "worst_fairness": fairness.max(),
        "late_jobs": int(jobs["late"].sum()),
    }


def _figures(
    jobs: pl.DataFrame, meters: Meters, counts: dict[str, int], cluster: Cluster, wall_s: float
) -> dict[str, Any]:
    paid_gpu_s, lasted_s = meters.paid_gpu_s, meters.now_s - meters.begin_s
    found = {
        **figures_of_jobs(jobs, meters.begin_s),
        "gpus": cluster.gpus,
        "gpu_busy_frac": _over(meters.busy_gpu_s, paid_gpu_s),
        "gpu_activity_frac": _over(meters.activity_gpu_s, paid_gpu_s),
        "gpu_hours": meters.held_gpu_s / 3600.0,
        "gpu_hours_paid": paid_gpu_s / 3600.0,
        "energy_j": meters.idle_j + meters.jobs_j,
        "idle_energy_j": meters.idle_j,
        "gpus_paid_mean": _over(paid_gpu_s, lasted_s),
        "cost_usd": meters.paid_usd,
        "preemptions": counts["preemptions"],
        "moves": counts["moves"],
        "resizes": counts["resizes"],
        "node_failures": counts["node_failures"],
        "node_sleeps": counts["sleeps"],
        "node_rentals": counts["rentals"],
        "events": counts["events"],
        "wall_s": wall_s,
    }
    return {key: found[key] for key in FIGURES}


def _of_services(jobs: pl.DataFrame, online: Online) -> dict[str, Any]:
    others = jobs.filter(pl.col("kind") != "service")
    return {
        **online.summary(),
        "offline_mean_jct_s": others["jct_s"].mean(),
        "offline_makespan_s": others["finish_s"].max(),
    }


def _over(part: float, whole: float) -> float:
    """0 of nothing: a run that begins with nothing to do takes no time."""
    return part / whole if whole else 0.0
