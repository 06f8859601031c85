from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from fairlead.report import tables
from fairlead.sim.result import Result

MakeResult = Callable[..., Result]


def _printed(renderable: object, width: int = 200) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(renderable)
    return text.getvalue()


def _compared(runs: dict[str, Result], width: int = 200) -> str:
    return _printed(tables.comparison(runs, Console(width=width)), width)


def test_one_run_is_told_in_human_units(make_result: MakeResult) -> None:
    text = _printed(tables.one_run(make_result(makespan_s=7200.0 * 2, energy_j=3.6e9)))
    assert "4.00 h" in text
    assert "1.00 MWh" in text
    assert "made-up on 16 nodes x 4 V100" in text


def test_the_best_of_each_column_is_marked(make_result: MakeResult) -> None:
    lines = _compared({"slow": make_result(slowness=2.0), "fast": make_result()}).splitlines()
    slow, fast = (next(line for line in lines if name in line) for name in ("slow", "fast"))
    assert "*" not in slow
    assert fast.count("*") == 6
    assert "best of its column" in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_columns_go_until_the_table_fits_the_terminal(make_result: MakeResult, width: int) -> None:
    runs = {"ordering=fifo:backfill=greedy,placing=spread": make_result(), "b": make_result(slowness=2.0)}
    lines = _compared(runs, width).splitlines()
    assert max(map(len, lines)) <= width
    assert "mean JCT" in lines[1]
    assert "…" not in "".join(lines)


def test_names_in_brackets_are_text_not_markup(make_result: MakeResult) -> None:
    assert "[red]x[/red]" in _compared({"[red]x[/red]": make_result(), "y": make_result()})
