"""What is believed of the GPUs' speeds: the scores that policies read.

It begins as the profile of the cluster. A driver that sees iteration times corrects it with `observe`, so that scores
that were measured wrong, or that have drifted since, are found out in passing. A version per class lets a policy notice
a change without comparing.

One observation of a job says how slow the *slowest* of its GPUs is, not which one that is:

- no GPU of the set is slower than what was observed: beliefs above it are lowered to it;
- if all are believed faster, one of them is not. GPUs that took part in a run that was faster than this are cleared;
  of the others the one with the worst score is blamed. A wrong blame is corrected when that GPU next runs faster, and
  since each run clears all its other GPUs, the culprit is soon the only one left. Where everyone was cleared, something
  has drifted: what was known of these GPUs is forgotten first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.model.binning import outliers
from fairlead.model.variability import Variability

TOLERANCE = 0.02
"""Iteration times repeat to about this; smaller differences teach nothing."""


class Scores:
    """Believed scores per class."""

    def __init__(self, profile: Variability) -> None:
        self._profile = profile
        self._corrected: dict[str, list[float]] = {}
        self._versions: dict[str, int] = {}
        self._fastest: dict[str, dict[int, float]] = {}
        """Per class and GPU, the fastest run that it took part in."""

    def of_class(self, app_class: str) -> Sequence[float]:
        """Believed scores of one class, one per GPU."""
        corrected = self._corrected.get(app_class)
        return corrected if corrected is not None else self._profile.of_class(app_class)

    def version(self, app_class: str) -> int:
        """Changes whenever a score of the class does."""
        return self._versions.get(app_class, 0)

    def observe(self, app_class: str, gpus: Sequence[int], slowdown: float) -> bool:
        """A job of that class ran on these GPUs at that multiple of its iteration time on median ones.

        The penalty for spanning nodes and what neighbours cost are taken out before. Tells whether beliefs changed.
        """
        scores = self.of_class(app_class)
        low, high = slowdown * (1.0 - TOLERANCE), slowdown * (1.0 + TOLERANCE)
        wrong = {g: slowdown for g in gpus if scores[g] > high}
        if max(scores[g] for g in gpus) < low:
            wrong = {self._culprit(app_class, gpus, scores, low): slowdown}
        fastest = self._fastest.setdefault(app_class, {})
        for g in gpus:
            fastest[g] = min(fastest.get(g, slowdown), slowdown)
        if not wrong:
            return False
        if app_class not in self._corrected:
            self._corrected[app_class] = list(scores)
        for g, score in wrong.items():
            self._corrected[app_class][g] = score
        self._versions[app_class] = self.version(app_class) + 1
        return True

    def slow_gpus(self) -> list[tuple[int, str, float]]:
        """(GPU, class, score) of the GPUs that an operator should look at: far slower than the rest."""
        found = []
        for app_class in sorted({*self._profile.scores, *self._corrected}):
            scores = np.asarray(self.of_class(app_class))
            found += [(int(g), app_class, float(scores[g])) for g in np.flatnonzero(outliers(scores) & (scores > 1.2))]
        return found

    def _culprit(self, app_class: str, gpus: Sequence[int], scores: Sequence[float], low: float) -> int:
        fastest = self._fastest.get(app_class, {})
        suspects = [g for g in gpus if fastest.get(g, low) >= low]
        if not suspects:
            for g in gpus:
                fastest.pop(g, None)
            suspects = list(gpus)
        return max(suspects, key=lambda g: (scores[g], -g))
