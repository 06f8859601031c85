"""The simulator against queueing theory over long runs: waiting in M/M/k, occupancy in M/G/inf, both within 2 %."""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
import polars as pl

from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace

MEAN_S = 100.0


def erlang_c_wait_s(rate: float, servers: int) -> float:
    load = rate * MEAN_S
    # In logarithms of the terms, since load^k overflows for many servers.
    terms = [math.exp(i * math.log(load) - math.lgamma(i + 1)) for i in range(servers + 1)]
    blocked = terms[-1] * servers / (servers - load)
    return blocked / (sum(terms[:-1]) + blocked) * MEAN_S / (servers - load)


def trace(rate: float, durations: np.ndarray, seed: int) -> Trace:
    n = len(durations)
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, n)
    frame = {
        "job_id": np.arange(n).astype(str),
        "submit_s": np.cumsum(gaps * (1.0 / rate / gaps.mean())),
        "gpus": np.ones(n, dtype=np.int64),
        "duration_s": durations * (MEAN_S / durations.mean()),
    }
    return Trace.from_columns(pl.DataFrame(frame))


def mmk(servers: int, load: float, jobs: int) -> dict[str, object]:
    rate = load * servers / MEAN_S
    durations = np.random.default_rng(1).exponential(MEAN_S, jobs)
    run = Simulation(trace(rate, durations, 2), parse_shape(f"{servers}x1"), registry.build("fifo")).run()
    return row(f"M/M/{servers} load {load}: mean wait", "s", erlang_c_wait_s(rate, servers), run.summary["mean_wait_s"])


def mg_infinity(jobs: int) -> list[dict[str, object]]:
    mean = 20.0  # few jobs at a time: the sample then holds many independent moments
    durations = np.random.default_rng(3).lognormal(0.0, 1.2, jobs)
    run = Simulation(trace(mean / MEAN_S, durations, 4), parse_shape("20x8"), registry.build("fifo")).run()
    submit, finish = run.jobs["submit_s"].to_numpy(), np.sort(run.jobs["finish_s"].to_numpy())
    present = (np.arange(jobs) - np.searchsorted(finish, submit))[jobs // 20 :]
    return [
        row("M/G/inf: mean occupancy", "jobs", mean, float(present.mean())),
        row("M/G/inf: variance of occupancy", "jobs^2", mean, float(present.var())),
    ]


def row(what: str, unit: str, theory: float, ours: float) -> dict[str, object]:
    found: dict[str, object] = {
        "what": what,
        "unit": unit,
        "theory": theory,
        "ours": ours,
        "off_frac": ours / theory - 1.0,
    }
    print(
        f"{what}: theory {theory:.3f}, ours {ours:.3f} {unit}, off by {100 * (ours / theory - 1):+.2f} %",
        file=sys.stderr,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [mmk(k, load, options.jobs) for k, load in ((1, 0.5), (4, 0.7), (16, 0.8))] + mg_infinity(options.jobs // 4)
    if options.json:
        print(json.dumps(found, indent=2))
    sys.exit(any(abs(float(str(r["off_frac"]))) > 0.02 for r in found))


if __name__ == "__main__":
    main()
