"""Invented variability profiles: with parts between and within nodes, with outliers, and gone stale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.model.variability import CLASS_NAME_RULE, Variability, is_class_name

DEFAULT_SENSITIVITY = {"A": 1.0, "B": 0.3, "C": 0.3, "D": 0.05}
"""How much a class feels its GPU, from compute-bound to memory-bound."""


def synthetic_variability(
    cluster: Cluster,
    *,
    between: float = 0.05,
    within: float = 0.02,
    outliers: float = 0.01,
    outlier_factor: float = 2.0,
    sensitivity: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Variability:
    """Scores `exp(s * (between * node + within * gpu)) * outlier_factor^s` over their median, s the sensitivity.

    `node` and `gpu` are standard normal and independent from class to class, as in the measured data (Spearman <= 0.09
    on Frontera); the last factor is for the fraction `outliers` of the GPUs, the same ones in every class: a GPU with
    bad cooling is slow for all that feel it.
    """
    sensitivity = DEFAULT_SENSITIVITY if sensitivity is None else sensitivity
    _check(between, within, outliers, outlier_factor, sensitivity)
    slow = np.zeros(cluster.gpus, dtype=np.bool_)
    slow[np.random.default_rng([seed, 0]).permutation(cluster.gpus)[: round(outliers * cluster.gpus)]] = True
    node_of = np.asarray(cluster.node_of)
    scores: dict[str, list[float]] = {}
    for name, felt in sensitivity.items():
        rng = np.random.default_rng([seed, 1, *name.encode()])  # a class more or less leaves the others as they are
        node = rng.standard_normal(len(cluster.nodes))[node_of]
        gpu = rng.standard_normal(cluster.gpus)
        raw = np.exp(felt * (between * node + within * gpu)) * np.where(slow, outlier_factor**felt, 1.0)
        scores[name] = _over_median(raw)
    return Variability(scores)


def drifted(variability: Variability, *, noise: float, seed: int = 0) -> Variability:
    """The same GPUs with wrong scores: each times a lognormal of standard deviation `noise`, over the new median."""
    if not 0.0 <= noise <= 5.0:
        raise InputError(f"noise {noise:g}: expected a standard deviation from 0 to 5")
    scores = {}
    for name, known in variability.scores.items():
        rng = np.random.default_rng([seed, 2, *name.encode()])
        scores[name] = _over_median(np.asarray(known) * np.exp(noise * rng.standard_normal(len(known))))
    return Variability(scores, variability.unscored, variability.unscored_by_class)


def _over_median(raw: NDArray[np.float64]) -> list[float]:
    return [float(score) for score in raw / np.median(raw)]


def _check(
    between: float, within: float, outliers: float, outlier_factor: float, sensitivity: Mapping[str, float]
) -> None:
    if not sensitivity:
        raise InputError("no classes given, expected at least one")
    for name in sensitivity:
        if not is_class_name(name):
            raise InputError(f"class {name!r}: expected {CLASS_NAME_RULE}")
    bounds = [
        ("between", between, 0.0, 5.0),
        ("within", within, 0.0, 5.0),
        ("outliers", outliers, 0.0, 0.5),
        ("outlier factor", outlier_factor, 1.0, 1000.0),
        *((f"sensitivity of class {name}", felt, 0.0, 10.0) for name, felt in sensitivity.items()),
    ]
    for what, value, least, most in bounds:
        if not least <= value <= most:
            raise InputError(f"{what} is {value:g}, expected a number from {least:g} to {most:g}")
