"""How fast the simulator is, and how time and memory grow with the number of jobs.

Every row is one `fairlead simulate` in a process of its own, so start-up and reading the trace are in the figure.
Seconds are of CPU, user and system together: what others do on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

PHILLY = {"fifo": 2.0, "fifo-greedy": 2.0, "fifo-easy": 4.0, "sjf": 2.0, "las": 20.0, "srtf": 20.0}
"""Bounds in seconds; what preempts decides twice as often, and never runs in columns."""


@dataclass
class Row:
    what: str
    jobs: int
    seconds: float
    peak_mib: float
    bound: str
    met: bool


def run(*arguments: str) -> tuple[dict[str, float], float, float]:
    """The JSON of a command, its CPU seconds and its peak memory."""
    process = subprocess.Popen([FAIRLEAD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    if status:
        sys.exit(f"fairlead {' '.join(arguments)} failed")
    return (json.loads(out) if "--json" in arguments else {}), seconds, usage.ru_maxrss / 1024


def simulate(what: str, bound_s: float, *arguments: str, bound_mib: float | None = None) -> Row:
    result, seconds, peak_mib = run("simulate", *arguments, "--json")
    bound = f"{bound_s:g} s" + (f", {bound_mib:g} MiB" if bound_mib else "")
    met = seconds < bound_s and (bound_mib is None or peak_mib < bound_mib)
    row = Row(what, int(result["jobs"]), round(seconds, 2), round(peak_mib), bound, met)
    print(
        f"{row.seconds:8.2f} s {row.peak_mib:6.0f} MiB  {'ok ' if met else 'OVER'} ({bound})  {what}", file=sys.stderr
    )
    return row


def rows(data: Path) -> list[Row]:
    found = []
    seconds = min(run("--help")[1] for _ in range(3))
    found.append(Row("--help", 0, round(seconds, 2), 0, "0.5 s", seconds < 0.5))
    philly = data / "philly" / "philly.csv"
    if philly.is_file():
        for shape in ("300x8", "60x8"):
            for policy, bound_s in PHILLY.items():
                arguments = ("--trace", str(philly), "--cluster", shape, "--policy", policy)
                found.append(simulate(f"Philly, {policy}, {shape}", bound_s, *arguments))
    else:
        print(f"no {philly}: Philly rows left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/helios.parquet"
        spec = "philly:cluster_gpus=6416:load=0.95:max_gpus=2048"
        run("traces", "generate", spec, "--jobs", "1500000", "--seed", "1", "--out", trace)
        for policy in ("fifo", "fifo-greedy"):
            arguments = ("--trace", trace, "--cluster", "802x8", "--policy", policy)
            found.append(simulate(f"1,500,000 Helios-like, {policy}, 802x8", 45.0, *arguments, bound_mib=1024.0))
        for jobs in (100_000, 1_000_000):
            trace = f"{folder}/{jobs}.parquet"
            spec = "philly:cluster_gpus=10000:load=0.9"
            run("traces", "generate", spec, "--jobs", str(jobs), "--seed", "1", "--out", trace)
            # Asked by the general loop: there is none in columns for this placing.
            arguments = ("--trace", trace, "--cluster", "1250x8", "--policy", "fifo,placing=spread")
            found.append(simulate(f"{jobs:,} Philly-like, fifo spread, 1250x8", 90.0, *arguments, bound_mib=2048.0))
        growth = (found[-1].seconds / found[-1].jobs) / (found[-2].seconds / found[-2].jobs)
        found.append(Row("time per job, 1M over 100k", 0, round(growth, 2), 0, "1.5 x", growth < 1.5))
        trace = f"{folder}/las.parquet"
        run(
            "traces",
            "generate",
            "philly:cluster_gpus=64:load=1.2:max_gpus=32",
            "--jobs",
            "10000",
            "--seed",
            "1",
            "--out",
            trace,
        )
        for policy in ("las", "las:queues=0", "las,placing=packed-nonsticky", "srtf"):
            arguments = ("--trace", trace, "--cluster", "16x4", "--policy", policy, "--round-s", "360")
            found.append(simulate(f"10,000 Philly-like, {policy}, rounds of 360 s, 16x4", 60.0, *arguments))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = rows(options.data)
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        for row in found:
            verdict = "ok  " if row.met else "OVER"
            print(f"{verdict} {row.seconds:8.2f} (bound {row.bound}) {row.peak_mib:5.0f} MiB {row.what}")
    sys.exit(not all(row.met for row in found))


if __name__ == "__main__":
    main()
