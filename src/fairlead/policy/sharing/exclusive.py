"""Nobody shares a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.policy.pool import Pool
from fairlead.policy.stages import Sharing
from fairlead.policy.view import JobState, View


@dataclass
class Exclusive(Sharing):
    """A job gets whole GPUs to itself, even if it asked for a part of one; offered are the GPUs with nobody on them.

    Where GPUs differ in memory, a job is offered those that hold it.

    When not to use it: where jobs under-use their GPUs, which is most of the time.
    """

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool]:
        """The empty GPUs that have enough memory, and nothing else."""
        if pool.count < width:
            return ()
        cluster = view.cluster
        need_mib = state.job.memory_mib
        if need_mib <= cluster.least_memory_mib:
            return (pool,)
        return (Pool(cluster, (g for g in pool if cluster.gpu_model(g).memory_mib >= need_mib)),)
