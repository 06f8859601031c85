"""Invented pairs of a service and an offline job that follow the simulator's model of contention (`model/contention`),
times lognormal noise. The constants are plausible, not fitted to any GPU: the median slowdown is 1.12 (1.56 at the 95th
percentile), the median throughput 0.85 (0.62 at the 5th).
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.errors import InputError
from fairlead.measure.pair_table import Pairs, pairs_from_frame
from fairlead.model.contention import beside

_PER_APPLICATION = 5


def synthetic_pairs(seed: int, n: int, *, noise: float = 0.03, gpu_model: str = "synthetic") -> Pairs:
    """`n` pairs of some sqrt(n) services and as many offline jobs, five of them of one application each."""
    if n < 1:
        raise InputError(f"{n} pairs, expected at least 1")
    rng = np.random.default_rng(seed)
    count = max(2, int(2 * np.sqrt(n)))
    service, offline = _workloads(rng, count, 0.25, 0.01), _workloads(rng, count, 0.75, 0.2)
    s, o = np.divmod(rng.choice(count * count, size=n, replace=False), count)
    share = np.clip(1.0 - service["sm_activity_frac"][s] + 0.1 * rng.standard_normal(n), 0.1, 0.9)
    of_service, of_offline = (
        [side[name][which] for name in ("utilisation_frac", "sm_activity_frac", "bandwidth_frac", "occupancy_frac")]
        for side, which in ((service, s), (offline, o))
    )
    kept, slower = beside("mps", of_service, of_offline, share)
    kept = kept * np.exp(noise * rng.standard_normal(n))
    slower = slower * np.exp(noise * rng.standard_normal(n))
    columns: dict[str, object] = {
        "gpu_model": [gpu_model] * n,
        "sm_share_frac": share,
        "throughput_frac": np.clip(kept, 0.01, 1.0),
        "slowdown": np.maximum(slower, 1.0),
    }
    for side, made, which, time in (("service", service, s, "request_s"), ("offline", offline, o, "iteration_s")):
        columns[f"{side}_name"] = [f"{side}-{i}" for i in which]
        columns[f"{side}_application"] = [f"{side}-app-{i // _PER_APPLICATION}" for i in which]
        # Bandwidth is what moves the outcome but is not measured; memory and time follow it loosely, as in life.
        for name in ("utilisation_frac", "sm_activity_frac", "occupancy_frac", "memory_frac"):
            columns[f"{side}_{name}"] = made[name][which]
        columns[f"{side}_{time}"] = made["time_s"][which]
    return pairs_from_frame(pl.DataFrame(columns), "synthetic")


def _workloads(rng: np.random.Generator, count: int, activity: float, time_s: float) -> dict[str, NDArray[np.float64]]:
    """Solo profiles: applications differ, and workloads of one application a little."""
    applications = -(-count // _PER_APPLICATION)
    app = np.arange(count) // _PER_APPLICATION

    def around(mean: float, spread: float) -> NDArray[np.float64]:
        centre = np.log(mean / (1.0 - mean)) + spread * rng.standard_normal(applications)[app]
        own: NDArray[np.float64] = centre + 0.3 * spread * rng.standard_normal(count)
        return 1.0 / (1.0 + np.exp(-own))

    sm = around(activity, 0.8)
    bandwidth = around(0.5, 0.8)
    return {
        "sm_activity_frac": sm,
        "bandwidth_frac": bandwidth,
        "utilisation_frac": np.minimum(1.0, sm**0.7 + 0.02 * rng.standard_normal(count) ** 2),
        "occupancy_frac": np.clip(0.15 + 0.75 * sm + 0.08 * rng.standard_normal(count), 0.05, 1.0),
        "memory_frac": np.clip(0.2 + 0.5 * bandwidth + 0.05 * rng.standard_normal(count), 0.02, 0.98),
        "time_s": time_s * np.exp(0.5 * rng.standard_normal(count) + 1.5 * (bandwidth - 0.5)),
    }
