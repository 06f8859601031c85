"""The tables of the HTML report. Every column, or row, has one unit, which stands in its head."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from fairlead.report import units
from fairlead.report.metrics import COMPARED, ENERGY_AND_MONEY, GROUPS, Metric, best, shown

if TYPE_CHECKING:
    from fairlead.sim.result import Result

Runs = Mapping[str, "Result"]
_USERS_SHOWN = 20
_SCALED = (units.duration, units.energy, units.power)


def comparison(runs: Runs, metrics: Sequence[Metric] = COMPARED) -> str:
    """A row per run and a column per metric, the best of each column marked."""
    summaries = [result.summary for result in runs.values()]
    told = shown(metrics, summaries)
    winners = {metric.key: best(metric, summaries) for metric in told}
    columns = {metric.key: in_one_unit(metric, summaries) for metric in told}
    head = "".join(f'<th scope="col" class="n">{_titled(m.title, columns[m.key][0])}</th>' for m in told)
    rows = []
    for number, (name, result) in enumerate(runs.items()):
        cells = "".join(_cell(m, result, columns[m.key][1][number], number in winners[m.key]) for m in told)
        rows.append(f'<tr><th scope="row" class="name">{run_name(name, result)}</th>{cells}</tr>')
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr><th scope="col">policy</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def energy_and_money(runs: Runs) -> str:
    """Where the joules and the dollars went."""
    return comparison(runs, ENERGY_AND_MONEY)


def all_numbers(runs: Runs) -> str:
    """Every metric by theme, one column per run; the themes of a single run stand side by side."""
    summaries = [result.summary for result in runs.values()]
    groups = []
    for group, metrics in GROUPS:
        told = shown(metrics, summaries)
        if not told:
            continue
        rows = f'<tr class="group"><th colspan="{1 + len(runs)}" scope="colgroup">{escape(group)}</th></tr>'
        for metric in told:
            unit, texts = in_one_unit(metric, summaries)
            cells = "".join(_cell(metric, r, text, False) for r, text in zip(runs.values(), texts, strict=True))
            rows += f'<tr><th scope="row">{_titled(metric.title, unit)}</th>{cells}</tr>'
        groups.append(f"<tbody>{rows}</tbody>")
    if len(runs) == 1:
        return f'<div class="themes">{"".join(f"<div><table>{group}</table></div>" for group in groups)}</div>'
    head = "".join(f'<th scope="col" class="n">{run_name(name, result)}</th>' for name, result in runs.items())
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr><td></td>{head}</tr></thead>{"".join(groups)}</table></div>'
    )


def users(runs: Runs) -> str:
    """Who got what: a table for each run; empty where the trace names no users."""
    made = [(name, result, _by_user(result)) for name, result in runs.items()]
    made = [(name, result, frame) for name, result, frame in made if frame.height > 1]
    if not made:
        return ""
    if len(made) == 1:
        return _users_table(made[0][2])
    told = [f"<summary>{run_name(name, result)}</summary>{_users_table(frame)}" for name, result, frame in made]
    return f'<details open="">{told[0]}</details>' + "".join(f"<details>{one}</details>" for one in told[1:])


def _by_user(result: Result) -> pl.DataFrame:
    """One row per user, who held most first."""
    paid_h = result.summary.get("gpu_hours_paid") or 0.0
    usd_per_h = (result.summary.get("cost_usd") or 0.0) / paid_h if paid_h else 0.0
    return (
        result.jobs.group_by(pl.col("user").fill_null("").cast(pl.String).replace("", "no user"))
        .agg(
            pl.len().alias("jobs"),
            pl.col("jct_s").mean().alias("mean_jct_s"),
            pl.col("wait_s").mean().alias("mean_wait_s"),
            pl.col("fairness").max().alias("worst_fairness"),
            pl.col("late").sum().alias("late_jobs"),
            (pl.col("gpu_s").sum() / 3600.0).alias("gpu_hours"),
            pl.col("energy_j").sum(),
            (pl.col("gpu_s").sum() / 3600.0 * usd_per_h).alias("cost_usd"),
        )
        .sort("gpu_hours", "user", descending=[True, False])
    )


_USER_METRICS = (
    Metric("jobs", "jobs", units.count),
    Metric("mean_jct_s", "mean JCT", units.duration),
    Metric("mean_wait_s", "mean wait", units.duration),
    Metric("worst_fairness", "worst fairness", units.ratio),
    Metric("late_jobs", "late", units.count, only_if_any=True),
    Metric("gpu_hours", "GPU time held", units.hours),
    Metric("energy_j", "energy", units.energy),
    Metric("cost_usd", "cost of it", units.money, only_if_any=True),
)


def _users_table(frame: pl.DataFrame) -> str:
    rows = frame.head(_USERS_SHOWN).to_dicts()
    metrics = shown(_USER_METRICS, rows)
    columns = {metric.key: in_one_unit(metric, rows) for metric in metrics}
    head = "".join(f'<th scope="col" class="n">{_titled(m.title, columns[m.key][0])}</th>' for m in metrics)
    body = "".join(
        f'<tr><th scope="row">{escape(str(row["user"]))}</th>'
        + "".join(f'<td class="n">{columns[m.key][1][number]}</td>' for m in metrics)
        + "</tr>"
        for number, row in enumerate(rows)
    )
    more = frame.height - len(rows)
    note = f'<p class="hint">and {more:,} more users; all jobs are in jobs.parquet</p>' if more > 0 else ""
    table = f'<table><thead><tr><th scope="col">user</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide" tabindex="0">{table}</div>{note}'


def in_one_unit(metric: Metric, rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The unit that suits the middle of all values, and each value in it."""
    values = [row.get(metric.key) for row in rows]
    numbers = sorted(abs(float(v)) for v in values if isinstance(v, int | float) and math.isfinite(v))
    middle = numbers[len(numbers) // 2] if numbers else 0.0
    by, unit, formatter = 1.0, "", metric.format
    if metric.format in _SCALED:
        (by, unit), formatter = units.axis_scale(middle, metric.format), units.digits
    elif metric.format is units.fraction:
        by, unit, formatter = 0.01, "%", lambda value: f"{value:.1f}"
    elif metric.format is units.hours:
        unit, formatter = "h", units.digits
    elif metric.format is units.money:
        unit, formatter = "$", lambda value: f"{value:,.0f}" if middle >= 100.0 else f"{value:,.2f}"
    texts = [units.text(v / by if isinstance(v, int | float) else None, formatter) for v in values]
    return unit, texts


def run_name(name: str, result: Result) -> str:
    """With a mark where the policy knew what nobody can know."""
    mark = ' <span class="badge warn" title="knows how long jobs run">oracle</span>' if result.needs_oracle else ""
    return breakable(name) + mark


def breakable(name: str) -> str:
    """A policy's name that may break after a comma or a colon, and nowhere else."""
    return re.sub(r"(?<=[,:])", "<wbr>", escape(name, quote=False))


def _titled(title: str, unit: str) -> str:
    return f"{escape(title)} ({escape(unit)})" if unit else escape(title)


def _cell(metric: Metric, result: Result, text: str, is_best: bool) -> str:
    exact = f"{metric.key} = {result.summary.get(metric.key)}"
    kind = "n best" if is_best else "n"
    return f'<td class="{kind}" title="{escape(exact)}">{escape(text)}</td>'
