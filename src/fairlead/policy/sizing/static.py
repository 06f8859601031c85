"""One width for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlead.policy.stages import Sizing, option
from fairlead.policy.view import JobState, View


@dataclass
class Static(Sizing):
    """Every elastic job gets `width` GPUs from start to end, or what is nearest to it within its bounds.

    When not to use it: where anything is known of how jobs scale.
    """

    width_gpus: int = option(4, "GPUs of every job")
    resizes: ClassVar[bool] = True
    adapts_batch: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.width_gpus < 1:
            raise ValueError(f"width_gpus={self.width_gpus}: at least 1")

    def width(self, state: JobState, view: View) -> int:
        """The width that the option gives to every job, within its bounds."""
        return min(max(self.width_gpus, state.job.min_gpus), state.job.max_gpus, view.cluster.gpus)
