"""How an application really trains, epoch by epoch: the truth of a simulated job, and what it reports of itself.

`Application` (application.py) chooses its batch in every epoch, as elastic jobs do. `FixedBatch` is the same job when
it keeps the batch that it was submitted with. `GoodputTable` is for applications of which only the goodput at some
widths was measured.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairlead.errors import InputError
from fairlead.model.application import Application, Steps
from fairlead.model.goodput import BatchLimits, goodput


class Training(Protocol):
    """How fast one application trains."""

    @property
    def name(self) -> str:
        """Jobs of one name train alike."""
        ...

    @property
    def samples(self) -> tuple[float, ...]:
        """Of each epoch, counted as if the batch were the initial one."""
        ...

    def goodput_at(self, epoch: int, replicas: int, nodes: int) -> float:
        """Samples per second that count; 0 where so many replicas cannot be fed."""
        ...

    def steps_at(self, epoch: int, replicas: int, nodes: int) -> Steps | None:
        """What its iterations look like there; None where only the goodput is known."""
        ...


def packed_nodes(replicas: int, gpus_per_node: int) -> int:
    """As few nodes as will do."""
    return -(-replicas // gpus_per_node)


def whole_job_s(training: Training, replicas: int, nodes: int) -> float:
    """All epochs there, without restarts; infinite where so many replicas cannot be fed."""
    speeds = [training.goodput_at(e, replicas, nodes) for e in range(len(training.samples))]
    return math.fsum(n / s if s > 0.0 else math.inf for n, s in zip(training.samples, speeds, strict=True))


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """An application that keeps its total batch, however many GPUs it has."""

    app: Application
    batch: int

    def __post_init__(self) -> None:
        limits = self.app.limits
        if not limits.initial <= self.batch <= limits.max_total:
            raise InputError(
                f"{self.app.name} with a batch of {self.batch}",
                hint=f"its batches go from {limits.initial} to {limits.max_total}",
            )

    @property
    def name(self) -> str:
        """With the batch, as it trains differently with another."""
        return f"{self.app.name}@{self.batch}"

    @property
    def samples(self) -> tuple[float, ...]:
        """Of each epoch."""
        return self.app.samples

    def goodput_at(self, epoch: int, replicas: int, nodes: int) -> float:
        """At that batch."""
        local, again = self._split(replicas)
        if local < self.app.limits.local_min:
            return 0.0
        steps, limits = self.app.steps_model(replicas, nodes), self.app.limits
        return float(goodput(steps, self.app.epochs[epoch], limits.initial, replicas, nodes, local, again))

    def steps_at(self, epoch: int, replicas: int, nodes: int) -> Steps:
        """What its iterations look like."""
        return self.app.steps_with(epoch, replicas, nodes, *self._split(replicas), self.batch)

    def _split(self, replicas: int) -> tuple[int, int]:
        return split_batch(self.app.limits, self.batch, replicas)


def split_batch(limits: BatchLimits, batch: int, replicas: int) -> tuple[int, int]:
    """(local batch, accumulation steps) of a total batch over that many replicas."""
    share = math.ceil(batch / replicas)
    again = math.ceil(share / limits.local_max) - 1
    if replicas == 1 and batch > limits.initial:
        again = max(1, again)  # a single minibatch says nothing of the gradient's variance
    return math.ceil(share / (again + 1)), again


@dataclass(frozen=True, slots=True)
class GoodputTable:
    """Measured goodput by epoch and width: linear between the widths, flat beyond them."""

    name: str
    samples: tuple[float, ...]
    widths: tuple[int, ...]
    goodputs: tuple[tuple[float, ...], ...]
    """Per epoch, at each of the widths."""

    def goodput_at(self, epoch: int, replicas: int, nodes: int) -> float:
        """As measured, however many nodes it takes."""
        return interpolated(self.widths, self.goodputs[epoch], replicas)

    def steps_at(self, epoch: int, replicas: int, nodes: int) -> None:
        """Nothing is known of its iterations."""


def interpolated(xs: tuple[int, ...], ys: tuple[float, ...], x: int) -> float:
    """Linear between points, flat beyond them."""
    i = bisect_left(xs, x)
    if i == len(xs):
        return ys[-1]
    if i == 0 or xs[i] == x:
        return ys[i]
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1])


def read_goodput_tables(path: str | Path, samples: Mapping[str, tuple[float, ...]]) -> dict[str, GoodputTable]:
    """Tables from a csv with the columns app, epoch, gpus, goodput_samples_per_s; `samples` are those of each epoch."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                of_epoch = found.setdefault(row["app"], {}).setdefault(int(row["epoch"]), {})
                of_epoch[int(row["gpus"])] = float(row["goodput_samples_per_s"])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{path} is no table of goodputs: {error}", hint="columns app, epoch, gpus, goodput_samples_per_s"
        ) from error
    return {name: _table(str(path), name, by_epoch, samples) for name, by_epoch in found.items()}


def _table(
    path: str, name: str, by_epoch: Mapping[int, Mapping[int, float]], samples: Mapping[str, tuple[float, ...]]
) -> GoodputTable:
    if name not in samples or len(samples[name]) < len(by_epoch):
        raise InputError(f"{path}: nothing is known of the epochs of {name}")
    if sorted(by_epoch) != list(range(len(by_epoch))):
        raise InputError(f"{path}: the epochs of {name} are not 0 to {len(by_epoch) - 1}")
    widths = tuple(sorted(set.intersection(*(set(points) for points in by_epoch.values()))))
    if not widths or widths[0] != 1:
        raise InputError(f"{path}: {name} was not measured on one GPU in every epoch")
    goodputs = tuple(tuple(by_epoch[e][k] for k in widths) for e in range(len(by_epoch)))
    return GoodputTable(name, samples[name][: len(by_epoch)], widths, goodputs)
