"""PM-First: the best GPUs first, for those who feel it most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlead.model.binning import bin_scores
from fairlead.model.placement import Placement
from fairlead.policy.placing.score_index import ScoreIndex
from fairlead.policy.pool import Pool
from fairlead.policy.stages import Placing, option
from fairlead.policy.view import JobState, View


@dataclass
class PmFirst(Placing):
    """The fastest free GPUs for the job's class, wherever they are (PAL, SC'24).

    GPUs of a class are binned by score (`bins=0`: as many bins as have the best silhouette, `bins=2`: the published
    code's). Free GPUs are ranked by the value of their bin; within a bin by how close the number of free GPUs of that
    bin on their node is to the number wanted; then by number. The first n are taken. In rounds, jobs pick in order of
    class, A first: the queue decides who runs, the class decides who picks.

    Not sticky unless told to be: jobs move to better GPUs as these come free, at the cost of a restart each time.
    Without a variability profile all GPUs are in one bin.

    When not to use it: where spanning nodes costs more than a slow GPU; it does not look at nodes (`pal` does).
    """

    sticky: bool = option(False, "running jobs keep their GPUs; false re-places every job at every decision")
    bins: int = option(0, "clusters of scores besides outliers; 0 takes the number with the best silhouette")
    _indexes: dict[str, tuple[Any, ScoreIndex]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.bins < 0:
            raise ValueError(f"bins={self.bins}: 0 or more")

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """The best of the free."""
        return self.index(state.job.profile.app_class, pool, view).best(width) if width <= pool.count else None

    def turn(self, state: JobState) -> str:
        """By class: A is the most sensitive."""
        return state.job.profile.app_class

    def index(self, app_class: str, pool: Pool, view: View) -> ScoreIndex:
        """The pool's free GPUs by score, for one class, up to date."""
        scores = view.scores
        key = (pool, scores.version(app_class) if scores is not None else 0)
        known = self._indexes.get(app_class)
        if known is None or known[0] != key:
            of_class = scores.of_class(app_class) if scores is not None else [1.0] * view.cluster.gpus
            known = (key, ScoreIndex(view.cluster, bin_scores(of_class, self.bins), pool))
            self._indexes[app_class] = known
        known[1].catch_up()
        return known[1]
