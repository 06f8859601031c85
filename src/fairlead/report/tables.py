"""Rich tables: one run by theme, or several side by side with the best of each column marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fairlead.report.metrics import COMPARED, GROUPS, Metric, Summary, best, shown

if TYPE_CHECKING:
    from fairlead.sim.result import Result

BEST_MARK = "*"


def one_run(result: Result) -> Group:
    """All that is said of one run."""
    table = Table(show_header=False, pad_edge=False, box=None)
    table.add_column("metric", style="dim")
    table.add_column("value", justify="right", style="bold")
    for group, metrics in GROUPS:
        told = shown(metrics, [result.summary])
        if told:
            table.add_row(Text(group, style="bold cyan not dim"), "")
        for metric in told:
            table.add_row(Text(f"  {metric.title}"), Text(metric.text(result.summary)))
    setting = Text(f"{result.trace} on {result.cluster}", style="dim")
    return Group(Text(result.policy, style="bold"), setting, table)


def comparison(runs: Mapping[str, Result], console: Console, *, of: str = "policy") -> Table:
    """Runs side by side, a row each. Columns that do not fit the console go, the least telling first."""
    summaries = [result.summary for result in runs.values()]
    metrics = shown(COMPARED, summaries)
    unbounded = console.options.update_width(10_000)
    while True:
        table = _comparison(list(runs), summaries, metrics, of, name_width=max(16, console.width * 3 // 10))
        if len(metrics) <= 2 or Measurement.get(console, unbounded, table).maximum <= console.width:
            return table
        metrics.remove(max(metrics, key=lambda metric: metric.rank))


def by_part(runs: Mapping[str, Result], of: str) -> Table:
    """The mean completion time in every part under every policy."""
    table = Table(title=f"mean JCT by {of}", title_justify="left", pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column(of, style="bold", overflow="fold")
    table.add_column("jobs", justify="right")
    for name in runs:
        table.add_column(name, justify="right")
    mean_jct = COMPARED[0]
    for part, first in next(iter(runs.values())).parts.items():
        cells = [mean_jct.text(result.parts[part].summary) for result in runs.values()]
        table.add_row(Text(part), f"{first.summary['jobs']:,}", *cells)
    return table


def _comparison(
    names: Sequence[str], summaries: Sequence[Summary], metrics: Sequence[Metric], of: str, name_width: int
) -> Table:
    compares = of == "policy"
    caption = f"{BEST_MARK} best of its column; JCT is job completion time" if compares and len(names) > 1 else None
    table = Table(caption=caption, caption_justify="left", pad_edge=False, header_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(of, style="bold", overflow="fold", max_width=name_width)
    winners = {metric.key: best(metric, summaries) if compares else () for metric in metrics}
    for metric in metrics:
        table.add_column(metric.title, justify="right", no_wrap=True)
    for number, (name, summary) in enumerate(zip(names, summaries, strict=True)):
        cells = [_cell(metric.text(summary), number in winners[metric.key]) for metric in metrics]
        table.add_row(Text(name), *cells)
    return table


def _cell(text: str, is_best: bool) -> Text:
    # The blank keeps the numbers of a column in line beside one that carries the mark.
    return Text(f"{text} {BEST_MARK}", style="bold green") if is_best else Text(f"{text}  ")
