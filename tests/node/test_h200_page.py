"""The page about the H200 says what the results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fairlead

ROOT = Path(__file__).resolve().parents[2]


def test_its_tables_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, ROOT / "bench" / "gpu" / "report.py", "--check"], check=False)
    assert done.returncode == 0, "run: python bench/gpu/report.py"


def test_its_simulations_are_those_of_the_measured_tables() -> None:
    results = ROOT / "bench" / "gpu" / "results"
    page = " ".join((ROOT / "docs" / "h200.md").read_text(encoding="utf-8").split())

    def run(policy: str, **tables: Path) -> tuple[str, str]:
        profiles = results / "colocation.profiles.toml"
        found = fairlead.simulate(results / "jobs.csv", "1x1:H200", policy, profiles=profiles, **tables).summary
        return f"{found['mean_jct_s'] / 3600:.2f} h", f"{found['energy_j'] / 3.6e6:.1f}"

    turns = run("eaco", interference=results / "colocation.sliced.json")
    mps = run("eaco", interference=results / "colocation.mps.json")
    alone = run("fifo")
    assert f"after {turns[0]} on average if they take turns and {mps[0]} under MPS" in page
    assert f"use {turns[1]} and {mps[1]} kWh" in page
    assert f"after {alone[0]}, with {alone[1]} kWh" in page
