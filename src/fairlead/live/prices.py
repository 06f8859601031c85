"""What GPUs cost, by the list prices of their models. Where a model has no price, or prices differ, None is the answer
to what they would cost: no figure is better than a wrong one.
"""

from __future__ import annotations

from fairlead.live.control.controller import Controller
from fairlead.model.cluster import Cluster


def gpu_hour_usd(cluster: Cluster) -> float | None:
    """Of any of its GPUs, where all cost the same."""
    prices = {node.gpu_model.price_usd_per_h for node in cluster.nodes}
    return next(iter(prices)) or None if len(prices) == 1 else None


def gpu_hours_usd(cluster: Cluster, gpu: int, hours: float) -> float | None:
    """So many hours of one GPU; None also where the cluster has no such GPU any more."""
    price = cluster.gpu_model(gpu).price_usd_per_h if gpu < cluster.gpus else 0.0
    return price * hours if price > 0.0 else None


def paid_nodes(controller: Controller) -> tuple[int, ...]:
    """The nodes that are paid for now: the rented ones, or all where none is for rent."""
    view = controller.driver.view
    return tuple(range(len(view.cluster.nodes))) if view.cluster.rental is None else tuple(view.rented_s)


def usd_per_h(controller: Controller) -> float | None:
    """What all GPUs cost now that are paid for, busy or not; None where no price is known."""
    nodes = controller.driver.view.cluster.nodes
    total = sum(nodes[n].gpus * nodes[n].gpu_model.price_usd_per_h for n in paid_nodes(controller))
    return total if any(node.gpu_model.price_usd_per_h for node in nodes) else None
