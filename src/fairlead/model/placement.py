"""Placements: which GPUs a job has. A placement is a tuple of GPU numbers in ascending order; `()` is none."""

from __future__ import annotations

from fairlead.model.cluster import Cluster

Placement = tuple[int, ...]
NOWHERE: Placement = ()


def nodes_spanned(placement: Placement, cluster: Cluster) -> int:
    """How many nodes a placement touches."""
    return len({cluster.node_of[g] for g in placement})
