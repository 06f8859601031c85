"""`fairlead widths`: the table, its JSON, and mistakes in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app

TWO = """
[[type]]
name = "a"
arrival_rate_per_s = 0.4
mean_size_s = 1
amdahl = 0.8
[[type]]
name = "b"
arrival_rate_per_s = 0.4
mean_size_s = 1
power = 0.5
"""


def widths(tmp_path: Path, content: str, *arguments: str) -> tuple[int, str, str]:
    file = tmp_path / "types.toml"
    file.write_text(content)
    done = CliRunner().invoke(app, ["widths", "--types", str(file), *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_json_has_what_was_promised(tmp_path: Path) -> None:
    code, out, _ = widths(tmp_path, TWO, "--budget", "2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["mean_jct_s"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["gpus_mean"] == pytest.approx(2.0)
    assert found["gpus_std"] > 0
    assert [(t["name"], round(t["width"], 3)) for t in found["types"]] == [("a", 6.0), ("b", 9.0)]
    assert all(t["mean_jct_s"] > 0 for t in found["types"])


def test_whole_widths_where_they_are_asked_for(tmp_path: Path) -> None:
    whole = TWO.replace("amdahl = 0.8", "amdahl = 0.8\ninteger = true").replace(
        "power = 0.5", "power = 0.5\ninteger = true"
    )
    code, out, _ = widths(tmp_path, whole, "--budget", "1.7", "--json")
    found = json.loads(out)
    assert code == 0
    assert all(p["width"] == round(p["width"]) for t in found["types"] for p in t["parts"])
    assert found["gpus_mean"] == pytest.approx(1.7)


def test_the_plot_and_the_curve_are_written(tmp_path: Path) -> None:
    code, _, _ = widths(tmp_path, TWO, "--budget", "2", "--out", str(tmp_path / "out"))
    assert code == 0
    lines = (tmp_path / "out" / "curve.csv").read_text().splitlines()
    jcts = [float(line.split(",")[1]) for line in lines[1:]]
    assert jcts == sorted(jcts, reverse=True)
    assert (tmp_path / "out" / "curve.png").stat().st_size > 1000


def test_an_infeasible_budget_is_exit_3_and_names_the_smallest_feasible_one(tmp_path: Path) -> None:
    code, out, err = widths(tmp_path, TWO, "--budget", "0.5")
    assert (code, out) == (3, "")
    assert "smallest feasible budget is 0.8" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("power = 0.5", ""), "needs one of power, amdahl or widths"),
        (("power = 0.5", "power = 0.5\namdahl = 0.5"), "power and amdahl"),
        (("power = 0.5", "widths = [1, 2]"), "as many speedups as widths"),
        (("power = 0.5", "widths = [1, 2]\nspeedups = [1.0]"), "as many speedups as widths"),
        (("power = 0.5", "widths = [0, 2]\nspeedups = [1.0, 2.0]"), "at least 1"),
        (("power = 0.5", "widths = [1, 2]\nspeedups = [1.0, -2.0]"), "above 0"),
        (("power = 0.5", "power = 1.5"), "type.1.power"),
        (("mean_size_s = 1\npower", "mean_size_s = -1\npower"), "type.1.mean_size_s"),
        (('name = "b"', 'name = "a"'), "'a' is there twice"),
        (('name = "b"', 'name = "b"\ncolour = 1'), "type.1.colour"),
        (("[[type]]", "[[typ]]"), "type"),
    ],
)
def test_a_mistake_in_the_file_names_the_field(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    code, out, err = widths(tmp_path, TWO.replace(*change), "--budget", "2")
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
def test_a_budget_is_a_number_above_0(tmp_path: Path, budget: str) -> None:
    code, _, err = widths(tmp_path, TWO, "--budget", budget)
    assert code == 2
    assert "--budget" in err
