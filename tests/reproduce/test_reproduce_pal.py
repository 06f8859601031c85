"""The reproduction of PAL: its form on synthetic data, its figures on the public data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAIRLEAD = Path(sys.executable).with_name("fairlead")


def reproduced(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [FAIRLEAD, "reproduce", "pal", "--json", *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_data_it_runs_on_synthetic_data_and_says_so(tmp_path: Path) -> None:
    found = reproduced("--out", str(tmp_path))
    assert found["paper"] == "pal"
    assert "synthetic" in found["data"]
    for row in found["rows"]:
        assert set(row) == {"claim", "unit", "paper", "ours", "holds", "note"}
        assert isinstance(row["ours"], float)
        assert row["holds"] or row["note"], row
    assert json.loads((tmp_path / "claims.json").read_text()) == found
    assert {p.name for p in tmp_path.glob("*.png")} == {"traces.png", "locality.png", "outlier.png"}


def test_with_the_public_data_the_published_figures_hold(shared_data: Path) -> None:
    rows = {row["claim"]: row for row in reproduced("--data", str(shared_data))["rows"]}
    published = [row for claim, row in rows.items() if "workload-" in claim]
    assert len(published) == 40
    assert all(row["holds"] for row in published)
    must_hold = [
        "PM-First, mean JCT saved against packed-sticky (geomean)",
        "PAL, mean JCT saved against packed-sticky (geomean)",
        *(claim for claim in rows if "corrected from" in claim),
        *(claim for claim in rows if claim.startswith("PAL against")),
    ]
    assert [claim for claim in must_hold if not rows[claim]["holds"]] == []
    assert all(row["holds"] or row["note"] for row in rows.values())


@pytest.mark.parametrize("arguments", [["nosuch"], ["pal", "--data", "/nonexistent"], ["pal", "--data", "."]])
def test_a_wrong_paper_or_folder_is_an_error(arguments: list[str]) -> None:
    done = subprocess.run([FAIRLEAD, "reproduce", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
