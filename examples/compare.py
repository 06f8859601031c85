"""Three policies on the example trace and cluster: a table, then the files of a report in out/example.

Run it in this folder: `python compare.py`.
"""

from __future__ import annotations

import polars as pl

import fairlead
from fairlead.report.write import write

POLICIES = ["fifo", "fifo-greedy", "tiresias"]


def main() -> None:
    """Compare, print, write."""
    results = fairlead.compare(POLICIES, "trace.csv", "cluster.toml", variability="variability.json", restart_s=30.0)
    for policy, result in zip(POLICIES, results, strict=True):
        worst = result.jobs.sort("wait_s").tail(1)
        print(
            f"{policy:12} mean JCT {result.summary['mean_jct_s']:8,.0f} s, "
            f"longest wait {worst['wait_s'].item():8,.0f} s ({worst['job_id'].item()})"
        )
    by_user = results[-1].jobs.group_by("user").agg(pl.col("gpu_s").sum(), pl.col("energy_j").sum()).sort("user")
    print(by_user)
    print("report:", write(results, "out/example", names=POLICIES).page)


# `compare` starts processes, each of which imports this file again: without this line they would start more.
if __name__ == "__main__":
    main()
