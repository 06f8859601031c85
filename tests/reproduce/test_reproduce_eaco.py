"""The reproduction of EaCO: its form without data, and what it must show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.interference import built_in
from fairlead.reproduce import eaco
from fairlead.reproduce import eaco_setting as setting
from fairlead.sim.parallel import run_all

FAIRLEAD = Path(sys.executable).with_name("fairlead")


def reproduced(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [FAIRLEAD, "reproduce", "eaco", "--json", *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def not_held(rows: list[dict[str, Any]], *parts: str) -> list[str]:
    chosen = [row for row in rows if all(part in row["claim"] for part in parts)]
    assert chosen, parts
    return [row["claim"] for row in chosen if not row["holds"]]


def must_hold(rows: list[dict[str, Any]]) -> list[str]:
    return [
        *not_held(rows, "energy saved against", "28 nodes at 80 %", "(a)"),
        *not_held(rows, "energy saved against", "64 nodes", "(a)"),
        *not_held(rows, "mean active nodes saved"),
        *not_held(rows, "empty history: part of the saving"),
        *not_held(rows, "late though alone they would not have been", "nodes"),
    ]


def test_without_data_all_but_chronus_runs_and_it_says_so(tmp_path: Path) -> None:
    found = reproduced("--out", str(tmp_path))
    rows = found["rows"]
    assert found["paper"] == "eaco"
    assert "the Chronus SLO trace needs --data and is left out" in found["data"]
    assert len({row["claim"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"claim", "unit", "paper", "ours", "holds", "note"}
        assert isinstance(row["ours"], float)
        assert row["holds"] or row["note"], row
        assert "Chronus" not in row["claim"]
    sets = [row for row in rows if row["claim"].startswith(("power of", "energy of", "JCT of"))]
    assert len(sets) == 30
    assert all(abs(row["ours"] / row["paper"] - 1.0) <= 0.03 and row["holds"] for row in sets)
    assert must_hold(rows) == []
    assert json.loads((tmp_path / "claims.json").read_text()) == found
    assert {p.name for p in tmp_path.glob("*.png")} == {"energy.png", "tradeoff.png"}


def test_on_the_chronus_trace_sharing_makes_nobody_late(shared_data: Path) -> None:
    planned = {key: run for key, run in setting.planned(shared_data).items() if key[0] == "chronus"}
    found = dict(zip(planned, run_all(list(planned.values())), strict=True))
    claims = eaco._chronus_rows(found)
    assert len(claims) == 3
    assert [claim for claim in claims if not claim.holds] == []


def test_a_folder_without_the_trace_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [FAIRLEAD, "reproduce", "eaco", "--data", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "trace_job_Philly_SLO.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_sets_that_were_not_measured_are_no_better_than_those_that_were() -> None:
    true, measured = setting.truth(), built_in("eaco")
    assert len(true) == 10 + 20 + 35
    for names, row in measured:
        assert dict(true)[names] == row
    unmeasured: dict[int, list[float]] = {2: [], 3: [], 4: []}
    for names, row in true:
        if names not in dict(measured):
            unmeasured[len(names)] += row.speeds
    best = {size: max(s for names, row in measured if len(names) == size for s in row.speeds) for size in unmeasured}
    assert all(max(speeds) < best[size] for size, speeds in unmeasured.items())


def test_the_tables_alone_exclude_both_headlines() -> None:
    (pairs_longer, pairs_saved), (triples_longer, triples_saved) = setting.pairs_and_triples()
    assert pairs_saved == pytest.approx(31, abs=0.5)
    assert triples_saved == pytest.approx(43.4, abs=0.5)
    assert 3.23 < pairs_longer < triples_longer
