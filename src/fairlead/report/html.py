"""One HTML page that stands alone: style and plots are inside it, and it loads nothing from anywhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fairlead.report import plots
from fairlead.report.metrics import COMPARED, GROUPS, Metric, best, shown
from fairlead.report.style import CSS

if TYPE_CHECKING:
    from fairlead.sim.result import Result

Runs = Mapping[str, "Result"]


def page(runs: Runs, *, command: str = "") -> str:
    """The whole page for one run or several; `command` is how to get it again."""
    first = next(iter(runs.values()))
    many = len(runs) > 1
    title = f"{len(runs)} policies compared" if many else next(iter(runs))
    sections = [
        _headlines(runs) if many else _cards(first),
        _section("Results", _comparison(runs)) if many else "",
        _section("Plots", _figures(runs)),
        _section("All numbers", _groups(runs)),
        _section("Setting", _setting(runs, command)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Fairlead</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        f'<header><p class="brand">Fairlead</p><h1>{escape(title)}</h1>'
        f'<p class="lead">{escape(first.trace)} <span>on</span> {escape(first.cluster)}</p></header>\n'
        + "\n".join(filter(None, sections))
        + f"\n<footer>Made by Fairlead {escape(_version())}</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _headlines(runs: Runs) -> str:
    """Who wins on what a reader asks first."""
    summaries = [result.summary for result in runs.values()]
    names = list(runs)
    cards = []
    for metric in shown(COMPARED, summaries):
        winners = best(metric, summaries)
        if metric.key in ("mean_jct_s", "p99_jct_s", "makespan_s", "gpus_paid_mean", "energy_j") and winners:
            names_won = ", ".join(names[n] for n in sorted(winners))
            cards.append(_card(f"best {metric.title}", metric.text(summaries[min(winners)]), names_won))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _cards(result: Result) -> str:
    chosen = ("mean_jct_s", "mean_wait_s", "gpu_busy_frac", "gpus_paid_mean", "energy_j")
    metrics = {metric.key: metric for metric in shown(COMPARED, [result.summary])}
    cards = [_card(metrics[key].title, metrics[key].text(result.summary), "") for key in chosen if key in metrics]
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(title: str, value: str, note: str) -> str:
    return f'<div class="card"><p>{escape(title)}</p><strong>{escape(value)}</strong><em>{_breakable(note)}</em></div>'


def _comparison(runs: Runs) -> str:
    summaries = [result.summary for result in runs.values()]
    metrics = shown(COMPARED, summaries)
    winners = {metric.key: best(metric, summaries) for metric in metrics}
    head = "".join(f'<th scope="col" class="n">{escape(metric.title)}</th>' for metric in metrics)
    rows = []
    for number, (name, result) in enumerate(runs.items()):
        cells = "".join(_cell(metric, result, number in winners[metric.key]) for metric in metrics)
        rows.append(f'<tr><th scope="row" class="name">{_breakable(name)}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><thead><tr><th scope="col">policy</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        '<p class="hint">The best of each column is marked. JCT is job completion time, from submission to the end. '
        "Hold the pointer over a number for its exact value.</p>"
    )


def _cell(metric: Metric, result: Result, is_best: bool) -> str:
    exact = f"{metric.key} = {result.summary.get(metric.key)}"
    kind = "n best" if is_best else "n"
    return f'<td class="{kind}" title="{escape(exact)}">{escape(metric.text(result.summary))}</td>'


def _figures(runs: Runs) -> str:
    if not plots.available():
        return f'<p class="hint">{escape(plots.INSTALL_HINT)}</p>'
    figures = "".join(_figure(plot, runs) for plot in plots.of_runs(runs))
    return f'{_legend(runs) if len(runs) > 1 else ""}<div class="plots">{figures}</div>'


def _legend(runs: Runs) -> str:
    """One key for all plots."""
    items = []
    for number, name in enumerate(runs):
        colour, dashes = plots.look(number)
        dashed = f' stroke-dasharray="{" ".join(str(3 * d) for d in dashes)}"' if dashes else ""
        stroke = f'<line x1="0" y1="5" x2="28" y2="5" stroke="{colour}" stroke-width="3"{dashed}/>'
        items.append(f'<li><svg width="28" height="10" aria-hidden="true">{stroke}</svg>{_breakable(name)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(plot: plots.Plot, runs: Runs) -> str:
    # In an img, not inline: the ids inside one SVG cannot meet those of another, and no script in it can run.
    data = base64.b64encode(plots.save(plot, runs, "svg", legend=False)).decode("ascii")
    return (
        f'<figure><img alt="{escape(f"{plot.title}. {plot.says}")}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{escape(plot.says)}</figcaption></figure>"
    )


def _groups(runs: Runs) -> str:
    """Every metric by theme, one column per run; the themes of a single run stand side by side."""
    summaries = [result.summary for result in runs.values()]
    groups = []
    for group, metrics in GROUPS:
        told = shown(metrics, summaries)
        if not told:
            continue
        rows = f'<tr class="group"><th colspan="{1 + len(runs)}">{escape(group)}</th></tr>'
        for metric in told:
            cells = "".join(_cell(metric, result, False) for result in runs.values())
            rows += f'<tr><th scope="row">{escape(metric.title)}</th>{cells}</tr>'
        groups.append(f"<tbody>{rows}</tbody>")
    if len(runs) == 1:
        return f'<div class="themes">{"".join(f"<div><table>{group}</table></div>" for group in groups)}</div>'
    head = "".join(f'<th scope="col" class="n">{_breakable(name)}</th>' for name in runs)
    return (
        f'<div class="wide"><table class="all"><thead><tr><th scope="col"></th>{head}</tr></thead>'
        f"{''.join(groups)}</table></div>"
    )


def _setting(runs: Runs, command: str) -> str:
    first = next(iter(runs.values()))
    items = [("trace", escape(first.trace)), ("cluster", escape(first.cluster))]
    items += [(name, f"<code>{escape(result.policy)}</code>") for name, result in runs.items()]
    terms = "".join(f"<dt>{_breakable(term)}</dt><dd>{said}</dd>" for term, said in items)
    body = f"<dl>{terms}</dl>"
    notes = dict.fromkeys(note for result in runs.values() for note in result.notes)
    if notes:
        body += f"<h3>Notes</h3><ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"
    if command:
        body += f"<h3>Run it again</h3><pre>{escape(command)}</pre>"
    return body


def _breakable(name: str) -> str:
    """A policy's name that may break after a comma or a colon, and nowhere else."""
    return re.sub(r"(?<=[,:])", "<wbr>", escape(name, quote=False))


def _version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return ""
