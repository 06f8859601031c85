"""Application classes: K-means in the plane of DRAM and FMA utilisation (PAL).

Applications that keep the arithmetic units busy feel a slow GPU most, those that wait for memory least. Classes are
named A, B, C ... in that order: by FMA minus DRAM utilisation of their centroids, largest first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import FairleadError, InputError
from fairlead.measure.counters import Counters
from fairlead.model.files import read_text

MOST_CLASSES = 10
_SEED = 0


@dataclass(frozen=True, slots=True)
class AppClass:
    """One class: its centroid, how far its farthest member is from there, and the members."""

    name: str
    dram_frac: float
    fma_frac: float
    radius: float
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Where a new application belongs."""

    application: str
    app_class: str
    distance: float
    """From the class's centroid."""
    radius: float
    """The distance of the class's farthest member."""
    far: bool
    """Whether it is farther out than any member: the class may not describe it."""


@dataclass(frozen=True)
class Classes:
    """Classes from the most to the least sensitive, and the silhouettes that chose their number."""

    classes: tuple[AppClass, ...]
    silhouettes: Mapping[int, float]

    def join(self, new: Counters) -> Joined:
        """The class with the nearest centroid."""
        distance, nearest = min(((_distance(new, c), c) for c in self.classes), key=lambda pair: pair[0])
        far = distance > nearest.radius + 1e-12
        return Joined(new.application, nearest.name, distance, nearest.radius, far)

    def as_json(self) -> dict[str, object]:
        """The classes in plain types."""
        return {
            "k": len(self.classes),
            "classes": [asdict(c) for c in self.classes],
            "silhouettes": {str(k): value for k, value in self.silhouettes.items()},
        }


def cluster_applications(table: Sequence[Counters], k: int | None = None) -> Classes:
    """Classes of applications: `k` of them, or as many as give the best silhouette."""
    # By value, so that neither names nor the order of rows decide where K-means starts.
    table = sorted(table, key=lambda c: (c.dram_frac, c.fma_frac, c.application))
    points = [[c.dram_frac, c.fma_frac] for c in table]
    most = _most_classes(table)
    if k is not None and not 2 <= k <= most:
        raise InputError(f"k is {k}, expected a number from 2 to {most} for {len(table)} applications")
    try:
        from sklearn.cluster import KMeans
        from sklearn.metrics import silhouette_score
    except ModuleNotFoundError:
        raise FairleadError("clustering needs scikit-learn", hint="pip install 'fairlead[measure]'") from None
    labels: dict[int, list[int]] = {}
    silhouettes: dict[int, float] = {}
    for count in range(2, most + 1):
        fitted = KMeans(n_clusters=count, init="k-means++", n_init=10, random_state=_SEED).fit(points)
        labels[count] = [int(label) for label in fitted.labels_]
        silhouettes[count] = float(silhouette_score(points, labels[count]))
    best = k or max(silhouettes, key=lambda count: (silhouettes[count], -count))
    groups = [[c for c, label in zip(table, labels[best], strict=True) if label == i] for i in range(best)]
    return Classes(_named(groups), silhouettes)


def _most_classes(table: Sequence[Counters]) -> int:
    if len(table) < 3:
        raise InputError(f"found {len(table)} applications, expected at least 3 to tell classes apart")
    for what in ("dram_frac", "fma_frac"):
        values = {getattr(c, what) for c in table}
        if len(values) == 1:
            raise InputError(f"{what} is {values.pop():g} for all applications, expected values that differ")
        wrong = [value for value in values if not 0.0 <= value <= 1.0]
        if wrong:
            raise InputError(f"{what}: found {wrong[0]:g}, expected a fraction from 0 to 1")
    distinct = len({(c.dram_frac, c.fma_frac) for c in table})
    return min(MOST_CLASSES, len(table) - 1, distinct)


def _named(groups: Sequence[Sequence[Counters]]) -> tuple[AppClass, ...]:
    found = []
    for group in groups:
        dram = math.fsum(c.dram_frac for c in group) / len(group)
        fma = math.fsum(c.fma_frac for c in group) / len(group)
        found.append((dram, fma, group))
    found.sort(key=lambda entry: (entry[0] - entry[1], -entry[1]))
    named = []
    for letter, (dram, fma, group) in zip("ABCDEFGHIJ", found, strict=False):
        radius = max(math.hypot(c.dram_frac - dram, c.fma_frac - fma) for c in group)
        named.append(AppClass(letter, dram, fma, radius, tuple(sorted(c.application for c in group))))
    return tuple(named)


def _distance(new: Counters, to: AppClass) -> float:
    return math.hypot(new.dram_frac - to.dram_frac, new.fma_frac - to.fma_frac)


class _ClassEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str = Field(min_length=1)
    dram_frac: float = Field(ge=0, le=1)
    fma_frac: float = Field(ge=0, le=1)
    radius: float = Field(ge=0)
    members: tuple[str, ...] = ()


class _ClassesFile(BaseModel):
    classes: list[_ClassEntry] = Field(min_length=1)
    silhouettes: dict[int, float] = Field(default_factory=dict)


def save_classes(classes: Classes, path: Path) -> None:
    """Write classes to a JSON file."""
    try:
        path.write_text(json.dumps(classes.as_json(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def load_classes(path: Path) -> Classes:
    """Read the classes that `save_classes` wrote."""
    try:
        parsed = _ClassesFile.model_validate_json(read_text(path))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the file"
        raise InputError(
            f"{path}: {where}: {problem['msg'].lower()}", hint="give a file that measure classes --out wrote"
        ) from None
    return Classes(tuple(AppClass(**dict(entry)) for entry in parsed.classes), parsed.silhouettes)
