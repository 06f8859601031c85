"""FGD: where least becomes of no use to others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.parts import WHOLE, ask_of
from fairlead.policy.placing.rooms import Room
from fairlead.policy.placing.weighed import Weighed
from fairlead.policy.saved_state import reading
from fairlead.policy.view import JobState, View

_Kind = tuple[int, int, int, int]
"""Of a job: GPUs, the part of each, CPUs and memory of the host for each GPU; as `Ask` counts them."""
_ANEW = 1.25
"""What jobs are like is taken anew when so many times as many have come."""
_REMEMBERED = 200_000
"""Rooms whose fragmentation is remembered."""


@dataclass
class Fgd(Weighed):
    """The node, and the GPU, where the expected fragmentation grows least.

    Fragmentation gradient descent of Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
    Fragmentation Gradient Descent* (ATC 2023). For a kind of job m, all that is left of a node's GPUs is of no use if
    the node can't hold such a job (too few GPUs with the part it asks for, too few CPUs); else those GPUs are of which
    less is left than m asks for on each. The expected fragmentation of a node is the sum over the kinds of jobs, each
    by how often it comes:

        F(node) = sum over m of p(m) * (GPUs of the node of no use to m)

    A job goes where F grows least. Kinds are counted as jobs come, so nothing has to be known before; the counts that
    are used are renewed whenever a quarter more jobs have come. Equal growth: the first node, the fullest GPU.

    A job that fits into one node waits for one, as under `consolidated`; a wider one gets whole nodes and a rest.

    When not to use it: where all jobs ask for whole GPUs of nodes that hold them all alike; `packed` is cheaper.
    """

    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts: dict[_Kind, int] = {}
        self._seen = 0
        self._used: dict[_Kind, int] = {}
        """The counts when they were taken last."""
        self._weigh()

    def learn(self, arrived: Iterable[JobState]) -> None:
        """Count these jobs."""
        for state in arrived:
            ask = ask_of(state.job)
            self.count((state.job.gpus, ask.part, ask.cpus, ask.ram_kib))
        self.renew()

    def count(self, kind: _Kind) -> None:
        """A job of that kind has come."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._seen += 1

    def renew(self) -> None:
        """Take the counts anew, if enough have come since."""
        if self._seen > _ANEW * sum(self._used.values()):
            self._used = dict(self._counts)
            self._weigh()

    def cost(self, before: Room, after: Room) -> float:
        """How much the expected fragmentation grows, rounded so that equal growth is equal."""
        return round(self.fragmentation(after) - self.fragmentation(before), 3)

    def fragmentation(self, room: Room) -> float:
        """What is left of a node's GPUs that is of no use, over all kinds of jobs, in millionths of a GPU."""
        found = self._known.get(room)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[room] = self._expected(room)
        return found

    def _expected(self, room: Room) -> float:
        if not room.lefts or not len(self._share):
            return 0.0
        lefts = np.array(room.lefts, dtype=np.int64)
        too_small = lefts[None, :] < self._part[:, None]
        enough = (len(lefts) - too_small.sum(axis=1) >= self._gpus) & (self._gpus > 0)
        if room.cpus or room.ram_kib:
            enough &= (self._cpus <= room.cpus) & (self._ram_kib <= room.ram_kib)
        useless = np.where(enough, too_small @ lefts, lefts.sum())
        return float(self._share @ useless)

    def _weigh(self) -> None:
        self._known: dict[Room, float] = {}
        self._costs.clear()
        kinds = np.array(sorted(self._used), dtype=np.int64).reshape(-1, 4)
        counts = np.array([self._used[kind] for kind in sorted(self._used)], dtype=np.float64)
        self._share: NDArray[np.float64] = counts / counts.sum() if len(counts) else counts
        self._gpus, self._part = kinds[:, 0], kinds[:, 1]
        self._cpus, self._ram_kib = kinds[:, 2] * np.maximum(kinds[:, 0], 1), kinds[:, 3] * np.maximum(kinds[:, 0], 1)

    def knowledge(self) -> dict[str, Any]:
        """The kinds of jobs that have come, and those that scores go by."""
        return {
            "counts": [[*kind, count] for kind, count in self._counts.items()],
            "used": [[*kind, count] for kind, count in self._used.items()],
        }

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on counting from there."""
        with reading("fgd", saved, "counts", "used"):
            self._counts = {_kind(row): int(row[4]) for row in saved["counts"]}
            self._used = {_kind(row): int(row[4]) for row in saved["used"]}
            self._seen = sum(self._counts.values())
        self._weigh()


def _kind(row: list[Any]) -> _Kind:
    gpus, part, cpus, ram_kib = (int(value) for value in row[:4])
    if gpus < 0 or not 0 <= part <= WHOLE:
        raise ValueError(f"{row!r} is no kind of job")
    return gpus, part, cpus, ram_kib
