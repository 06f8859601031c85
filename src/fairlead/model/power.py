"""The power equation, the only place where it is written.

    power(node) = base(state) + sum over GPUs of P_g(utilisation of g)
    P_g(u) = idle + (peak - idle) * u^0.48

The exponent is the fit of node power against mean GPU utilisation on eight V100 (EaCO, R2 0.992): power grows far
slower than utilisation, which is why sharing saves energy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fairlead.model.cluster import GpuModel

UTILISATION_EXPONENT = 0.48


def gpu_power_w(model: GpuModel, utilisation_frac: float) -> float:
    """P_g(u) of one GPU whose node is on."""
    if utilisation_frac <= 0.0:
        return model.idle_w
    return model.idle_w + (model.peak_w - model.idle_w) * math.pow(min(utilisation_frac, 1.0), UTILISATION_EXPONENT)


def utilisation(activities: Iterable[float]) -> float:
    """Utilisation of a GPU from the solo activities of the jobs on it."""
    return min(1.0, sum(activities))
