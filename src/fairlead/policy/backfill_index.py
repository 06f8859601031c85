"""The index behind EASY backfill: the first job in the queue of a given width that ends in time.

Per width, a tree of minima over the queue: the leftmost leaf that is small enough is found in O(log n), where walking
the queue would cost its whole length at every event.
"""

from __future__ import annotations

import sys

from fairlead.policy.queue import Key

Keyed = tuple[Key, int]
"""A job with its key."""
_NEVER = float("inf")
"""The run time at an empty place: longer than any time allowed."""
_ANY = sys.float_info.max
"""A limit that every job meets and no empty place."""


class Lane:
    """Waiting jobs of one width in order, with their run times."""

    def __init__(self) -> None:
        self._size = 1
        self._tree = [_NEVER, _NEVER]
        self._keys: list[Keyed | None] = []
        """None where a job has left."""
        self._at: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def push(self, job_id: int, key: Key, run_s: float) -> None:
        """A job waits. One that comes back out of order (its node failed) costs a rebuild."""
        if self._keys and (last := self._last()) is not None and key < last[0]:
            self._rebuild(sorted([*self._alive(), ((key, job_id), run_s)]))
            return
        if len(self._keys) == self._size:
            self._rebuild(self._alive())
        self._at[job_id] = len(self._keys)
        self._keys.append((key, job_id))
        self._set(len(self._keys) - 1, run_s)

    def remove(self, job_id: int) -> None:
        """A job no longer waits."""
        at = self._at.pop(job_id, None)
        if at is not None:
            self._keys[at] = None
            self._set(at, _NEVER)

    def first(self, within_s: float) -> Keyed | None:
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
        return self._keys[node - self._size]

    def _alive(self) -> list[tuple[Keyed, float]]:
        return [(keyed, self._tree[self._size + i]) for i, keyed in enumerate(self._keys) if keyed is not None]

    def _last(self) -> Keyed | None:
        return next((keyed for keyed in reversed(self._keys) if keyed is not None), None)

    def _set(self, at: int, run_s: float) -> None:
        tree, node = self._tree, self._size + at
        tree[node] = run_s
        while node > 1:
            other = tree[node ^ 1]
            least = run_s if run_s < other else other
            node //= 2
            if tree[node] == least:
                break  # and so are all above it
            tree[node] = run_s = least

    def _rebuild(self, alive: list[tuple[Keyed, float]]) -> None:
        self._size = 2
        while self._size < 2 * len(alive):
            self._size *= 2
        self._tree = [_NEVER] * (2 * self._size)
        self._keys = [keyed for keyed, _ in alive]
        self._at = {job_id: i for i, ((_, job_id), _) in enumerate(alive)}
        self._tree[self._size : self._size + len(alive)] = [run_s for _, run_s in alive]
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])


class Lanes:
    """Waiting jobs in a lane for each width, so that those that fit are found at once."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self._width: dict[int, int] = {}

    def push(self, job_id: int, key: Key, width: int, run_s: float) -> None:
        """Add a job that waits; one that never ends is longer than any time allowed, and still a job."""
        self._width[job_id] = width
        self._lanes.setdefault(width, Lane()).push(job_id, key, min(run_s, _ANY))

    def remove(self, job_id: int) -> None:
        """A job no longer waits."""
        width = self._width.pop(job_id, None)
        if width is not None:
            self._lanes[width].remove(job_id)

    def first(self, free: int, spare: int, within_s: float) -> int | None:
        """The first job that fits into `free` GPUs and either into the spare ones or into the time."""
        best: Keyed | None = None
        for width, lane in self._lanes.items():
            if width <= free:
                found = lane.first(_NEVER if width <= spare else within_s)
                if found is not None and (best is None or found[0] < best[0]):
                    best = found
        return None if best is None else best[1]
