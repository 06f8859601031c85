"""Best fit: where least is left."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.cluster import Cluster
from fairlead.policy.parts import WHOLE, Ask
from fairlead.policy.placing.rooms import Room
from fairlead.policy.placing.weighed import Choice, Weighed
from fairlead.policy.pool import Pool
from fairlead.policy.view import View


@dataclass
class BestFit(Weighed):
    """The node of which least is left when the job is there, GPUs and CPUs weighed equally.

    What is left of each is taken as a part of what the largest node has; where the cluster does not say what CPUs its
    nodes have, GPUs alone count. On the node a job that asks for a part of a GPU gets the fullest GPU that has room.
    Ties go to the first node. As the baseline of Weng et al., *Beware of Fragmentation* (ATC 2023).

    A job that fits into one node waits for one, as under `consolidated`; a wider one gets whole nodes and a rest.

    When not to use it: where jobs ask for parts of GPUs in many sizes; what is left of GPUs then often fits nobody, and
    `fgd` looks at that.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._largest = (1, 0)
        self._cluster: Cluster | None = None

    def choose(self, ask: Ask, width: int, pool: Pool, view: View, but: int = 0) -> Choice | None:
        """As measured by the largest node of this cluster."""
        if self._cluster is not view.cluster:
            self._cluster = view.cluster
            self._costs.clear()
            most_cpus = max(round(1000 * node.cpus) for node in view.cluster.nodes)
            self._largest = (WHOLE * view.cluster.node_gpus, most_cpus)
        return super().choose(ask, width, pool, view, but)

    def cost(self, before: Room, after: Room) -> float:
        """The sum of what is left."""
        gpus, cpus = self._largest
        return 0.5 * sum(after.lefts) / gpus + (0.5 * after.cpus / cpus if cpus else 0.0)
