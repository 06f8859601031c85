"""FIFO_packed: pairs when nothing is free, the best ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fairlead.model.interference import Interference, built_in
from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.sharing.pairs import can_wake, single_jobs
from fairlead.policy.stages import Sharing, option
from fairlead.policy.view import JobState, View


@dataclass
class FifoPacked(Sharing):
    """When nothing is free, a job is paired with the placed single job of equal width that suits it best.

    The best pair has the largest sum of the two normalised throughputs, and that must exceed `worth`. Throughputs are
    taken from a table of measured pairs, as the published baseline does; for pairs that are not in it, from the prior
    on activity. Nobody is ever three on a GPU, and a pair stays until one of the two ends.

    When not to use it: to save energy; it spreads first and shares only under pressure.
    """

    worth: float = option(1.5, "least sum of normalised throughputs of a pair")
    memory: float = option(0.9, "the part of a GPU's memory that the peaks of both jobs may fill")
    history: str = option("eaco", "the table of measured pairs: none, eaco or gavel-v100")
    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.known: Interference = built_in(self.history)

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """Empty GPUs, else the best partner's."""
        if pool.count >= width:
            yield pool
            return
        if not self.shared(state) or can_wake(width, pool.count, view):
            return
        best: tuple[float, int, Placement] | None = None
        for partner in single_jobs(state, width, self.memory, view):
            worth = self.known.predict(state.job.profile, [partner.job.profile])
            worth += self.known.predict(partner.job.profile, [state.job.profile])
            if worth > self.worth and (best is None or (worth, -partner.job.id) > best[:2]):
                best = (worth, -partner.job.id, partner.gpus)
        if best is not None:
            yield best[2]
