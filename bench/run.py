"""All benchmarks, one after the other; fails if a bound is not met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "simulator.py",
    "reading.py",
    "placing.py",
    "sharing.py",
    "queueing.py",
    "fair.py",
    "predictions.py",
    "matching.py",
    "predictor.py",
    "shim.py",
    "live_submit.py",
    "live_day.py",
    "page.py",
)


def main() -> None:
    here = Path(__file__).parent
    failed = []
    for script in SCRIPTS:
        print(f"== {script}", flush=True)
        if subprocess.run([sys.executable, here / script], check=False).returncode:
            failed.append(script)
    if failed:
        sys.exit(f"not within bounds: {', '.join(failed)}")


if __name__ == "__main__":
    main()
