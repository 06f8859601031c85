"""The index behind EASY backfill: the first job in the queue of a given width that ends in time.

Per width, a tree of minima over the queue: the leftmost leaf that is small enough is found in O(log n), where walking
the queue would cost its whole length at every event.
"""

from __future__ import annotations

import sys

from fairlead.policy.queue import Entry

_NEVER = float("inf")
"""The run time at an empty place: longer than any time allowed."""
_ANY = sys.float_info.max
"""A limit that every job meets and no empty place."""


class Lane:
    """Waiting jobs of one width in order of submission, with their run times."""

    def __init__(self) -> None:
        self._size = 1
        self._tree = [_NEVER, _NEVER]
        self._entries: list[Entry | None] = []
        self._at: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def push(self, entry: Entry, run_s: float) -> None:
        """A job waits. One that comes back out of order (its node failed) costs a rebuild."""
        if self._entries and (last := self._last()) is not None and entry.key < last.key:
            alive = [(e, self._tree[self._size + i]) for i, e in enumerate(self._entries) if e is not None]
            self._rebuild(sorted([*alive, (entry, run_s)]))
            return
        if len(self._entries) == self._size:
            self._rebuild([(e, self._tree[self._size + i]) for i, e in enumerate(self._entries) if e is not None])
        self._at[entry.state.job.id] = len(self._entries)
        self._entries.append(entry)
        self._set(len(self._entries) - 1, run_s)

    def remove(self, job_id: int) -> None:
        """A job no longer waits."""
        at = self._at.pop(job_id, None)
        if at is not None:
            self._entries[at] = None
            self._set(at, _NEVER)

    def first(self, within_s: float) -> Entry | None:
        """The first job that runs no longer than that."""
        tree = self._tree
        within_s = min(within_s, _ANY)
        if tree[1] > within_s:
            return None
        node = 1
        while node < self._size:
            node *= 2
            if tree[node] > within_s:
                node += 1
        return self._entries[node - self._size]

    def _last(self) -> Entry | None:
        return next((e for e in reversed(self._entries) if e is not None), None)

    def _set(self, at: int, run_s: float) -> None:
        tree, node = self._tree, self._size + at
        tree[node] = run_s
        node //= 2
        while node:
            tree[node] = min(tree[2 * node], tree[2 * node + 1])
            node //= 2

    def _rebuild(self, alive: list[tuple[Entry, float]]) -> None:
        self._size = 2
        while self._size < 2 * len(alive):
            self._size *= 2
        self._tree = [_NEVER] * (2 * self._size)
        self._entries = [e for e, _ in alive]
        self._at = {e.state.job.id: i for i, (e, _) in enumerate(alive)}
        self._tree[self._size : self._size + len(alive)] = [run_s for _, run_s in alive]
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])


class Lanes:
    """One lane per width."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self._width: dict[int, int] = {}

    def push(self, entry: Entry, run_s: float) -> None:
        """A job waits."""
        self._width[entry.state.job.id] = entry.width
        self._lanes.setdefault(entry.width, Lane()).push(entry, run_s)

    def remove(self, job_id: int) -> None:
        """A job no longer waits."""
        width = self._width.pop(job_id, None)
        if width is not None:
            self._lanes[width].remove(job_id)

    def first(self, free: int, spare: int, within_s: float) -> Entry | None:
        """The first job that fits into `free` GPUs and either into the spare ones or into the time."""
        best: Entry | None = None
        for width, lane in self._lanes.items():
            if width <= free:
                found = lane.first(_NEVER if width <= spare else within_s)
                if found is not None and (best is None or found.key < best.key):
                    best = found
        return best
