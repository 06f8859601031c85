"""Fits the seven numbers of the goodput model to measured step times, as an online scheduler gets them.

    minimise  sum over measurements of  (log T_iter - log step_s)^2 + (log T_grad - log(step_s - sync_s))^2

the second term where the wait for the network was measured too; every number is at least 0, gamma within 1 to 10
(Pollux, OSDI'21, section 4.1). Relative errors count, so fast and slow placements weigh the same. A term that no
measurement shows (no job on two nodes yet, say) is 0: the model is hopeful about what was never tried, so that it is
tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import FairleadError, InputError
from fairlead.model.goodput import PerfParams

Array = NDArray[np.float64]

_NAMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")
_LEAST_S = 1e-8
"""Numbers are fitted as logarithms; this stands for 0."""
_STARTS = tuple((gamma, sync) for gamma in (1.2, 2.5, 6.0) for sync in (0.1, 1.0))
"""Where the search begins: gamma, and the synchronisation as a multiple of the gradient."""


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """One mean step time: a row of the public placements.csv is (len(placement), its sum, local_bsz, ...)."""

    nodes: int
    replicas: int
    local_batch: int
    step_s: float
    """A whole iteration, accumulation steps and all."""
    sync_s: float | None = None
    """The part of `step_s` that waited for the network; None where nobody looked."""
    accumulation: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted parameters and how well they describe the step times."""

    params: PerfParams
    rmse_log: float
    """Root mean square of log(predicted / measured); 0.1 is about 10 % off."""
    r2: float
    """Share of the variance of log step times that is described; 1 where they are all the same and met."""
    points: int


def fit(measurements: Sequence[StepMeasurement]) -> Fit:
    """The parameters with the smallest error from several starts; the same measurements give the same fit."""
    from scipy.optimize import least_squares

    _check(measurements)
    nodes, replicas, local_batch, accumulation = (
        np.array([getattr(m, name) for m in measurements], float)
        for name in ("nodes", "replicas", "local_batch", "accumulation")
    )
    log_step = np.log([m.step_s for m in measurements])
    compute = np.array([_compute_s(m) for m in measurements])
    looked = np.isfinite(compute)
    log_compute = np.log(compute[looked])

    def errors(params: PerfParams) -> tuple[Array, Array]:
        step = np.log(params.iteration_s(replicas, nodes, local_batch, accumulation)) - log_step
        return step, np.log(params.gradient_s(local_batch[looked])) - log_compute

    fixed = _fixed(measurements)
    free = [i for i, name in enumerate(_NAMES) if name not in fixed]
    bounds = (
        np.array([0.0 if i == 6 else np.log(_LEAST_S) for i in free]),
        np.array([np.log(10.0) if i == 6 else np.log(1e5) for i in free]),
    )

    def params_of(logs: Array) -> PerfParams:
        values = dict(fixed)
        values.update({_NAMES[i]: float(v) for i, v in zip(free, np.exp(logs), strict=True)})
        return PerfParams(**{k: 0.0 if v <= 2 * _LEAST_S and k != "gamma" else v for k, v in values.items()})

    def residuals(logs: Array) -> Array:
        return np.concatenate(errors(params_of(logs)))

    found: tuple[float, PerfParams] | None = None
    for start in _starts(measurements):
        logs = np.clip(np.log([start[i] for i in free]), bounds[0] + 1e-6, bounds[1] - 1e-6)
        result = least_squares(residuals, logs, bounds=bounds, method="trf", max_nfev=400)
        if found is None or result.cost < found[0] * (1.0 - 1e-9):  # the first of equals: no flutter between starts
            found = float(result.cost), params_of(result.x)
    if found is None:
        raise FairleadError("fitting goodput tried no start")  # there is always one
    miss = errors(found[1])[0]
    spread = float(np.sum((log_step - log_step.mean()) ** 2))
    left = float(np.sum(miss**2))
    r2 = 1.0 - left / spread if spread > 1e-12 else float(left <= 1e-12)
    return Fit(found[1], float(np.sqrt(np.mean(miss**2))), r2, len(measurements))


def _compute_s(m: StepMeasurement) -> float:
    """Seconds of one gradient: each of the a + 1 parts computes, the last one also waits."""
    return float("nan") if m.sync_s is None else (m.step_s - m.sync_s) / (m.accumulation + 1)


def _check(measurements: Sequence[StepMeasurement]) -> None:
    if not measurements:
        raise InputError("no step times to fit", hint="one measurement is enough for a first guess")
    for number, m in enumerate(measurements):
        sync_s = 0.0 if m.sync_s is None else m.sync_s
        counts = 1 <= m.nodes <= m.replicas and m.local_batch >= 1 and m.accumulation >= 0
        if not counts or not 0.0 <= sync_s < m.step_s < float("inf"):  # NaN fails this too
            raise InputError(
                f"measurement {number} is {m}", hint="needs 1 <= nodes <= replicas, local_batch >= 1, sync_s < step_s"
            )


def _fixed(measurements: Sequence[StepMeasurement]) -> dict[str, float]:
    """What these measurements cannot tell, and the hopeful value that it gets instead."""
    fixed: dict[str, float] = {}
    shapes = {(m.nodes > 1, m.replicas) for m in measurements if m.replicas > 1}
    for across, alpha, beta in ((False, "alpha_r", "beta_r"), (True, "alpha_n", "beta_n")):
        widths = {replicas for spans, replicas in shapes if spans is across}
        if not widths:
            fixed[alpha] = 0.0
        if len({max(width, 2) for width in widths}) < 2:
            fixed[beta] = 0.0  # one width tells alpha only
    if not shapes:
        fixed["gamma"] = 1.0
    if len({m.local_batch for m in measurements}) == 1:
        # Half of the gradient's time grows with the batch, as in Pollux.
        fixed["alpha_c"] = _gradient_guess_s(measurements) / 2
    return fixed


def _gradient_guess_s(measurements: Sequence[StepMeasurement]) -> float:
    """Mean seconds of a gradient: where the wait was measured, else alone, else as if all were computing."""
    seen = [_compute_s(m) for m in measurements if m.sync_s is not None]
    alone = [m.step_s / (m.accumulation + 1) for m in measurements if m.replicas == 1]
    return float(np.mean(seen or alone or [m.step_s / (m.accumulation + 1) for m in measurements]))


def _starts(measurements: Sequence[StepMeasurement]) -> list[tuple[float, ...]]:
    grad_s = _gradient_guess_s(measurements)
    batch = float(np.mean([m.local_batch for m in measurements]))
    return [
        (
            grad_s / 2,
            grad_s / 2 / batch,
            grad_s * sync,
            grad_s * sync / 50,
            2 * grad_s * sync,
            grad_s * sync / 25,
            gamma,
        )
        for gamma, sync in _STARTS
    ]
