"""Parts of a trace that ran each on a cluster of its own, taken together as one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from fairlead.sim.result import Result
from fairlead.sim.summary import FIGURES, figures_of_jobs

_ADDED_UP = (
    "gpus", "gpu_hours", "gpu_hours_paid", "energy_j", "idle_energy_j", "cost_usd", "preemptions", "moves", "resizes",
    "node_failures", "node_sleeps", "node_rentals", "events", "wall_s", "carbon_kg",
)  # fmt: skip
_OF_PAID = ("gpu_busy_frac", "gpu_activity_frac")


def together(column: str, parts: Mapping[str, Result], common: Sequence[str] = ()) -> Result:
    """One result over all parts; `common` are the notes that are not of one part.

    Figures of jobs are over all jobs, those of clusters add up. A part's cluster is paid for until its own last job has
    ended. Figures of services are left to the parts.
    """
    results = list(parts.values())
    jobs = pl.concat([r.jobs.with_columns(pl.lit(name).alias("part")) for name, r in parts.items()])
    summary = _summary(jobs, [r.summary for r in results])
    own = (f"{column} {name}: {note}" for name, r in parts.items() for note in r.notes if note not in common)
    return replace(
        results[0],
        cluster=f"{len(parts)} clusters, one for each {column}, {summary['gpus']} GPUs",
        summary=summary,
        jobs=jobs.sort("submit_s", maintain_order=True),
        timeline=_added_up([r.timeline for r in results]),
        notes=(*common, *own),
        history=None,
        fleet=None,
        evictions=None,
        occupancy=None,
        parts=dict(parts),
    )


def _summary(jobs: pl.DataFrame, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = figures_of_jobs(jobs)
    for key in _ADDED_UP:
        if all(key in part for part in parts):
            found[key] = sum(part[key] for part in parts)
    paid = [part["gpu_hours_paid"] for part in parts]
    for key in _OF_PAID:
        found[key] = _over(sum(part[key] * hours for part, hours in zip(parts, paid, strict=True)), sum(paid))
    lengths_h = [_over(hours, part["gpus_paid_mean"]) for part, hours in zip(parts, paid, strict=True)]
    found["gpus_paid_mean"] = _over(sum(paid), max(lengths_h))
    return {key: found[key] for key in (*FIGURES, "carbon_kg") if key in found}


def _over(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _added_up(timelines: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The sum of step functions: every moment at which one of them changes begins an interval."""
    edges = np.unique(np.concatenate([t[side].to_numpy() for t in timelines for side in ("start_s", "end_s")]))
    columns = {"start_s": edges[:-1], "end_s": edges[1:]}
    for name in timelines[0].columns[2:]:
        total = np.zeros(len(edges) - 1)
        for timeline in timelines:
            if timeline.height:
                at = np.searchsorted(timeline["start_s"].to_numpy(), edges[:-1], side="right") - 1
                there = (at >= 0) & (edges[:-1] < timeline["end_s"][-1])
                total[there] += timeline[name].to_numpy()[at[there]]
        columns[name] = total
    return pl.DataFrame(columns)
