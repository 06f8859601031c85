"""A sharing for Fairlead: two jobs of equal width on the same GPUs when nothing is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Sharing, option
from fairlead.policy.view import JobState, View


@dataclass
class Pairs(Sharing):
    """A job takes empty GPUs; where there are none it joins the first job of its width that is alone.

    When not to use it: where jobs keep their GPUs busy; nobody is asked whether the pair suits.
    """

    memory: float = option(0.9, "the part of a GPU's memory that the two may fill")
    shares: ClassVar[bool] = True

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """Empty GPUs first, then those of a single job."""
        if pool.count >= width:
            yield pool
            return
        if not self.shared(state):  # a service
            return
        for group, gpus in sorted(view.groups.items()):
            partner = view.running[group[0]]
            room_mib = self.memory * view.cluster.gpu_model(partner.gpus[0]).memory_mib
            fits = state.job.memory_mib + partner.job.memory_mib <= room_mib
            if len(group) == 1 and len(gpus) == len(partner.gpus) == width and fits and not gpus & view.drained:
                yield partner.gpus
