"""What the HTML report says."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from fairlead.report import html, html_tables, lines, units
from fairlead.report.claims import Claim, Figure, Reproduction
from fairlead.report.metrics import Metric
from tests.made_up_results import MakeResult


def test_a_column_has_one_unit_which_stands_in_its_head() -> None:
    metric = Metric("wait_s", "wait", units.duration)
    rows = [{"wait_s": value} for value in (30.0, 7200.0, 36000.0, None, float("nan"))]
    assert html_tables.in_one_unit(metric, rows) == ("h", ["0.00833", "2.00", "10.0", "–", "–"])
    assert html_tables.in_one_unit(Metric("x", "x", units.fraction), [{"x": 0.5}]) == ("%", ["50.0"])
    assert html_tables.in_one_unit(Metric("x", "x", units.money), [{"x": 12.5}, {"x": 3.0}]) == ("$", ["12.50", "3.00"])
    assert html_tables.in_one_unit(Metric("x", "x", units.count), [{"x": 1200}]) == ("", ["1,200"])


def test_numbers_of_the_comparison_carry_no_units_of_their_own(make_result: MakeResult) -> None:
    table = html_tables.comparison({"fast": make_result(), "slow": make_result(slowness=50.0)})
    assert "mean JCT (h)" in table or "mean JCT (d)" in table
    cells = re.findall(r'<td class="n[^"]*"[^>]*>([^<]*)</td>', table)
    assert all(re.fullmatch(r"[\d.,–]+|inf", cell) for cell in cells), cells


def test_policies_that_know_the_future_are_marked_and_win_no_headline(make_result: MakeResult) -> None:
    honest, slow = make_result(), make_result(slowness=2.0)
    knowing = replace(make_result(slowness=0.5), needs_oracle=True)
    text = html.page({"honest": honest, "slow": slow, "knowing": knowing})
    assert re.search(r'knowing <span class="badge warn"[^>]*>oracle</span>', text)
    assert "know how long each job will run" in text
    assert set(re.findall(r'<div class="note">([^<]*)</div>', text)) == {"honest"}
    assert '"oracles":[2]' in text
    assert ">oracle<" not in html.page({"honest": honest, "slow": slow})


def test_users_are_told_apart_by_what_they_held(make_result: MakeResult) -> None:
    result = make_result(gpu_hours_paid=100.0, cost_usd=200.0)
    table = html_tables.users({"one": result})
    held_h = result.jobs.filter(result.jobs["user"] == "user-0")["gpu_s"].sum() / 3600.0
    assert f"{2 * held_h:,.0f}" in table
    assert table.count("<tr>") == 4
    assert html_tables.users({"one": make_result(jobs=1)}) == "", "one user is everybody"


def test_completion_times_of_all_runs_are_on_common_points(make_result: MakeResult) -> None:
    runs = {"fast": make_result(), "slow": make_result(slowness=4.0)}
    cdf = lines.of_runs(runs)[0]
    assert [line[-1] for line in cdf["lines"]] == [100.0, 100.0]
    fast, slow = (np.array(line) for line in cdf["lines"])
    assert (fast >= slow).all()
    assert len(cdf["x"]) == len(fast) == lines.POINTS


def test_lines_over_time_keep_the_area_and_end_with_their_run(make_result: MakeResult) -> None:
    runs = {"fast": make_result(), "slow": make_result(slowness=2.0)}
    power = next(chart for chart in lines.of_runs(runs) if chart["title"] == "Power")
    slow = runs["slow"].timeline
    joules = float((slow["power_w"] * (slow["end_s"] - slow["start_s"])).sum())
    assert power["unit"] == "kW"
    assert np.mean(power["lines"][1]) * 1000.0 * 800_000.0 == pytest.approx(joules, rel=1e-3)
    assert (power["lines"][0][-1], power["lines"][0][0] is not None) == (None, True)


def test_a_run_without_jobs_has_a_page(make_result: MakeResult) -> None:
    empty = make_result(jobs=0, intervals=0)
    assert "Setting" in html.page({"one": empty, "two": empty})


def test_a_reproduction_has_its_claims_with_verdicts_and_its_figures() -> None:
    rows = [Claim("<b>faster", "%", 10.0, 11.0, True), Claim("greener", "%", None, 1.0, False, "why not")]

    def draw(axes: Axes) -> None:
        for number in range(7):
            axes.plot([1, 2], [3, number], "--" if number else "-", label=f"line {number}")
        axes.bar([1.5], [2], label="bar")
        axes.axhline(1.0)
        axes.legend()

    figure = Figure("gain", "Gain", draw)
    text = html.reproduction(Reproduction("PAL", "made up", rows, (figure,)))
    assert ("&lt;b&gt;faster" in text, "1 of 2" in text, "why not" in text) == (True, True, True)
    assert re.findall(r'badge (\w+)">', text) == ["good", "bad"]
    assert text.count("data:image/svg+xml;base64,") == 1 + 8, "the ground, and a picture for each line"
    assert re.findall(r'data-layer="gain-(\d)" checked', text) == list("01234")
    assert text.count(" hidden src=") == 3
    assert re.findall(r'data-line="3px (\w+) #', text) == ["solid", *["dashed"] * 6, "solid"]
