"""The power equation, the only place where it is written.

    power(node) = base(state) + sum over GPUs of P_g(utilisation of g)
    P_g(u) = max( idle + context, floor + (peak - floor) * u^0.48 ), or idle where nobody is

The exponent is the fit of node power against mean GPU utilisation on eight V100 (EaCO, R2 0.992): power grows far
slower than utilisation, which is why sharing saves energy.
"""

from __future__ import annotations

import math

from fairlead.model.cluster import GpuModel

UTILISATION_EXPONENT = 0.48


def gpu_power_w(model: GpuModel, utilisation_frac: float) -> float:
    """P_g(u) of a GPU with jobs on it, whose node is on."""
    floor_w = model.idle_w if model.floor_w is None else model.floor_w
    curve_w = floor_w + (model.peak_w - floor_w) * math.pow(min(max(utilisation_frac, 0.0), 1.0), UTILISATION_EXPONENT)
    return max(model.idle_w + model.context_w, curve_w)
