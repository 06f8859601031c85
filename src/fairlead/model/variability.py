"""Variability scores: how slow each GPU is for each application class.

`V[class][gpu]` is the run time of the class's representative on that GPU over the cluster's median: 1.0 is a median
GPU, larger is slower.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.errors import InputError

_CLASS_NAME = re.compile(r"[A-Z][A-Z0-9]*")
CLASS_NAME_RULE = "capital letters and digits that begin with a letter, like A or C2"


def is_class_name(text: str) -> bool:
    """Whether a class may have that name; in profile files all other names are about something else."""
    return _CLASS_NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class Variability:
    """Scores per class, one per GPU in the cluster's order; `unscored` lists the GPUs that were given a median."""

    scores: Mapping[str, Sequence[float]]
    unscored: tuple[int, ...] = ()
    unscored_by_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The same class by class, where that is known; see `unscored_in`."""

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

    def unscored_in(self, name: str) -> tuple[int, ...]:
        """The GPUs whose score in that class stands in for a measurement."""
        return self.unscored_by_class.get(name, ()) if self.unscored_by_class else self.unscored

    @property
    def worst_class(self) -> str:
        """The class that feels variability most, which stands in for a class without scores."""
        return min(self.scores)

    def of_class(self, name: str) -> Sequence[float]:
        """Scores of one class; a class that was never measured is taken for the worst."""
        found = self.scores.get(name)
        return found if found is not None else self.scores[self.worst_class]


def from_partial(
    scores: Mapping[str, Mapping[int, float]], gpus: int, *, assumed: Mapping[str, Iterable[int]] | None = None
) -> Variability:
    """Scores known for some GPUs only: the others get the median of their class and are listed as unscored.

    `assumed` names GPUs whose score is given but was never measured; they are listed too and have no say in the median.
    """
    filled: dict[str, list[float]] = {}
    missing: dict[str, tuple[int, ...]] = {}
    for name, known in scores.items():
        outside = [g for g in known if not 0 <= g < gpus]
        if outside:
            raise InputError(f"class {name} scores GPU {outside[0]}, the cluster has GPUs 0 to {gpus - 1}")
        if not known:
            raise InputError(f"class {name} has no scores")
        guessed = set((assumed or {}).get(name, ()))
        measured = [score for g, score in known.items() if g not in guessed]
        median = statistics.median(measured or known.values())
        filled[name] = [known.get(g, median) for g in range(gpus)]
        absent = tuple(g for g in range(gpus) if g not in known or g in guessed)
        if absent:
            missing[name] = absent
    return Variability(filled, tuple(sorted({g for absent in missing.values() for g in absent})), missing)
