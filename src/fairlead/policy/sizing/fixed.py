"""Fixed widths: every job gets the GPUs it asked for."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.stages import Sizing
from fairlead.policy.view import JobState, View


@dataclass
class Fixed(Sizing):
    """Every job gets exactly the GPUs that it asked for, elastic or not, from start to end.

    When not to use it: where jobs scale badly and owners ask for many GPUs, or where the cluster is rented.
    """

    def width(self, state: JobState, view: View) -> int:
        """The GPUs that the job asks for."""
        return state.job.gpus
