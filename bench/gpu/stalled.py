"""Four trainings that under-use the GPU, as behind a slow data loader: alone, taking turns, under MPS.

    PYTHONPATH=src python bench/gpu/stalled.py --out bench/gpu/results

Each job is a ResNet-18 training that waits 25 ms for data before every step. Joules are the GPU's own counter; those of
each job are the agent's. All jobs run under the shim, on CPU cores of their own.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from agents import running
from common import Metering, Stage, moments, pinned, steps, table, wait_until, word, write

JOBS = 4


def measure(stage: Stage, name: str, count: int, mps: bool, seconds: float) -> dict[str, Any]:
    paths = [stage.path(f"{name}-{i}.steps") for i in range(count)]
    with running(stage, mps=mps) as node:
        for i, path in enumerate(paths):
            command = word("training.py", "--model", "resnet18", "--batch", 32, "--stall-ms", 25, "--out", path)
            node.start(f"{name}-{i}", pinned(i, JOBS, command))
        wait_until(lambda: all(len(moments(path)) > 100 for path in paths), 120, "every job's first hundred steps")
        metering = Metering(stage.meter)
        time.sleep(1.0)
        before, begin_s = node.joules(), time.monotonic()
        time.sleep(seconds)
        after, end_s = node.joules(), time.monotonic()
        time.sleep(0.4)
        metering.stop()
        found = [steps(path, begin_s, end_s) for path in paths]
        meter = metering.summary(begin_s, end_s)
        processes = [s.processes for s in metering.samples if s.processes]
        events = node.events()
    done = sum(one["steps"] for one in found)
    jobs = {job: after[job] - before.get(job, 0.0) for job in after if job not in ("idle", "metered")}
    return {
        "name": name,
        "jobs": count,
        "step_ms": [1e3 * one["mean_s"] for one in found],
        "mean_step_ms": 1e3 * sum(one["mean_s"] for one in found) / count,
        "joules_per_step": meter["watts"] * (end_s - begin_s) / done,
        "meter": meter,
        "attributed_j": jobs,
        "attributed_sum_j": sum(jobs.values()),
        "attributed_idle_j": after["idle"] - before["idle"],
        "agent_metered_j": after["metered"] - before["metered"],
        "processes": [
            [p.__class__.__name__ and (p.pid, p.sm_frac, p.memory_mib) for p in one] for one in processes[-1:]
        ],
        "events": [event for event in events if event["what"] not in ("started",)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    runs = []
    with Stage() as stage:
        for name, count, mps in (("alone", 1, False), ("sliced", JOBS, False), ("mps", JOBS, True)):
            runs.append(measure(stage, name, count, mps, options.seconds))
    alone = runs[0]
    for one in runs:
        one["energy_saved_frac"] = 1.0 - one["joules_per_step"] / alone["joules_per_step"]
        one["step_ratio"] = one["mean_step_ms"] / alone["mean_step_ms"]
    write(options.out, "stalled.json", {"gpu": stage.gpu.name, "seconds": options.seconds, "runs": runs})
    rows = [
        (r["name"], r["jobs"], r["mean_step_ms"], r["step_ratio"], r["joules_per_step"], r["energy_saved_frac"],
         r["meter"]["watts"], r["attributed_sum_j"] - r["agent_metered_j"])
        for r in runs
    ]  # fmt: skip
    heads = ("run", "jobs", "ms a step", "of alone", "J a step", "saved", "W", "jobs - counter (J)")
    table(heads, rows)


if __name__ == "__main__":
    main()
