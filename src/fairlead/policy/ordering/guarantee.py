"""Who has been the first of a user's waiting jobs for too long: the guarantee of `ordering=fair`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.policy.ordering.shares import Path
from fairlead.policy.queue import Key
from fairlead.policy.view import JobState, View


class Guarantee:
    """The first waiting job of each user, and when it goes ahead of everybody: after `after_s`; 0 is never."""

    def __init__(self, after_s: float, path: Callable[[JobState], Path], key: Callable[[JobState], Key]) -> None:
        self._after_s, self._path, self._key = after_s, path, key
        self._lines: dict[Path, list[tuple[Key, int]]] = {}
        """A heap of the waiting jobs of each user."""
        self._first: dict[Path, tuple[int, float]] = {}
        """The first waiting job of each user, and when it will have been the first for too long."""
        self._dirty: set[Path] = set()
        """Users of whom another job may be the first by now."""
        self.starting: set[Path] = set()
        """Users of whom the present decision starts jobs: these wait until it is true."""
        self._dues: list[tuple[float, Path, int]] = []
        """(moment, user, job): when the first of a user will have waited too long."""
        self.overdue: set[int] = set()
        """Jobs that have waited too long."""

    def line_up(self, state: JobState) -> None:
        """A job waits behind those of its user."""
        if self._after_s:
            path = self._path(state)
            heapq.heappush(self._lines.setdefault(path, []), (self._key(state), state.job.id))
            self._dirty.add(path)

    def expired(self, view: View) -> list[JobState]:
        """The waiting jobs that have waited too long since the last decision."""
        self.overdue = {j for j in self.overdue if j in view.waiting}
        self._dirty |= self.starting
        self.starting.clear()
        found = []
        # By who was first until now: whoever has just come ahead of a job does not take away that it has waited.
        while self._dues and self._dues[0][0] <= view.now_s:
            due = heapq.heappop(self._dues)
            if self._is_due(due) and due[2] in view.waiting:
                self.overdue.add(due[2])
                found.append(view.waiting[due[2]])
        self._find_firsts(view)
        return found

    def soonest_s(self, view: View) -> float:
        """When the next job will have waited too long; never is infinite."""
        self._find_firsts(view)
        while self._dues and not self._is_due(self._dues[0]):
            heapq.heappop(self._dues)
        return self._dues[0][0] if self._dues else float("inf")

    def _find_firsts(self, view: View) -> None:
        """Who is the first of each user, where that may have changed."""
        if not self._after_s:
            return
        for state in (*view.changes.ended, *view.changes.withdrawn):
            self._dirty.add(self._path(state))
        for path in sorted(self._dirty):
            line = self._lines.get(path, [])
            while line and line[0][1] not in view.waiting:
                heapq.heappop(line)
            if not line:
                self._lines.pop(path, None)
                self._first.pop(path, None)
            elif path not in self._first or self._first[path][0] != line[0][1]:
                due_s = view.now_s + self._after_s
                self._first[path] = (line[0][1], due_s)
                heapq.heappush(self._dues, (due_s, path, line[0][1]))
        self._dirty.clear()

    def _is_due(self, due: tuple[float, Path, int]) -> bool:
        """Whether an entry of `_dues` is still of the one who is the first."""
        due_s, path, job_id = due
        return self._first.get(path) == (job_id, due_s) and job_id not in self.overdue

    def knowledge(self) -> dict[str, Any]:
        """Who has waited how long at the head of a user's jobs."""
        return {
            "first": [[list(path), job_id, due_s] for path, (job_id, due_s) in sorted(self._first.items())],
            "starting": sorted(map(list, self.starting)),
            "overdue": sorted(self.overdue),
        }

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on waiting where it was saved."""
        self._first = {tuple(map(str, path)): (int(j), float(due_s)) for path, j, due_s in saved["first"]}
        self.starting = {tuple(map(str, path)) for path in saved["starting"]}
        self.overdue = {int(j) for j in saved["overdue"]}
        self._dues = [(due_s, path, job_id) for path, (job_id, due_s) in self._first.items()]
        heapq.heapify(self._dues)
