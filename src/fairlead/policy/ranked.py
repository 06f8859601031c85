"""The running jobs in order: who would be preempted first is at the tail."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairlead.policy.queue import Key
from fairlead.policy.view import JobState


class Rank(NamedTuple):
    """A running job, or one that the present decision starts."""

    key: Key
    state: JobState
    width: int


class Ranked:
    """Jobs sorted by key. Keys are unique, since they end with the job's id, so states are never compared."""

    __slots__ = ("_keys", "_ranks")

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._keys: dict[int, Key] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._ranks)

    def __reversed__(self) -> Iterator[Rank]:
        return reversed(self._ranks)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._keys

    def add(self, rank: Rank) -> None:
        """A job runs, or its key has changed."""
        job_id = rank.state.job.id
        self.discard(job_id)
        self._keys[job_id] = rank.key
        insort(self._ranks, rank)

    def discard(self, job_id: int) -> None:
        """A job no longer runs."""
        key = self._keys.pop(job_id, None)
        if key is not None:
            # A one-part tuple sorts just before the rank with that key.
            del self._ranks[bisect_left(self._ranks, (key,))]

    def pop(self) -> Rank:
        """Take the last one off."""
        rank = self._ranks.pop()
        del self._keys[rank.state.job.id]
        return rank

    def rekey(self, ranks: Iterable[Rank]) -> None:
        """Ask for the keys of all jobs again."""
        self._ranks = sorted(ranks)
        self._keys = {r.state.job.id: r.key for r in self._ranks}

    def width_behind(self, key: Key, enough: int) -> int:
        """GPUs of the jobs behind that key, counted from the tail until there are enough."""
        total = 0
        for rank in reversed(self._ranks):
            if rank.key < key:
                break
            total += rank.width
            if total >= enough:
                break
        return total
