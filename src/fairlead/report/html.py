"""The HTML report of one run or several, and of a reproduced paper: each one file that loads nothing from anywhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from fairlead.report import claims_table, html_tables, lines, packed, plots
from fairlead.report.html_tables import breakable, run_name
from fairlead.report.metrics import COMPARED, best, shown
from fairlead.report.standalone import document

if TYPE_CHECKING:
    from fairlead.report.claims import Claim, Figure, Reproduction
    from fairlead.sim.result import Result

Runs = Mapping[str, "Result"]
_HEADLINES = ("mean_jct_s", "p99_jct_s", "makespan_s", "gpus_paid_mean", "energy_j", "cost_usd")
_FIRST_LAYERS = 5
_NO_SCRIPT = '<noscript><p class="hint">Charts and the rows of GPUs need JavaScript.</p></noscript>'
_ORACLE = (
    'Policies marked <span class="badge warn">oracle</span> know how long each job will run, which no scheduler does: '
    "take them as a bound."
)


def page(runs: Runs, *, command: str = "") -> str:
    """The whole page for one run or several; `command` is how to get it again."""
    first = next(iter(runs.values()))
    title = f"{len(runs)} policies compared" if len(runs) > 1 else next(iter(runs))
    drawn = {"charts": lines.of_runs(runs), "names": list(runs), "oracles": _oracles(runs)}
    timeline = packed.of_runs(runs)
    users = html_tables.users(runs)
    sections = [
        _headlines(runs) if len(runs) > 1 else _cards(first),
        _section("Results", html_tables.comparison(runs) + _reading(runs)) if len(runs) > 1 else "",
        _section("Over time and over jobs", f'{_NO_SCRIPT}<div class="plots" id="lines"></div>'),
        _section("GPUs over time", _NO_SCRIPT + '<div id="timeline"></div>') if timeline else _untold(runs),
        _section("Users", users) if users else "",
        _section("Energy and money", html_tables.energy_and_money(runs)),
        _section("All numbers", html_tables.all_numbers(runs)),
        _section("Setting", _setting(runs, command)),
    ]
    lead = f"{escape(first.trace)} on {escape(first.cluster)}"
    return document(title, lead, "\n".join(filter(None, sections)), {"lines": {"lines": drawn}, "timeline": timeline})


def reproduction(found: Reproduction) -> str:
    """The page of a paper: its claims beside ours, and the figures."""
    held = sum(row.holds for row in found.rows)
    rows = "".join(_claim(row) for row in found.rows)
    head = "".join(
        f'<th scope="col"{kind}>{title}</th>'
        for title, kind in (
            ("claim", ""), ("unit", ""), ("paper", ' class="n"'), ("ours", ' class="n"'), ("holds", ""), ("note", "")
        )
    )  # fmt: skip
    table = f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    figures = "".join(map(_figure, found.figures)) if plots.available() else ""
    sections = [
        f'<div class="cards">{_card("claims that hold", f"{held} of {len(found.rows)}", "")}</div>',
        _section("Claims", table),
        _section("Figures", f'<div class="plots">{figures}</div>') if figures else "",
    ]
    return document(f"{found.paper}, reproduced", escape(found.data), "\n".join(filter(None, sections)), {})


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _oracles(runs: Runs) -> list[int]:
    return [number for number, result in enumerate(runs.values()) if result.needs_oracle]


def _headlines(runs: Runs) -> str:
    """Who wins on what a reader asks first; whoever knows the future does not compete."""
    able = {name: result for name, result in runs.items() if not result.needs_oracle}
    summaries, names = [result.summary for result in able.values()], list(able)
    cards = []
    for metric in shown(COMPARED, summaries):
        winners = best(metric, summaries)
        if metric.key in _HEADLINES and winners:
            won = ", ".join(names[n] for n in sorted(winners))
            cards.append(_card(f"best {metric.title}", metric.text(summaries[min(winners)]), won))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _cards(result: Result) -> str:
    chosen = ("mean_jct_s", "mean_wait_s", "gpu_busy_frac", "gpus_paid_mean", "energy_j", "cost_usd")
    metrics = {metric.key: metric for metric in shown(COMPARED, [result.summary])}
    cards = [_card(metrics[key].title, metrics[key].text(result.summary), "") for key in chosen if key in metrics]
    if result.needs_oracle:
        cards.append(_card("oracle", "knows run times", "which no scheduler does: take it as a bound"))
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(title: str, value: str, note: str) -> str:
    return (
        f'<div class="card"><div class="title">{escape(title)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{breakable(note)}</div></div>'
    )


def _reading(runs: Runs) -> str:
    hint = (
        "The best of each column is marked. JCT is job completion time, from submission to the end. "
        "Hold the pointer over a number for its exact value."
    )
    return f'<p class="hint">{hint}{" " + _ORACLE if _oracles(runs) else ""}</p>'


def _untold(runs: Runs) -> str:
    if not any(result.parts for result in runs.values()):
        return ""
    return '<p class="hint">Each part ran on a cluster of its own; their GPUs are not drawn here.</p>'


def _setting(runs: Runs, command: str) -> str:
    first = next(iter(runs.values()))
    items = [("trace", escape(first.trace)), ("cluster", escape(first.cluster))]
    items += [(run_name(name, result), f"<code>{escape(result.policy)}</code>") for name, result in runs.items()]
    body = f'<dl class="facts">{"".join(f"<dt>{term}</dt><dd>{said}</dd>" for term, said in items)}</dl>'
    notes = dict.fromkeys(note for result in runs.values() for note in result.notes)
    if notes:
        body += f"<h3>Notes</h3><ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"
    if command:
        body += f"<h3>Run it again</h3><pre>{escape(command)}</pre>"
    return body


def _claim(row: Claim) -> str:
    verdict = '<span class="badge good">yes</span>' if row.holds else '<span class="badge bad">no</span>'
    figures = "".join(f'<td class="n">{escape(claims_table.number(value))}</td>' for value in (row.paper, row.ours))
    return (
        f'<tr><th scope="row">{escape(row.claim)}</th><td>{escape(row.unit)}</td>{figures}<td>{verdict}</td>'
        f"<td>{escape(row.note)}</td></tr>"
    )


def _figure(figure: Figure) -> str:
    """The ground, and over it a picture for each line, which a box shows or hides."""
    ground, layers = plots.save_layers(figure.draw)
    pictures, boxes = [_picture(ground, figure.title)], []
    for number, layer in enumerate(layers):
        is_shown = number < _FIRST_LAYERS
        name = f"{escape(figure.name)}-{number}"
        pictures.append(_picture(layer.svg, "", f' id="{name}"{"" if is_shown else " hidden"}'))
        style = "dashed" if layer.is_dashed else "solid"
        boxes.append(
            f'<label><input type="checkbox" data-layer="{name}"{" checked" if is_shown else ""}>'
            f'<span class="sample" data-line="3px {style} {escape(layer.colour)}"></span>{escape(layer.label)}</label>'
        )
    switches = f'<fieldset class="lines"><legend>Lines</legend>{"".join(boxes)}</fieldset>' if len(boxes) > 1 else ""
    layered = f'<div class="layers">{"".join(pictures)}</div>'
    return f"<figure><h3>{escape(figure.title)}</h3>{layered}{switches}</figure>"


def _picture(svg: bytes, alt: str, more: str = "") -> str:
    # In an img, not inline: the ids inside one SVG cannot meet those of another, and no script in it can run.
    return f'<img alt="{escape(alt)}"{more} src="data:image/svg+xml;base64,{base64.b64encode(svg).decode("ascii")}">'
