"""How a job really trains, epoch by epoch: the truth of a simulated job, and what it reports of itself.

`AdaptiveBatch` (adaptive_batch.py) is a job that chooses its batch in every epoch. `FixedBatch` is the same job when
it keeps the batch that it was submitted with. `GoodputTable` is for jobs of which only the goodput at some
widths was measured.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fairlead.errors import InputError
from fairlead.model.adaptive_batch import AdaptiveBatch, Steps
from fairlead.model.goodput import BatchLimits, goodput


class Training(Protocol):
    """How fast jobs of one profile train."""

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
    """A job that keeps its total batch, however many GPUs it has."""

    adaptive: AdaptiveBatch
    batch: int

    def __post_init__(self) -> None:
        limits = self.adaptive.limits
        if not limits.initial <= self.batch <= limits.max_total:
            raise InputError(
                f"{self.adaptive.name} with a batch of {self.batch}",
                hint=f"its batches go from {limits.initial} to {limits.max_total}",
            )

    @property
    def name(self) -> str:
        """With the batch, as it trains differently with another."""
        return f"{self.adaptive.name}@{self.batch}"

    @property
    def samples(self) -> tuple[float, ...]:
        """The samples of each epoch."""
        return self.adaptive.samples

    def goodput_at(self, epoch: int, replicas: int, nodes: int) -> float:
        """Goodput at its own batch; 0 where that batch cannot be split so."""
        local, again = self._split(replicas)
        if not self.adaptive.limits.local_min <= local <= self.adaptive.limits.local_max:
            return 0.0
        steps, limits = self.adaptive.steps_model(replicas, nodes), self.adaptive.limits
        return float(goodput(steps, self.adaptive.epochs[epoch], limits.initial, replicas, nodes, local, again))

    def steps_at(self, epoch: int, replicas: int, nodes: int) -> Steps:
        """What its iterations look like."""
        return self.adaptive.steps_with(epoch, replicas, nodes, *self._split(replicas), self.batch)

    def _split(self, replicas: int) -> tuple[int, int]:
        return split_batch(self.adaptive.limits, self.batch, replicas)


def split_batch(limits: BatchLimits, batch: int, replicas: int) -> tuple[int, int]:
    """(local batch, accumulation steps) of a total batch over that many replicas."""
    share = math.ceil(batch / replicas)
    if not limits.accumulate:
        return share, 0
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


_COLUMNS = ("app", "epoch", "gpus", "goodput_samples_per_s")
_TABLE_HINT = "a csv with the columns app, epoch, gpus, goodput_samples_per_s, samples"


@dataclass(slots=True)
class _Measured:
    """What a file says of one profile."""

    by_epoch: dict[int, dict[int, float]] = field(default_factory=dict)
    """Goodput by epoch and GPUs."""
    samples: dict[int, float] = field(default_factory=dict)


def read_goodput_tables(
    path: str | Path, samples: Mapping[str, tuple[float, ...]] | None = None
) -> dict[str, GoodputTable]:
    """Tables from a csv with the columns app, epoch, gpus, goodput_samples_per_s and samples.

    `samples` are those of each epoch, the same in all its rows; given as an argument, the file need not have them.
    """
    found: dict[str, _Measured] = {}
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            _check_columns(path, reader.fieldnames or (), samples is not None)
            for row in reader:
                try:
                    _add_row(found, row)
                except (TypeError, ValueError) as error:
                    # A row that is too short has None in its last columns.
                    said = f"{path} is no table of goodputs: line {reader.line_num}: {error}"
                    raise InputError(said, hint=_TABLE_HINT) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no csv file: {error}", hint=_TABLE_HINT) from None
    if not found:
        raise InputError(f"{path} has no rows", hint=_TABLE_HINT)
    return {name: _table(str(path), name, one, (samples or {}).get(name)) for name, one in found.items()}


def _check_columns(path: str | Path, columns: Sequence[str], samples_given: bool) -> None:
    needed = _COLUMNS if samples_given else (*_COLUMNS, "samples")
    if lacking := [name for name in needed if name not in columns]:
        raise InputError(f"{path} is no table of goodputs: it lacks {', '.join(lacking)}", hint=_TABLE_HINT)


def _add_row(found: dict[str, _Measured], row: Mapping[str, str]) -> None:
    name, epoch, gpus, speed = row["app"], int(row["epoch"]), int(row["gpus"]), float(row["goodput_samples_per_s"])
    if not name or epoch < 0 or gpus < 1 or not 0.0 <= speed < math.inf:
        raise ValueError(
            f"app {name!r}, epoch {epoch}, gpus {gpus}, goodput {speed:g}: a name, 0 or more, 1 or more, 0 or more"
        )
    one = found.setdefault(name, _Measured())
    if gpus in one.by_epoch.setdefault(epoch, {}):
        raise ValueError(f"epoch {epoch} of {name} on {gpus} GPUs was there before")
    one.by_epoch[epoch][gpus] = speed
    if row.get("samples"):
        samples = float(row["samples"])
        if not 0.0 < samples < math.inf:
            raise ValueError(f"samples {samples:g}: a number above 0")
        if one.samples.setdefault(epoch, samples) != samples:
            raise ValueError(f"epoch {epoch} of {name} has {samples:g} samples here and {one.samples[epoch]:g} before")


def _table(path: str, name: str, one: _Measured, samples: tuple[float, ...] | None) -> GoodputTable:
    epochs = len(one.by_epoch)
    if sorted(one.by_epoch) != list(range(epochs)):
        raise InputError(f"{path}: the epochs of {name} are not 0 to {epochs - 1}")
    if samples is None and len(one.samples) == epochs:
        samples = tuple(one.samples[e] for e in range(epochs))
    if samples is None or len(samples) < epochs:
        raise InputError(
            f"{path}: nothing is known of the epochs of {name}: their samples are missing", hint=_TABLE_HINT
        )
    widths = tuple(sorted(set.intersection(*(set(points) for points in one.by_epoch.values()))))
    goodputs = tuple(tuple(one.by_epoch[e][k] for k in widths) for e in range(epochs))
    if not widths or widths[0] != 1 or not all(row[0] > 0.0 for row in goodputs):
        raise InputError(f"{path}: {name} was not measured on one GPU in every epoch")
    return GoodputTable(name, samples[:epochs], widths, goodputs)
