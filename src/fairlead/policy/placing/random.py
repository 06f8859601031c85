"""Random GPUs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fairlead.model.placement import Placement
from fairlead.policy.knowledge import draws, reading, resume_draws
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Placing, option
from fairlead.policy.view import JobState, View


@dataclass
class Random(Placing):
    """Any free GPUs, each set as likely as any other; drawn from the seed of the run.

    When not to use it: except as the baseline that everything must beat.
    """

    seed: int = option(0, "seed of the draws; the seed of the run unless given")
    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """A uniform draw without replacement."""
        if width > pool.count:
            return None
        if 4 * width < pool.count and 4 * pool.count > view.cluster.gpus:
            return self._by_rejection(width, pool, view.cluster.gpus)
        return tuple(sorted(self._rng.sample(list(pool), width)))

    def knowledge(self) -> dict[str, Any]:
        """Where the draws stand."""
        return {"draws": draws(self._rng)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on drawing from there."""
        with reading("random", saved, "draws"):
            resume_draws(self._rng, saved["draws"])

    def _by_rejection(self, width: int, pool: Pool, gpus: int) -> Placement:
        """The same draw without listing the pool, where most tries hit."""
        found: set[int] = set()
        while len(found) < width:
            gpu = self._rng.randrange(gpus)
            if gpu in pool:
                found.add(gpu)
        return tuple(sorted(found))
