"""Variability scores: how slow each GPU is for each application class.

`V[class][gpu]` is the run time of the class's representative on that GPU over the cluster's median: 1.0 is a median
GPU, larger is slower.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.errors import InputError


@dataclass(frozen=True)
class Variability:
    """Scores per class, one per GPU in the cluster's order; `unscored` lists the GPUs that were given a median."""

    scores: Mapping[str, Sequence[float]]
    unscored: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.scores:
            raise InputError("a variability profile needs at least one class, found none")
        if len({len(s) for s in self.scores.values()}) != 1:
            raise InputError("a variability profile needs as many scores in every class")
        for name, scores in self.scores.items():
            for gpu, score in enumerate(scores):
                if not 0.0 < score < float("inf"):
                    raise InputError(f"GPU {gpu} has class-{name} score {score}; a score is a number above 0")

    @property
    def gpus(self) -> int:
        """How many GPUs it scores."""
        return len(next(iter(self.scores.values())))

    @property
    def worst_class(self) -> str:
        """The class that feels variability most, which stands in for a class without scores."""
        return min(self.scores)

    def of_class(self, name: str) -> Sequence[float]:
        """Scores of one class; a class that was never measured is taken for the worst."""
        found = self.scores.get(name)
        return found if found is not None else self.scores[self.worst_class]


def from_partial(scores: Mapping[str, Mapping[int, float]], gpus: int) -> Variability:
    """Scores known for some GPUs only: the others get the median of their class and are listed as unscored."""
    filled: dict[str, list[float]] = {}
    missing: set[int] = set()
    for name, known in scores.items():
        outside = [g for g in known if not 0 <= g < gpus]
        if outside:
            raise InputError(f"class {name} scores GPU {outside[0]}, the cluster has GPUs 0 to {gpus - 1}")
        if not known:
            raise InputError(f"class {name} has no scores")
        median = statistics.median(known.values())
        filled[name] = [known.get(g, median) for g in range(gpus)]
        missing.update(g for g in range(gpus) if g not in known)
    return Variability(filled, tuple(sorted(missing)))
