"""The waiting jobs of a plain run: who starts next, by the regimes `InOrder` and `Easy` of policy/admission.py.

An order that never changes while jobs wait can be taken beforehand: a job's rank is its place in it.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from fairlead.policy.admission import Easy, InOrder, Regime
from fairlead.policy.backfill_index import Lanes
from fairlead.policy.ordering.fifo import Fifo
from fairlead.policy.ordering.priority import Priority
from fairlead.policy.ordering.sjf import Sjf
from fairlead.policy.stages import Ordering
from fairlead.policy.working_job import NEVER

NOBODY = -1
ORDERS: dict[type[Ordering], Callable[[pl.DataFrame], Sequence[int]]] = {
    Fifo: lambda jobs: range(jobs.height),
    Sjf: lambda jobs: np.argsort(jobs["duration_s"].to_numpy(), kind="stable").tolist(),
    Priority: lambda jobs: np.argsort(-jobs["priority"].to_numpy(), kind="stable").tolist(),
}
"""Orderings whose keys stay as they are while jobs wait: the jobs in order. Ties go by submission, as they do there."""


class StrictQueue:
    """The first in order starts if it fits; nobody passes it."""

    def __init__(self, order: Sequence[int], gpus: Sequence[int]) -> None:
        self._order, self._gpus = order, gpus
        self._ranks: Sequence[int] = order if isinstance(order, range) else np.argsort(order).tolist()
        self._heap: list[int] = []

    def push(self, job: int, now_s: float) -> None:
        """Let a job wait, at its rank."""
        heapq.heappush(self._heap, self._ranks[job])

    def pop(self, free: int, now_s: float) -> int:
        """The job that starts next in this decision; `NOBODY` ends it."""
        if self._heap:
            job = self._order[self._heap[0]]
            if self._gpus[job] <= free:
                heapq.heappop(self._heap)
                return job
        return NOBODY

    def ended(self, job: int) -> None:
        """A job has left its GPUs."""


class GreedyQueue(StrictQueue):
    """The first in order that fits starts, whoever is skipped."""

    def __init__(self, order: Sequence[int], gpus: Sequence[int]) -> None:
        super().__init__(order, gpus)
        self._heaps: dict[int, list[int]] = {width: [] for width in sorted(set(gpus))}

    def push(self, job: int, now_s: float) -> None:
        """A job waits, among those of its width."""
        heapq.heappush(self._heaps[self._gpus[job]], self._ranks[job])

    def pop(self, free: int, now_s: float) -> int:
        """The first of the heads of each width that fits."""
        first: list[int] | None = None
        for width, heap in self._heaps.items():
            if width > free:
                break
            if heap and (first is None or heap[0] < first[0]):
                first = heap
        return NOBODY if first is None else self._order[heapq.heappop(first)]


class EasyQueue(StrictQueue):
    """In order while they fit; the first that does not has a reservation, and others start if they do not delay it."""

    def __init__(
        self, order: Sequence[int], gpus: Sequence[int], duration_s: array[float], end_s: array[float]
    ) -> None:
        super().__init__(order, gpus)
        self._duration_s, self._end_s = duration_s, end_s
        self._lanes = Lanes()
        self._passed: set[int] = set()
        """Ranks in the heap of jobs that have started before those ahead of them."""
        self._ends: list[tuple[float, int]] = []
        """(moment, job) of the running jobs, as EASY believes them, sorted."""
        self._believed_s: dict[int, float] = {}
        self._started: list[int] = []
        """In the last decision: believed to run at their nominal speed until the next one."""
        self._reserved: tuple[float, int] | None = None
        """In the present decision: the moment of the head's start, and the GPUs that it leaves over."""
        self._decided = True
        """Whether the last decision is over."""

    def push(self, job: int, now_s: float) -> None:
        """A job waits, with its run time."""
        super().push(job, now_s)
        # The run time as the general loop has it: as the difference of two moments, with its rounding.
        run_s = now_s + self._duration_s[job] - now_s
        self._lanes.push(job, (self._ranks[job],), self._gpus[job], run_s)

    def ended(self, job: int) -> None:
        """It is no longer waited for."""
        if job in self._believed_s:
            del self._ends[bisect_left(self._ends, (self._believed_s.pop(job), job))]

    def pop(self, free: int, now_s: float) -> int:
        """The head while it fits; then whoever ends before its reservation or uses what it leaves."""
        if self._decided:
            self._look_again(now_s)
            self._decided, self._reserved = False, None
        if self._reserved is None:
            head = self._head()
            if head is None:
                return self._start_nobody()
            if self._gpus[head] <= free:
                heapq.heappop(self._heap)
                return self._start(head, now_s)
            self._reserved = self._reservation(self._gpus[head], free)
        reserved_s, spare = self._reserved
        job = self._lanes.first(free, spare, reserved_s - now_s)
        if job is None:
            return self._start_nobody()
        delays = now_s + self._duration_s[job] > reserved_s
        self._reserved = (reserved_s, spare - self._gpus[job] if delays else spare)
        self._passed.add(self._ranks[job])
        return self._start(job, now_s)

    def _start_nobody(self) -> int:
        self._decided = True
        return NOBODY

    def _look_again(self, now_s: float) -> None:
        """Whoever was started in an earlier decision ends when it does at the speed that it has."""
        for job in [job for job in self._started if job in self._believed_s]:
            self.ended(job)
            self._believe(job, now_s + (self._end_s[job] - now_s))
        self._started.clear()

    def _head(self) -> int | None:
        heap, passed = self._heap, self._passed
        while heap and heap[0] in passed:
            passed.remove(heapq.heappop(heap))
        return self._order[heap[0]] if heap else None

    def _start(self, job: int, now_s: float) -> int:
        self._lanes.remove(job)
        self._believe(job, now_s + self._duration_s[job])
        self._started.append(job)
        return job

    def _believe(self, job: int, moment_s: float) -> None:
        self._believed_s[job] = moment_s
        insort(self._ends, (moment_s, job))

    def _reservation(self, width: int, free: int) -> tuple[float, int]:
        """When `width` GPUs will be free if nobody else starts, and how many more will be then."""
        reserved_s = NEVER
        for moment_s, job in self._ends:
            if moment_s > reserved_s:
                break
            free += self._gpus[job]
            if free >= width:
                reserved_s = min(reserved_s, moment_s)
        return reserved_s, max(0, free - width)


def queue_of(
    ordering: Ordering, regime: Regime, jobs: pl.DataFrame, duration_s: array[float], end_s: array[float]
) -> StrictQueue | None:
    """The queue that starts jobs as this ordering does in this regime; None where there is none."""
    order = ORDERS.get(type(ordering))
    if order is None or regime not in (InOrder("none"), InOrder("greedy"), Easy()):
        return None
    ordered, gpus = order(jobs), jobs["gpus"].to_list()
    if isinstance(regime, Easy):
        return EasyQueue(ordered, gpus, duration_s, end_s)
    return (GreedyQueue if regime == InOrder("greedy") else StrictQueue)(ordered, gpus)
