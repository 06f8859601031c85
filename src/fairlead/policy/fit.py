"""Whether a job can ever run: how many GPUs it needs at least, and how many there could ever be for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from fairlead.model.cluster import Cluster
from fairlead.policy.stack import Stack

Width = TypeVar("Width")
"""A number of GPUs, or a column of them."""


def least_gpus(gpus: Width, min_gpus: Width, stack: Stack) -> Width:
    """What it needs at least: what it asks for, unless sizing may give it less."""
    return min_gpus if stack.sizing.resizes else gpus


def most_gpus(memory_mib: float, cluster: Cluster, drained: Collection[int] = ()) -> int:
    """The GPUs that hold so much of one job, as long as these are `drained`."""
    if memory_mib <= cluster.least_memory_mib:
        return cluster.gpus - len(drained)
    if not drained:
        return cluster.gpus_holding(memory_mib)
    return sum(cluster.gpu_model(g).memory_mib >= memory_mib for g in range(cluster.gpus) if g not in drained)
