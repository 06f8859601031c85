"""The waiting jobs in order, indexed by width.

"The first job in the queue that fits into f GPUs" is asked at every event. Jobs of one width fit or don't fit together,
so one heap per width answers it by looking at one head per width instead of walking the queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

from fairlead.policy.view import JobState

Key = tuple[Any, ...]
"""What an ordering sorts by, smallest first; its last part is the job's id, so no two keys are equal."""


class Entry(NamedTuple):
    """A waiting job in the queue."""

    key: Key
    state: JobState
    width: int


class Queue:
    """Waiting jobs, smallest key first. With `by_width=False` there is one heap, for who only asks for the head."""

    __slots__ = ("_by_width", "_entries", "_heaps", "demand_gpus")

    def __init__(self, *, by_width: bool = True) -> None:
        self._by_width = by_width
        self._heaps: dict[int, list[Entry]] = {}
        self._entries: dict[int, Entry] = {}
        self.demand_gpus = 0
        """GPUs that all waiting jobs want together."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def get(self, job_id: int) -> Entry | None:
        """The entry of a job that waits."""
        return self._entries.get(job_id)

    def push(self, key: Key, state: JobState, width: int) -> None:
        """A job waits from now on."""
        entry = Entry(key, state, width)
        self.remove(state.job.id)
        self._entries[state.job.id] = entry
        self.demand_gpus += width
        lane = width if self._by_width else 0
        heap = self._heaps.get(lane)
        if heap is None:
            heap = self._heaps[lane] = []
        heapq.heappush(heap, entry)

    def remove(self, job_id: int) -> None:
        """A job no longer waits. Its place in the heap is cleared when it comes to the head."""
        entry = self._entries.pop(job_id, None)
        if entry is not None:
            self.demand_gpus -= entry.width

    def firsts(self, count: int) -> list[Entry]:
        """The first jobs of all, in order."""
        found: list[Entry] = []
        while len(found) < count and (entry := self.head()) is not None:
            self.remove(entry.state.job.id)
            found.append(entry)
        for entry in found:
            self.push(entry.key, entry.state, entry.width)
        return found

    def heads(self) -> Iterator[Entry]:
        """The first job of every width."""
        empty = []
        for lane, heap in self._heaps.items():
            head = self._clear(heap)
            if head is None:
                empty.append(lane)
            else:
                yield head
        for lane in empty:
            del self._heaps[lane]

    def head(self) -> Entry | None:
        """The first job of all."""
        if not self._by_width:
            heap = self._heaps.get(0)
            return self._clear(heap) if heap else None
        return min(self.heads(), default=None, key=_key)

    def first_within(self, width: int) -> Entry | None:
        """The first job that asks for no more than `width` GPUs."""
        return min((e for e in self.heads() if e.width <= width), default=None, key=_key)

    def _clear(self, heap: list[Entry]) -> Entry | None:
        entries = self._entries
        while heap:
            head = heap[0]
            # Identity, not equality: a job that left and came back has another entry with the same id.
            if entries.get(head.state.job.id) is head:
                return head
            heapq.heappop(heap)
        return None


def _key(entry: Entry) -> Key:
    return entry.key
