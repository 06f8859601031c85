"""Where jobs stand inside a queue, by the rules of Tiresias' published simulator.

Its queues are lists. A job that comes is put at the end, and so is one that falls to the queue. After every decision
those that wait are moved behind those that run. So those that run stand in the order in which they began to; of those
that wait, the ones that were preempted stand first, the last preempted ahead, then those that were put at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.policy.job_state import JobState
from fairlead.policy.queue import Key
from fairlead.policy.saved_state import reading
from fairlead.policy.view import View

_RUNS, _WAITS = 0, 1
_PREEMPTED, _AT_THE_END = 0, 1


class Line:
    """The order in which jobs began to run, and who falls to another queue right now."""

    def __init__(self) -> None:
        self._positions: dict[int, tuple[int, int]] = {}
        """Of each job that runs or has run: its `starts`, and a number that grows with every start and every fall."""
        self._next = 0
        self._falling: dict[int, None] = {}
        """In the present decision."""
        self._sunk: set[int] = set()
        """Jobs that were preempted in the very decision in which they fell: they wait at the end."""

    def settle(self, view: View) -> list[JobState]:
        """Begin a decision: who fell in the last one and still runs is the last of those that run."""
        settled = [view.running[job_id] for job_id in sorted(self._falling) if job_id in view.running]
        self._sunk.update(job_id for job_id in self._falling if job_id not in view.running)
        self._falling.clear()
        for ended in view.changes.ended:
            self._positions.pop(ended.job.id, None)
            self._sunk.discard(ended.job.id)
        for state in settled:
            self._seat(state.job.id, state.starts)
        return settled

    def start(self, job_id: int, starts: int) -> None:
        """A job runs from now on; told again of one run, it changes nothing."""
        if self._positions.get(job_id, (0, 0))[0] != starts:
            self._seat(job_id, starts)

    def fall(self, state: JobState) -> None:
        """A running job goes to the end of the next queue."""
        self._falling[state.job.id] = None

    def key(self, state: JobState, view: View) -> Key:
        """Where a job stands in its queue."""
        job_id = state.job.id
        if job_id in self._falling:
            return (_WAITS, _AT_THE_END, view.now_s, job_id)
        position = self._positions[job_id][1] if job_id in self._positions else -1
        if state.gpus:
            return (_RUNS, position, 0.0, job_id)
        if state.starts and job_id not in self._sunk:
            return (_WAITS, _PREEMPTED, -state.since_s, position, job_id)
        return (_WAITS, _AT_THE_END, state.since_s, job_id)

    def _seat(self, job_id: int, starts: int) -> None:
        self._sunk.discard(job_id)
        self._positions[job_id] = (starts, self._next)
        self._next += 1

    def knowledge(self) -> dict[str, Any]:
        """The order, in plain types."""
        positions = [[job_id, starts, position] for job_id, (starts, position) in self._positions.items()]
        return {"positions": positions, "next": self._next, "falling": list(self._falling), "sunk": sorted(self._sunk)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here, or may come back."""
        with reading("the order inside the queues", saved, "positions", "next", "falling", "sunk"):
            self._positions = {
                int(job_id): (int(starts), int(position)) for job_id, starts, position in saved["positions"]
            }
            self._next = int(saved["next"])
            self._falling = dict.fromkeys(int(job_id) for job_id in saved["falling"])
            self._sunk = {int(job_id) for job_id in saved["sunk"]}
