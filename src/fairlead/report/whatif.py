"""Predictions and comparisons of two futures as tables for people. Moments are told as seen from now."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.printable import printable
from fairlead.report import units
from fairlead.whatif import SUMMED, Comparison, JobChange, JobPrediction, Prediction

GUESS_MARK = "?"
SHOWN_JOBS = 40
"""Rows of a table of jobs; JSON has them all."""
_TITLES: dict[str, tuple[str, units.Formatter]] = {
    "mean_jct_s": ("mean JCT", units.duration),
    "makespan_s": ("until the last job ends", units.duration),
    "horizon_s": ("the totals below are of the next", units.duration),
    "gpu_hours": ("GPU-hours", units.hours),
    "energy_j": ("energy", units.energy),
    "cost_usd": ("cost", units.money),
    "missed_deadlines": ("missed deadlines", units.count),
    "never_start": ("jobs that never start", units.count),
    "never_end": ("jobs that never end", units.count),
}
_NEVER = "never"
_GUESSED = f"{GUESS_MARK} its run time is a guess"


def prediction_table(prediction: Prediction) -> Group:
    """When each job starts and ends, as things are."""
    table = _table("job", "user", "GPUs", "starts", "ends", "in time", caption=_caption(prediction.jobs))
    for job in prediction.jobs[:SHOWN_JOBS]:
        table.add_row(_name(job), Text(job.user), str(job.gpus), _start(job), _end(job, prediction), _in_time(job))
    figures = Table(show_header=False, pad_edge=False, box=None)
    figures.add_column(style="dim")
    figures.add_column(justify="right", style="bold")
    for key in SUMMED:
        title, formatter = _TITLES[key]
        figures.add_row(title, units.text(prediction.summary[key], formatter))
    return Group(*_setting(prediction), figures, table, *_rest(prediction.jobs))


def comparison_table(comparison: Comparison) -> Group:
    """The figures of both futures, and the jobs that they treat differently."""
    as_is, what_if = comparison.as_is, comparison.what_if
    figures = _table("", "as it is", "what if", "change")
    for key, (before, after) in comparison.summary.items():
        title, formatter = _TITLES[key]
        difference = None if before is None or after is None else after - before
        values = (units.text(before, formatter), units.text(after, formatter), _signed(difference, formatter))
        figures.add_row(title, *values)
    moved = [change for change in comparison.jobs if _is_moved(change)]
    caption = _caption([job for change in moved for job in (change.as_is, change.what_if) if job is not None])
    table = _table("job", "GPUs", "starts", "what if", "ends", "what if", "change", caption=caption)
    for change in moved[:SHOWN_JOBS]:
        table.add_row(*_change_row(change, as_is, what_if))
    heading = Text(f"what if: {', '.join(comparison.changed) or 'nothing changes'}", style="bold")
    same = f"{len(comparison.jobs) - len(moved)} jobs start and end as before"
    told: list[RenderableType] = [table, *_rest(moved)] if moved else []
    return Group(heading, *_setting(what_if), figures, *told, Text(same, style="dim"))


def _setting(prediction: Prediction) -> list[Text]:
    fake = " (fake GPUs)" if prediction.is_fake else ""
    return [Text(f"{prediction.policy} on {prediction.cluster}{fake}", style="dim")]


def _table(*columns: str, caption: str | None = None) -> Table:
    table = Table(caption=caption, caption_justify="left", pad_edge=False, header_style="bold", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        first = column in ("job", "user") or number == 0
        table.add_column(column, justify="left" if first else "right", overflow="fold")
    return table


def _change_row(change: JobChange, as_is: Prediction, what_if: Prediction) -> list[Text | str]:
    before, after = change.as_is, change.what_if
    either = before or after
    assert either is not None
    return [
        _name(either),
        str(either.gpus),
        _start(before) if before is not None else units.MISSING,
        _start(after) if after is not None else units.MISSING,
        _end(before, as_is) if before is not None else units.MISSING,
        _end(after, what_if) if after is not None else units.MISSING,
        _signed(change.end_change_s, units.duration),
    ]


def _is_moved(change: JobChange) -> bool:
    if change.as_is is None or change.what_if is None:
        return True
    return (change.as_is.start_s, change.as_is.end_s) != (change.what_if.start_s, change.what_if.end_s)


def _name(job: JobPrediction) -> Text:
    return Text(f"{printable(job.name)} ({job.id}){f' {GUESS_MARK}' if job.is_guess else ''}")


def _start(job: JobPrediction) -> str:
    if job.state == "running" and job.wait_s == 0.0:
        return "runs"
    return _NEVER if job.wait_s is None else _ahead(job.wait_s)


def _end(job: JobPrediction, prediction: Prediction) -> str:
    if job.end_s is None:
        return units.MISSING if job.kind == "service" else _NEVER
    return _ahead(job.end_s - prediction.now_s)


def _ahead(seconds: float) -> str:
    return f"in {units.duration(seconds)}" if seconds > 0.0 else "now"


def _in_time(job: JobPrediction) -> Text:
    if job.meets_deadline is None:
        return Text(units.MISSING)
    return Text("yes", style="green") if job.meets_deadline else Text("no", style="bold red")


def _signed(value: float | None, formatter: units.Formatter) -> str:
    if value is None:
        return units.MISSING
    return formatter(0.0) if value == 0 else f"{'+' if value > 0 else '-'}{formatter(abs(value))}"


def _caption(jobs: Sequence[JobPrediction]) -> str | None:
    return _GUESSED if any(job.is_guess for job in jobs) else None


def _rest(jobs: Sequence[object]) -> list[Text]:
    left = len(jobs) - SHOWN_JOBS
    return [Text(f"... and {left} more; --json has them all", style="dim")] if left > 0 else []
