"""Lines of runs laid over each other, on common points: what the page's charts draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.report import units
from fairlead.report.metrics import rented

if TYPE_CHECKING:
    import polars as pl

    from fairlead.sim.result import Result

Floats = NDArray[np.float64]
Runs = Mapping[str, "Result"]
POINTS = 240


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A column of a run's timeline, or of its fleet, as a chart."""

    column: str
    title: str
    says: str
    unit: str = ""
    by: float = 1.0
    """In base units, what a unit of the axis is."""
    formatter: units.Formatter | None = None
    """Instead of both, where the unit follows from the values."""
    of: Literal["timeline", "fleet"] = "timeline"


_BUSY = _Gauge("busy_gpus", "GPUs busy", "GPUs that a job holds.")
_PAID = _Gauge("paid_gpus", "GPUs paid for", "GPUs that are rented, busy or not.")
_QUEUE = _Gauge("waiting_jobs", "Queue", "Jobs that wait for their GPUs; lower is better.")
_POWER = _Gauge("power_w", "Power", "What all nodes draw together, idle GPUs included.", formatter=units.power)
_ACTIVITY = _Gauge(
    "sm_activity_frac", "SM activity beside services", "Of GPUs with a service; more is better.", "%", 0.01, of="fleet"
)
_SLOWDOWN = _Gauge(
    "slowdown", "What services pay", "Time of a request over that without a neighbour; 1 is unharmed.", of="fleet"
)


def of_runs(runs: Runs) -> list[dict[str, Any]]:
    """One entry per chart, with a line per run; charts that have nothing to show are left out."""
    is_rented = rented([result.summary for result in runs.values()])
    gauges = (_BUSY, *((_PAID,) if is_rented else ()), _QUEUE, _POWER, _ACTIVITY, _SLOWDOWN)
    charts = [_cdf(runs), *(_over_time(runs, gauge) for gauge in gauges), _spend(runs)]
    return [chart for chart in charts if chart is not None]


def _cdf(runs: Runs) -> dict[str, Any] | None:
    """The share of jobs done within a time; the axis is of logarithms, in decades of seconds."""
    # A log axis has no place for a job that took no time.
    found = [np.sort(np.maximum(finite(result.jobs["jct_s"].to_numpy()), 1.0)) for result in runs.values()]
    whole = np.concatenate(found)
    if not whole.size:
        return None
    low, high = np.log10([whole.min(), whole.max()])
    x = np.linspace(low, max(high, low + 0.1), POINTS)
    reached_s = 10.0**x * (1.0 + 1e-9)  # rounding must not cost the last job its place
    shares = [100.0 * np.searchsorted(jct_s, reached_s, "right") / max(len(jct_s), 1) for jct_s in found]
    return {
        "title": "Completion time (JCT)",
        "says": "Share of jobs done within a time; further left is better.",
        "x_axis": "decades",
        "x_unit": "",
        "unit": "% of jobs",
        "x": _short(x),
        "lines": [_short(share) for share in shares],
    }


def _over_time(runs: Runs, gauge: _Gauge) -> dict[str, Any] | None:
    frames = [getattr(result, gauge.of) for result in runs.values()]
    if not any(frame is not None and frame.height for frame in frames):
        return None
    found = [steps(frame, gauge.column) for frame in frames]
    by, unit = gauge.by, gauge.unit
    if gauge.formatter is not None:
        by, unit = units.axis_scale(max(float(values.max()) for _, values in found), gauge.formatter)
    x = _moments(found)
    return _timed(gauge.title, gauge.says, unit, x, [_means(edges, values, x) / by for edges, values in found])


def _spend(runs: Runs) -> dict[str, Any] | None:
    """What was paid up to a moment: GPUs paid for at the mean price of the run."""
    prices = [_usd_per_gpu_s(result) for result in runs.values()]
    if not any(prices):
        return None
    found = [steps(result.timeline, "paid_gpus") for result in runs.values()]
    x, lines = _moments(found), []
    for (edges, values), price in zip(found, prices, strict=True):
        spent = np.interp(x[1:], edges, price * _area(edges, values))
        spent[_over(x, edges)] = np.nan
        lines.append(spent)
    return _timed("Spend", "Paid GPUs at list price, added up.", "$", x, lines)


def _timed(title: str, says: str, unit: str, x: Floats, lines: Sequence[Floats]) -> dict[str, Any]:
    by_s, time_unit = units.axis_scale(float(x[-1] - x[0]), units.duration)
    return {
        "title": title,
        "says": says,
        "x_axis": "time",
        "x_unit": time_unit,
        "unit": unit,
        "x": _short(x[1:] / by_s),
        "lines": [_short(line) for line in lines],
    }


def _usd_per_gpu_s(result: Result) -> float:
    paid_h, cost_usd = result.summary.get("gpu_hours_paid") or 0.0, result.summary.get("cost_usd") or 0.0
    return float(cost_usd / paid_h / 3600.0) if paid_h else 0.0


def _moments(found: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Evenly spaced points in time that cover all runs."""
    begin_s, end_s = min(float(edges[0]) for edges, _ in found), max(float(edges[-1]) for edges, _ in found)
    return np.linspace(begin_s, end_s, POINTS + 1)


def steps(timeline: pl.DataFrame | None, column: str) -> tuple[Floats, Floats]:
    """The edges of a run's intervals and the value in each."""
    if timeline is None or not timeline.height:
        return np.array([0.0, 1.0]), np.array([0.0])
    edges = np.append(timeline["start_s"].to_numpy(), timeline["end_s"][-1]).astype(np.float64)
    return edges, timeline[column].to_numpy().astype(np.float64)


def _means(edges: Floats, values: Floats, x: Floats) -> Floats:
    """Time-weighted means between the points: the area under the line stays what it was. Nothing after its end."""
    covered = np.diff(np.interp(x, edges, edges))
    means = np.diff(np.interp(x, edges, _area(edges, values))) / np.maximum(covered, 1e-9)
    means[_over(x, edges)] = np.nan
    return means


def _over(x: Floats, edges: Floats) -> NDArray[np.bool_]:
    return np.asarray(x[:-1] >= edges[-1])


def _area(edges: Floats, values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values * np.diff(edges))))


def finite(values: NDArray[Any]) -> Floats:
    """The values without those that never came."""
    numbers = values.astype(np.float64)
    return numbers[np.isfinite(numbers)]


def _short(values: Floats) -> list[float | None]:
    """As many digits as can be seen; null where there is no value."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]
