"""Least attained service: Tiresias' discretised two-dimensional queues."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.policy.ordering.line import Line
from fairlead.policy.queue import Key
from fairlead.policy.saved_state import reading
from fairlead.policy.stages import Cut, Ordering, Skips, option
from fairlead.policy.view import JobState, View

_SLACK_GPU_S = 1e-6
"""A job that is this close to a threshold has reached it: a wake-up computed for that moment may land a hair early."""

_MOST_QUEUES = 100
"""Thresholds ten times the one before soon have no number."""


@dataclass
class Las(Ordering):
    """Least attained service first, preemptive, without knowing how long jobs take (Tiresias-L, NSDI'19).

    Service is GPU-time: GPUs times seconds held. Order: the queue that a job's service so far puts it in, then as
    `within` says. With `queues=K` there are K queues with K-1 thresholds; a job falls to the next queue when its
    service reaches a threshold, and never rises. `thresholds=3600/36000` gives them in GPU-seconds; by default the
    first is 3,600 and each further one ten times the one before. `queues=0` does not discretise: the order is service
    itself, looked at on every event or round.

    Inside a queue, `within=fifo` goes by submission: an earlier job takes the GPUs of later ones. `within=running` is
    the order of the published simulator, and of the preset `tiresias`: those that run go before those that wait. So a
    job preempts jobs of lower queues only. Those that run stand in the order in which they started. Those that were
    preempted wait ahead of those that never ran, the last preempted first. A job that falls to a queue goes to its end,
    behind those that wait there, and is among those that run from the next decision on if it still does.

    At every event (arrival, end, fall to a lower queue), or in every round, the cluster is filled in that order,
    skipping whoever does not fit; `backfill=strict` stops at the first who does not, as PAL's simulator does in rounds.
    Tiresias' promotion of starving jobs is off there by default and is not offered here.

    When not to use it: where most jobs are equally long, since it then preempts for nothing.
    """

    queues: int = option(2, "number of queues; 0 orders by service itself")
    thresholds: tuple[float, ...] = option((), "service in GPU-seconds at which a job falls a queue, as 3600/36000")
    within: Literal["fifo", "running"] = option(
        "fifo", "inside a queue: fifo by submission, running those that run first"
    )
    backfill: Cut = option("greedy", "behind a job that does not fit: greedy skips it, strict stops there")
    _falls: list[tuple[float, int, int]] = field(default_factory=list, init=False, repr=False)
    """(moment, job, its `starts` then) of the next fall of each running job; entries of earlier runs are stale."""
    _line: Line | None = field(default=None, init=False, repr=False)
    """The order inside the queues, where those that run go first."""
    _recalled: set[tuple[int, int]] = field(default_factory=set, init=False, repr=False)
    """(job, `starts`) of the runs whose fall was saved: computed anew it would be off by a rounding error."""

    def __post_init__(self) -> None:
        if not 0 <= self.queues <= _MOST_QUEUES:
            raise ValueError(f"queues={self.queues}: 0 to {_MOST_QUEUES}")
        if not self.thresholds:
            self.thresholds = tuple(3600.0 * 10.0**i for i in range(max(0, self.queues - 1)))
        if len(self.thresholds) != max(0, self.queues - 1):
            raise ValueError(
                f"{self.queues} queues have {max(0, self.queues - 1)} thresholds, found {len(self.thresholds)}"
            )
        if self.within == "running" and not self.queues:
            raise ValueError("within=running needs queues; with queues=0 there are none")
        self._line = Line() if self.within == "running" else None
        if any(b <= a for a, b in zip((0.0, *self.thresholds), self.thresholds, strict=False)):
            raise ValueError(f"thresholds={'/'.join(f'{t:g}' for t in self.thresholds)}: above 0 and ascending")

    @property
    def preemptive(self) -> bool:
        """Always: whoever has had less goes first."""
        return True

    @property
    def skips(self) -> Skips:
        """What becomes of jobs behind a head that does not fit, as the option says."""
        return self.backfill

    @property
    def drifts(self) -> bool:
        """Undiscretised service moves all the time."""
        return self.queues == 0

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Queue, then submission, or where it stands in the line of its queue."""
        attained = state.attained_gpu_s(view.now_s)
        if self.drifts:
            return (attained, state.job.id)
        queue = bisect_right(self.thresholds, attained + _SLACK_GPU_S)
        if self._line is None:
            return (queue, state.job.id)
        return (queue, *self._line.key(state, view))

    def watch(self, state: JobState, width: int, starts: int, view: View) -> None:
        """Note when the job will fall to the next queue if it runs on."""
        if self._line is not None:
            self._line.start(state.job.id, starts)
        if self._recalled and (run := (state.job.id, starts)) in self._recalled:
            self._recalled.remove(run)
            return
        self._note_fall(state, width, starts, view)

    def _note_fall(self, state: JobState, width: int, starts: int, view: View) -> None:
        attained = state.attained_gpu_s(view.now_s)
        queue = bisect_right(self.thresholds, attained + _SLACK_GPU_S)
        if queue < len(self.thresholds):
            left_gpu_s = self.thresholds[queue] - attained
            heapq.heappush(self._falls, (view.now_s + left_gpu_s / (width * state.job.gpu_frac), state.job.id, starts))

    def expired(self, view: View) -> list[JobState]:
        """Jobs that fell since the last decision, and those that had just fallen then."""
        fallen = [] if self._line is None else self._line.settle(view)
        while (due := self._next(view)) is not None and due[0] <= view.now_s:
            heapq.heappop(self._falls)
            state = view.running[due[1]]
            self._note_fall(state, len(state.gpus), state.starts, view)
            fallen.append(state)
            if self._line is not None:
                self._line.fall(state)
        return fallen

    def wake_s(self, view: View) -> float | None:
        """When the next running job falls into a lower queue."""
        return self._falls[0][0] if self._falls else None

    def knowledge(self) -> dict[str, Any]:
        """When running jobs fall, and where they stand."""
        falls = {"falls": [list(fall) for fall in sorted(self._falls)]}
        return falls if self._line is None else {**falls, "line": self._line.knowledge()}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Those of the runs that are still on."""
        with reading("las", saved, "falls", "line"):
            falls = [(float(at_s), int(job_id), int(starts)) for at_s, job_id, starts in saved["falls"]]
        if self._line is not None and "line" in saved:
            self._line.recall(saved["line"], view)
        running = view.running
        self._falls = [f for f in falls if f[1] in running and running[f[1]].starts == f[2]]
        heapq.heapify(self._falls)
        self._recalled = {(job_id, starts) for _, job_id, starts in self._falls}

    def _next(self, view: View) -> tuple[float, int, int] | None:
        """The next fall of a job that is still in the run it was noted for."""
        while self._falls:
            _, job_id, starts = self._falls[0]
            state = view.running.get(job_id)
            if state is not None and state.starts == starts:
                return self._falls[0]
            heapq.heappop(self._falls)
        return None
