"""The page about the H200 says what the results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_its_tables_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, ROOT / "bench" / "gpu" / "report.py", "--check"], check=False)
    assert done.returncode == 0, "run: python bench/gpu/report.py"
