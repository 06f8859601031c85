"""Jobs like Philly's: the widths, durations and daily rhythm of 82,247 jobs of Microsoft's cluster, as a distribution.

Fitted by us on 2026-11-15 to the public trace (data/philly): lognormal mixtures, by expectation maximisation on the log
of the duration, one per width. Against the data, as mean / median / p99 in seconds: width 1 8,660 / 1,090 / 137,000
(data 8,301 / 1,117 / 135,399); 4 78,700 / 18,100 / 898,000 (78,762 / 17,410 / 907,376); 8 125,000 / 24,400 / 1,016,000
(129,775 / 23,683 / 1,060,498).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.traces.draws import Floats


@dataclass(frozen=True, slots=True)
class WidthFit:
    """Jobs of one width: how many of the 82,247 and how long they ran."""

    gpus: int
    jobs: int
    longest_s: float
    mixture: tuple[tuple[float, float, float], ...]
    """(weight, mean of the log, standard deviation of the log); draws beyond the longest job are cut to it."""


_WIDEST = ((1.0, 8.478, 2.801),)
_WIDE = ((0.4429, 5.784, 1.894), (0.5571, 11.752, 1.066))
FITS = (
    WidthFit(
        1, 76_627, 3_256_045.0,
        ((0.1686, 4.171, 0.155), (0.1223, 4.767, 0.826), (0.0442, 7.853, 0.05), (0.4072, 7.454, 0.89),
         (0.2577, 7.954, 2.2)),
    ),
    WidthFit(2, 1_818, 2_582_803.0, ((0.6437, 2.894, 0.344), (0.184, 3.78, 1.453), (0.1723, 11.396, 1.241))),
    WidthFit(4, 1_870, 2_750_674.0, ((0.2802, 5.331, 1.133), (0.5507, 10.238, 1.667), (0.1691, 11.673, 0.425))),
    WidthFit(8, 1_643, 4_628_226.0, ((0.3189, 6.222, 1.577), (0.2486, 9.631, 0.783), (0.4325, 12.198, 0.819))),
    WidthFit(12, 7, 1_710_643.0, _WIDE),
    WidthFit(16, 199, 1_710_643.0, _WIDE),
    WidthFit(24, 7, 1_710_643.0, _WIDE),
    WidthFit(32, 67, 128_924.0, _WIDEST),
    WidthFit(64, 6, 128_924.0, _WIDEST),
    WidthFit(128, 3, 128_924.0, _WIDEST),
)  # fmt: skip
HOUR_COUNTS = (
    4367, 3374, 3835, 3780, 2400, 3950, 5732, 7159, 3802, 3447, 3510, 2979,
    2567, 2415, 2185, 2224, 3021, 2289, 2744, 2496, 3483, 3142, 3885, 3461,
)  # fmt: skip
"""Jobs submitted in each hour of the trace's day."""
USERS = 15
"""Virtual clusters, which stand for users."""


def widths(rng: np.random.Generator, jobs: int, max_gpus: int) -> NDArray[np.int64]:
    """Widths up to `max_gpus`, as often as Philly's jobs had them."""
    usable = [fit for fit in FITS if fit.gpus <= max_gpus]
    counts = np.array([fit.jobs for fit in usable], dtype=np.float64)
    chosen = rng.choice(len(usable), size=jobs, p=counts / counts.sum())
    return np.array([fit.gpus for fit in usable], dtype=np.int64)[chosen]


def durations_s(rng: np.random.Generator, gpus: NDArray[np.int64], max_s: float) -> Floats:
    """Whole seconds, from 1 to `max_s`, given the widths."""
    drawn = np.empty(len(gpus))
    for fit in FITS:
        here = np.flatnonzero(gpus == fit.gpus)
        weights, means, spreads = np.array(fit.mixture).T
        part = rng.choice(len(weights), size=len(here), p=weights / weights.sum())
        logs = means[part] + spreads[part] * rng.standard_normal(len(here))
        drawn[here] = np.exp(np.minimum(logs, np.log(min(fit.longest_s, max_s))))
    return np.maximum(np.floor(drawn + 1e-6), 1.0)
