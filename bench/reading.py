"""How time and memory of reading a trace grow with its rows.

Files are made in the layout of Helios's log (about half of the rows ask for a GPU) and in our own, and described by
`fairlead traces describe` in a process of its own. Seconds of CPU depend on the machine, so they are bounded by growth:
the CPU of a row at ten times the rows.
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

import numpy as np
import polars as pl

FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))
SIZES = (340_000, 3_400_000)
GROWTH = 1.3
"""Of CPU a row, from the smaller file to the larger."""
MOST_MIB = 1024.0


@dataclass
class Row:
    what: str
    rows: int
    file_mib: float
    cpu_s: float
    peak_mib: float


def helios(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    submit_s = np.sort(rng.integers(1_585_699_200, 1_601_424_000, rows))
    queue_s = np.where(rng.random(rows) < 0.6, 0, rng.exponential(600, rows).astype(np.int64))
    run_s = np.maximum(0, rng.lognormal(5.5, 2.2, rows).astype(np.int64))
    gpus = np.where(rng.random(rows) < 0.47, rng.choice([1, 2, 4, 8, 16], rows, p=[0.6, 0.1, 0.1, 0.15, 0.05]), 0)

    def moments(seconds: np.ndarray) -> pl.Series:
        return pl.from_epoch(pl.Series(seconds), time_unit="s").dt.strftime("%Y-%m-%d %H:%M:%S")

    return pl.DataFrame(
        {
            "job_id": np.arange(rows) + 1_000_000,
            "user": pl.Series([f"u{n:04d}" for n in range(300)])[rng.integers(300, size=rows)],
            "vc": pl.Series([f"vc{n:03d}" for n in range(25)])[rng.integers(25, size=rows)],
            "gpu_num": gpus,
            "cpu_num": 4 * gpus + 1,
            "node_num": np.maximum(1, gpus // 8),
            "state": pl.Series(["COMPLETED", "FAILED", "CANCELLED"])[rng.integers(3, size=rows)],
            "submit_time": moments(submit_s),
            "start_time": moments(submit_s + queue_s),
            "end_time": moments(submit_s + queue_s + run_s),
            "duration": run_s,
            "queue": queue_s,
        }
    )


def own(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "job_id": [f"job-{n:08d}-abcdef" for n in range(rows)],
            "submit_s": np.round(np.sort(rng.random(rows) * 2e7), 3),
            "gpus": rng.choice([1, 2, 4, 8], rows),
            "duration_s": np.round(rng.lognormal(5, 2, rows), 3) + 0.01,
            "user": pl.Series([f"u{n}" for n in range(300)])[rng.integers(300, size=rows)],
        }
    )


MADE = {"helios": helios, "fairlead": own}


def described(what: str, path: Path, rows: int) -> Row:
    process = subprocess.Popen(
        [FAIRLEAD, "traces", "describe", str(path), "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    found = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    if status or not found["jobs"]:
        sys.exit(f"fairlead traces describe {path} failed")
    cpu_s, peak_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    row = Row(what, rows, round(path.stat().st_size / 2**20, 1), round(cpu_s, 2), round(peak_mib))
    print(f"{row.cpu_s:6.2f} s of CPU {row.peak_mib:6.0f} MiB  {rows:>9,} rows, {what}", file=sys.stderr)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--make", nargs=3, metavar=("LAYOUT", "ROWS", "FILE"), help="only make a file")
    options = parser.parse_args()
    if options.make:
        layout, rows, path = options.make
        MADE[layout](int(rows)).write_csv(path)
        return
    found: list[Row] = []
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,1,1\n")
        start = described("start-up", Path(folder) / "tiny.csv", 1)
        for what in MADE:
            for rows in SIZES:
                path = Path(folder) / f"{what}-{rows}.csv"
                # In another process: what a process has used before counts as used by those that it starts.
                subprocess.run([sys.executable, __file__, "--make", what, str(rows), path], check=True)
                found.append(described(what, path, rows))
                path.unlink()
            small, large = found[-2:]
            growth = ((large.cpu_s - start.cpu_s) / large.rows) / ((small.cpu_s - start.cpu_s) / small.rows)
            print(f"{growth:6.2f} x the CPU of a row at ten times the rows ({what}, bound {GROWTH})", file=sys.stderr)
            if growth > GROWTH:
                failed.append(f"{what}: CPU a row grows {growth:.2f} x")
            if large.peak_mib > MOST_MIB:
                failed.append(f"{what}: {large.peak_mib:.0f} MiB")
    if options.json:
        print(json.dumps([asdict(row) for row in (start, *found)], indent=2))
    sys.exit("; ".join(failed) or 0)


if __name__ == "__main__":
    main()
