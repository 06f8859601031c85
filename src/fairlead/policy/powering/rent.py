"""Nodes are rented when jobs want them and given back when nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.policy.plan import Plan
from fairlead.policy.powering.idle import IdleNodes
from fairlead.policy.stages import Powering, option
from fairlead.policy.view import View

_LATE_S = 5.0
"""How late a controller may be."""


@dataclass
class Rent(Powering):
    """As many rented nodes as the jobs want, or as sizing says.

    A node takes the rental's `boot_s` until jobs can run there, and is paid for from the order on. Nodes are given back
    when they are empty and nobody waits for GPUs: after `linger_s` idle seconds, and not before the time that is billed
    anyway is over. Where sizing names a number of nodes, that is what is kept: jobs on the nodes to be given up are
    moved first. The cheapest GPUs are rented first, of equally cheap nodes the one that is fastest as far as is
    believed. A node of which all GPUs are drained counts for nothing.

    When not to use it: where nodes are owned; use `sleep`. It needs a cluster with rental terms (`--rent`).
    """

    linger_s: float = option(0.0, "seconds that an idle node is kept for the next job")
    active: ClassVar[bool] = True
    rents: ClassVar[bool] = True
    _idle: IdleNodes = field(default_factory=IdleNodes, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.linger_s < 0:
            raise ValueError(f"linger_s={self.linger_s:g}: 0 or more")

    def decide(self, wanted_gpus: int, nodes: int | None, view: View, plan: Plan) -> None:
        """Rent what is missing, give back what is idle."""
        self._idle.notice(view)
        useless = view.drained_nodes()
        idle = [n for n in self._idle.since_s if n not in useless]
        self._give_back([n for n in self._idle.since_s if n in useless], len(useless), view, plan)
        if nodes is not None:
            on = len(view.cluster.nodes) - len(view.asleep | view.down | useless)
            self._rent(nodes - on, view.asleep - useless, view, plan, each=1)
            self._give_back(idle, on - nodes, view, plan)
            return
        on_the_way = view.free.count + view.usable_gpus(view.waking)
        self._rent(wanted_gpus - on_the_way, view.asleep - useless, view, plan)
        if not wanted_gpus:
            self._give_back(idle, len(idle), view, plan)

    def knowledge(self) -> dict[str, Any]:
        """Since when nodes are idle."""
        return self._idle.knowledge()

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on counting since when nodes are idle."""
        self._idle.recall(saved, view)

    def _rent(self, short: int, offered: set[int], view: View, plan: Plan, each: int | None = None) -> None:
        """Nodes until the shortage is met; it counts GPUs, or with `each=1` nodes."""
        if short <= 0:
            return
        for node in _best_first(offered, view):
            plan.wake.append(node)
            short -= each or view.usable_gpus((node,))
            if short <= 0:
                return

    def _give_back(self, idle: Sequence[int], at_most: int, view: View, plan: Plan) -> None:
        rental = view.cluster.rental
        assert rental is not None, "nodes are rented without terms"
        given = 0
        for node in idle:
            if given >= at_most:
                return
            since_s = self._idle.since_s[node]
            rented_s, lingered_s = view.rented_s.get(node, since_s), since_s + self.linger_s
            # On a real clock the end of a step that is paid for is met a moment late; that is no reason to pay another.
            paid_s = max(lingered_s, view.now_s - min(_LATE_S, rental.step_s / 2.0))
            due_s = max(lingered_s, rented_s + rental.billed_s(paid_s - rented_s))
            if due_s <= view.now_s:
                plan.sleep.append(node)
                given += 1
            elif plan.wake_s is None or due_s < plan.wake_s:
                plan.wake_s = due_s


def _best_first(nodes: set[int], view: View) -> list[int]:
    """By what a GPU costs, then by how slow the node's GPUs are on average, then by number."""
    specs, first = view.cluster.nodes, view.cluster.first_gpu
    slow = view.scores.means() if view.scores is not None else None

    def key(node: int) -> tuple[float, float, int]:
        slowness = float(slow[first[node] : first[node + 1]].mean()) if slow is not None else 0.0
        return specs[node].gpu_model.price_usd_per_h, slowness, node

    return sorted(nodes, key=key)
