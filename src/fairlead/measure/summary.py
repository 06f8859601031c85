"""What is in a variability profile, in numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.binning import outliers
from fairlead.model.cluster import Cluster
from fairlead.model.variability import Variability

Floats = NDArray[np.float64]


def summarise(
    variability: Variability,
    cluster: Cluster,
    *,
    applications: Mapping[str, str] | None = None,
    runs: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Per class: how many GPUs, how they spread, which stand out; and how alike the classes rank them.

    Only GPUs with a score of their own count. `outliers` are above mean + 3 standard deviations (PAL's rule);
    `correlations` are Spearman's, over the GPUs that both classes scored, null where one of them is constant.
    """
    nodes = np.asarray(cluster.node_of)
    own = {name: _measured(variability, name) for name in variability.scores}
    values = {name: np.asarray(scores, dtype=np.float64) for name, scores in variability.scores.items()}
    classes: dict[str, Any] = {}
    for name, scores in values.items():
        known = np.flatnonzero(own[name])
        slow = known[outliers(scores[known])]
        classes[name] = {
            "from": (applications or {}).get(name),
            "gpus": len(known),
            "runs": (runs or {}).get(name),
            "min": float(scores[known].min()) if len(known) else None,
            "median": float(np.median(scores[known])) if len(known) else None,
            "max": float(scores[known].max()) if len(known) else None,
            "between_nodes_frac": between_nodes_frac(scores[known], nodes[known]),
            "outliers": [{"gpu": cluster.gpu_name(int(g)), "score": float(scores[g])} for g in slow],
            "unscored": [cluster.gpu_name(g) for g in variability.unscored_in(name)],
        }
    pairs = itertools.combinations(values, 2)
    return {
        "gpus": cluster.gpus,
        "nodes": len(cluster.nodes),
        "classes": classes,
        "correlations": {f"{a}-{b}": spearman(*(values[c][own[a] & own[b]] for c in (a, b))) for a, b in pairs},
        "unscored": [cluster.gpu_name(g) for g in variability.unscored],
    }


def _measured(variability: Variability, name: str) -> NDArray[np.bool_]:
    own = np.ones(variability.gpus, dtype=np.bool_)
    own[list(variability.unscored_in(name))] = False
    return own


def between_nodes_frac(scores: Floats, nodes: NDArray[np.int64]) -> float | None:
    """The share of the variance of scores that lies between nodes: 1 - (sum of squares within) / (in all).

    Over the nodes with two scores or more; null where there are fewer than two of these, or no variance at all.
    """
    _, index, counts = np.unique(nodes, return_inverse=True, return_counts=True)
    shared = counts[index] > 1
    scores, index = scores[shared], index[shared]
    if len(np.unique(index)) < 2:
        return None
    total = float(((scores - scores.mean()) ** 2).sum())
    means = np.bincount(index, weights=scores, minlength=len(counts)) / counts
    within = float(((scores - means[index]) ** 2).sum())
    return 1.0 - within / total if total > 1e-18 * len(scores) else None


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; null where a side does not vary."""
    if len(first) < 2 or np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[index], dtype=np.float64)
