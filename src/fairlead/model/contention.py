"""What a service and an offline job leave each other on one GPU, by how they share it; written nowhere else.

Of each alone, as fractions of the GPU: u (time with any kernel on it), a (SM activity), b (memory bandwidth), and of
the offline job its occupancy `occ`; q is the share of the SMs that the offline job may use.

**mps**: in space. Within its share the job runs at c = min(1, q / occ), as a job that does not fill the SMs feels the
limit late. It gets the SM time that the service leaves, and both slow down where together they want more bandwidth than
there is, in proportion to how much each depends on it (m = b / (a + b)):

    throughput = c * min(1, (1 - a_s) / (c a_o))^0.7 * max(1, bw)^-(0.5 + m_o),   bw = b_s + c b_o
    slowdown   = (1 + 0.35 c a_o a_s + 0.5 max(0, a_s + c a_o - 1)) * max(1, bw)^(0.3 + m_s)

**time**: slices in turn. The job gets the time that the service leaves, at least every second slice, less 5 % for
switching; requests wait for slices of the job: throughput = 0.95 max(0.5, 1 - u_s), slowdown = 1 + 0.25 u_o.

**priority**: the job launches only while the service has been idle for a moment, as long again as it was busy before:
throughput = 0.97 max(0, 1 - 2 u_s); the service meets at most the end of a kernel: slowdown = 1 + 0.05 u_o.

A slowdown is of the time that a request takes on the GPU; queues amplify it (service.py). The constants are plausible,
not fitted: the paper has services slower by less than 20 % under MuxFlow and by up to 50 % under time sharing; on an
H200 a ResNet-50 service beside a saturating training was 12 % slower under MPS and 17 % under time slicing at p99.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Mode = Literal["mps", "time", "priority"]
Floats = NDArray[np.float64]
_SWITCHING = 0.95
_KERNEL_END = 0.97


@dataclass(frozen=True, slots=True)
class Solo:
    """One workload alone on a GPU, as fractions of it; of a service, at the most requests that it can serve."""

    utilisation_frac: float
    sm_activity_frac: float
    occupancy_frac: float
    bandwidth_frac: float
    memory_frac: float
    time_s: float
    """Of an iteration, or of a request."""


UNMEASURED = Solo(0.95, 0.5, 0.6, 0.4, 0.1, 0.2)
"""What an offline job of which nothing was measured is taken to be like."""


def beside(mode: Mode, service: Any, offline: Any, share: Any) -> tuple[Floats, Floats]:
    """(throughput of the offline job, slowdown of the service); both sides as (u, a, b, occ) of numbers or arrays."""
    u_s, a_s, b_s, _ = (np.asarray(x, float) for x in service)
    u_o, a_o, b_o, occ_o = (np.asarray(x, float) for x in offline)
    if mode == "time":
        return _SWITCHING * np.maximum(0.5, 1.0 - u_s), 1.0 + 0.25 * u_o
    if mode == "priority":
        return _KERNEL_END * np.maximum(0.0, 1.0 - 2.0 * u_s), 1.0 + 0.05 * u_o
    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.minimum(1.0, np.asarray(share, float) / occ_o)
        bandwidth = np.maximum(1.0, b_s + c * b_o)
        left = np.minimum(1.0, np.maximum(1.0 - a_s, 0.0) / (c * a_o))
        kept = c * left**0.7 * bandwidth ** -(0.5 + b_o / (a_o + b_o))
        over = np.maximum(0.0, a_s + c * a_o - 1.0)
        bound = np.where(a_s + b_s > 0.0, b_s / (a_s + b_s), 0.0)
        slower = (1.0 + 0.35 * c * a_o * a_s + 0.5 * over) * bandwidth ** (0.3 + bound)
    return np.asarray(np.clip(kept, 0.0, 1.0)), np.asarray(slower)
