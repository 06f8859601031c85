"""Which numbers of a run are shown, under which name, in which unit, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.report import units

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a summary."""

    key: str
    title: str
    format: units.Formatter
    better: Literal["low", "high"] | None = None
    rank: int = 0
    """Where a page is too narrow for all, those of the highest rank go first."""
    only_if_any: bool = False
    """Say nothing where it is zero in every run: no deadlines, no failures."""
    only_if_rented: bool = False
    """Say nothing where no run has rented a node."""

    def text(self, summary: Summary) -> str:
        """The value as people read it."""
        return units.text(summary.get(self.key), self.format)


COMPARED = (
    Metric("mean_jct_s", "mean JCT", units.duration, "low", rank=0),
    Metric("median_jct_s", "median JCT", units.duration, "low", rank=7),
    Metric("p99_jct_s", "p99 JCT", units.duration, "low", rank=3),
    Metric("mean_wait_s", "mean wait", units.duration, "low", rank=1),
    Metric("makespan_s", "makespan", units.duration, "low", rank=2),
    Metric("gpu_busy_frac", "GPUs busy", units.fraction, "high", rank=4),
    Metric("energy_j", "energy", units.energy, "low", rank=5),
    Metric("gpus_paid_mean", "GPUs paid", units.digits, "low", rank=1, only_if_rented=True),
    Metric("gpu_hours_paid", "GPU-hours paid", units.hours, "low", rank=11, only_if_rented=True),
    Metric("cost_usd", "cost", units.money, "low", rank=9),
    Metric("node_rentals", "node rentals", units.count, rank=12, only_if_rented=True),
    Metric("preemptions", "preemptions", units.count, "low", rank=6),
    Metric("resizes", "resizes", units.count, rank=10, only_if_any=True),
    Metric("worst_fairness", "worst fairness", units.ratio, "low", rank=8),
    Metric("offline_mean_jct_s", "offline JCT", units.duration, "low", rank=0),
    Metric("fleet_sm_activity_frac", "SM activity", units.fraction, "high", rank=1),
    Metric("service_p99_slowdown", "service p99", units.ratio, "low", rank=1),
    Metric("evictions", "evictions", units.count, rank=9, only_if_any=True),
    Metric("late_jobs", "late jobs", units.count, "low", rank=6, only_if_any=True),
    Metric("node_failures", "node failures", units.count, rank=10, only_if_any=True),
)
"""What stands side by side when policies are compared."""

ENERGY_AND_MONEY = (
    Metric("energy_j", "energy", units.energy, "low"),
    Metric("idle_energy_j", "of it idle", units.energy, "low"),
    Metric("wh_per_job", "energy per job (Wh)", units.digits, "low"),
    Metric("carbon_kg", "CO2 (kg)", units.digits, "low"),
    Metric("gpu_hours", "GPU time held", units.hours),
    Metric("gpu_hours_paid", "GPU time paid", units.hours, "low"),
    Metric("gpu_busy_frac", "busy of paid", units.fraction, "high"),
    Metric("cost_usd", "cost", units.money, "low"),
)
"""Where joules and dollars go."""

GROUPS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    (
        "jobs",
        (
            Metric("jobs", "finished", units.count),
            Metric("mean_jct_s", "mean completion time (JCT)", units.duration),
            Metric("median_jct_s", "median JCT", units.duration),
            Metric("p99_jct_s", "99th percentile JCT", units.duration),
            Metric("mean_wait_s", "mean waiting time", units.duration),
            Metric("makespan_s", "makespan", units.duration),
            Metric("late_jobs", "past their deadline", units.count, only_if_any=True),
        ),
    ),
    (
        "fairness",
        (
            Metric("mean_fairness", "mean finish-time fairness", units.ratio),
            Metric("worst_fairness", "worst finish-time fairness", units.ratio),
            Metric("preemptions", "preemptions", units.count),
            Metric("moves", "moves", units.count, only_if_any=True),
            Metric("resizes", "resizes", units.count, only_if_any=True),
            Metric("node_failures", "node failures", units.count, only_if_any=True),
        ),
    ),
    (
        "GPUs",
        (
            Metric("gpu_busy_frac", "busy", units.fraction),
            Metric("gpu_activity_frac", "active", units.fraction),
            Metric("gpu_hours", "GPU-hours", units.hours),
            Metric("gpu_hours_paid", "GPU-hours paid", units.hours, only_if_rented=True),
            Metric("gpus_paid_mean", "GPUs paid on average", units.digits, only_if_rented=True),
            Metric("node_rentals", "node rentals", units.count, only_if_rented=True),
            Metric("energy_j", "energy", units.energy),
            Metric("cost_usd", "cost", units.money),
        ),
    ),
    (
        "services",
        (
            Metric("offline_mean_jct_s", "mean JCT of the other jobs", units.duration),
            Metric("offline_makespan_s", "their makespan", units.duration),
            Metric("fleet_utilisation_frac", "utilisation of their GPUs", units.fraction),
            Metric("fleet_sm_activity_frac", "SM activity", units.fraction),
            Metric("fleet_memory_frac", "memory", units.fraction),
            Metric("fleet_oversold_frac", "given to offline jobs", units.fraction),
            Metric("service_slowdown", "mean latency over alone", units.ratio),
            Metric("service_p99_slowdown", "p99 latency over alone", units.ratio),
            Metric("slo_miss_frac", "requests over their SLO", units.fraction),
            Metric("slo_miss_alone_frac", "alone", units.fraction),
            Metric("evictions", "evictions by guards", units.count, only_if_any=True),
            Metric("overlimits", "Overlimits", units.count, only_if_any=True),
            Metric("gpus_disabled", "GPUs disabled", units.count, only_if_any=True),
        ),
    ),
    (
        "run",
        (
            Metric("events", "events", units.count),
            Metric("wall_s", "wall-clock time", units.duration),
        ),
    ),
)
"""What is said of one run, by theme."""


def rented(summaries: Sequence[Summary]) -> bool:
    """Whether some run has rented nodes."""
    return any(summary.get("node_rentals") for summary in summaries)


def shown(metrics: Sequence[Metric], summaries: Sequence[Summary]) -> list[Metric]:
    """Those metrics that some run has, and that have something to say."""

    def says_something(metric: Metric) -> bool:
        if metric.only_if_rented and not rented(summaries):
            return False
        values = [summary.get(metric.key) for summary in summaries]
        return any(values) if metric.only_if_any else any(value is not None for value in values)

    return [metric for metric in metrics if says_something(metric)]


def best(metric: Metric, summaries: Sequence[Summary]) -> set[int]:
    """The runs that have the best value; none where all are equal or there is no better and worse."""
    values = {n: float(s[metric.key]) for n, s in enumerate(summaries) if _is_number(s.get(metric.key))}
    if metric.better is None or len(values) < 2:
        return set()
    top = min(values.values()) if metric.better == "low" else max(values.values())
    # Values that read the same are the same to the reader, and so are those that differ by rounding.
    winners = {n for n, v in values.items() if metric.format(v) == metric.format(top)}
    return winners if len(winners) < len(values) else set()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
