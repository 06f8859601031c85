"""The waiting jobs in order, indexed by width.

"The first job in the queue that fits into f GPUs" is asked at every event. Jobs of one width fit or don't fit together,
so one heap per width answers it by looking at one head per width instead of walking the queue. Where widths change it
is the least width of a job that counts.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal, NamedTuple

from fairlead.policy.view import JobState

Key = tuple[Any, ...]
"""What an ordering sorts by, smallest first; its last part is the job's id, so no two keys are equal."""


By = Literal["width", "least", ""]
"""What a heap of waiting jobs is kept for: a width, a least width, or all jobs for who asks for the head only."""


class Entry(NamedTuple):
    """A waiting job in the queue."""

    key: Key
    state: JobState
    width: int
    least: int
    """The narrowest width that sizing would have it run on; the width itself where widths are fixed."""


class Queue:
    """Waiting jobs, smallest key first."""

    __slots__ = ("_by", "_entries", "_heaps", "demand_gpus")

    def __init__(self, *, by: By = "width") -> None:
        self._by = by
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

    def push(self, entry: Entry) -> None:
        """Add a job that waits from now on."""
        job_id = entry.state.job.id
        self.remove(job_id)
        self._entries[job_id] = entry
        self.demand_gpus += entry.width
        lane = entry.width if self._by == "width" else entry.least if self._by else 0
        heap = self._heaps.get(lane)
        if heap is None:
            heap = self._heaps[lane] = []
        heapq.heappush(heap, entry)

    def remove(self, job_id: int) -> None:
        """Drop a job that no longer waits. Its place in the heap is cleared when it comes to the head."""
        entry = self._entries.pop(job_id, None)
        if entry is not None:
            self.demand_gpus -= entry.width

    def heads(self) -> Iterator[Entry]:
        """The first job of every heap."""
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
        if not self._by:
            heap = self._heaps.get(0)
            return self._clear(heap) if heap else None
        return min(self.heads(), default=None, key=_key)

    def first_within(self, width: int) -> Entry | None:
        """The first job that can do with `width` GPUs."""
        return min((e for e in self.heads() if e.least <= width), default=None, key=_key)

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


class LanedQueue:
    """Waiting jobs in lanes whose order among each other changes, while the order inside each stays: users, say.

    Keys are `(key of the lane, *key inside it)`. Lanes are sorted anew with every decision, which costs their number;
    jobs are not touched.
    """

    def __init__(self, lane: Callable[[JobState], Hashable], *, by: By = "width") -> None:
        self._lane, self._by = lane, by
        self._lanes: dict[Hashable, Queue] = {}
        self._at: dict[int, Hashable] = {}
        """The lane of each waiting job."""
        self._keys: dict[Hashable, Any] = {}
        self._order: list[tuple[Any, Hashable]] = []
        """(key, lane) of all lanes, sorted; no two keys are equal."""
        self._widths: dict[int, int] = {}
        """How many jobs have each width, or least width."""
        self.demand_gpus = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._at

    def sort(self, key: Callable[[Hashable], Any]) -> None:
        """Put the lanes in the order that they have now; empty ones are forgotten."""
        lanes = self._lanes
        for lane in [lane for lane, queue in lanes.items() if not len(queue)]:
            del lanes[lane]
        # The order changes little from one decision to the next, and what is nearly sorted is sorted fast.
        self._order = [(key(lane), lane) for _, lane in self._order if lane in lanes]
        self._order.sort()
        self._keys = {lane: k for k, lane in self._order}

    def rekey(self, lane: Hashable, key: Any) -> None:
        """One lane has another key: a job of it was given GPUs."""
        if lane in self._keys:
            # A one-part tuple sorts just before the pair with that key.
            del self._order[bisect_left(self._order, (self._keys[lane],))]
            self._keys[lane] = key
            insort(self._order, (key, lane))

    def lane_of(self, job_id: int) -> Hashable:
        """The lane that a waiting job stands in."""
        return self._at[job_id]

    def lanes(self) -> list[Hashable]:
        """All lanes, by the keys that they have now."""
        return [lane for _, lane in self._order]

    def get(self, job_id: int) -> Entry | None:
        """The entry of a job that waits, with its present key."""
        lane = self._at.get(job_id, _NOWHERE)
        if lane is _NOWHERE:
            return None
        return self._full(lane, self._lanes[lane].get(job_id))

    def push(self, entry: Entry) -> None:
        """Add a job that waits from now on; the key of its lane is the one that comes with it."""
        job_id, lane = entry.state.job.id, self._lane(entry.state)
        self.remove(job_id)
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = Queue(by=self._by)
        if lane not in self._keys:
            self._keys[lane] = entry.key[0]
            insort(self._order, (entry.key[0], lane))
        self._at[job_id] = lane
        queue.push(entry._replace(key=entry.key[1:]))
        self._count(entry, 1)

    def remove(self, job_id: int) -> None:
        """Drop a job that no longer waits."""
        lane = self._at.pop(job_id, _NOWHERE)
        if lane is not _NOWHERE:
            queue = self._lanes[lane]
            entry = queue.get(job_id)
            assert entry is not None, f"job {job_id} is in a lane that does not have it"
            queue.remove(job_id)
            self._count(entry, -1)

    def _count(self, entry: Entry, change: int) -> None:
        self.demand_gpus += change * entry.width
        width = entry.least if self._by == "least" else entry.width
        self._widths[width] = self._widths.get(width, 0) + change
        if not self._widths[width]:
            del self._widths[width]

    def head(self) -> Entry | None:
        """The first job of all."""
        return self._first(lambda queue: queue.head())

    def first_within(self, width: int) -> Entry | None:
        """The first job that can do with `width` GPUs; that nobody can is known without a look at lanes."""
        if not any(wanted <= width for wanted in self._widths):
            return None
        return self._first(lambda queue: queue.first_within(width))

    def heads_in_order(self) -> Iterator[list[Entry]]:
        """The first job of every width, lane by lane."""
        for key, lane in self._order:
            queue = self._lanes.get(lane)
            if queue is not None and len(queue):
                yield [entry._replace(key=(key, *entry.key)) for entry in sorted(queue.heads(), key=_key)]

    @property
    def narrowest(self) -> int:
        """The least width that there is."""
        return min(self._widths, default=0)

    def _first(self, ask: Callable[[Queue], Entry | None]) -> Entry | None:
        for _, lane in self._order:
            queue = self._lanes.get(lane)
            if queue is not None and len(queue) and (entry := ask(queue)) is not None:
                return self._full(lane, entry)
        return None

    def _full(self, lane: Hashable, entry: Entry | None) -> Entry | None:
        return None if entry is None else entry._replace(key=(self._keys[lane], *entry.key))


_NOWHERE = object()
"""Not a lane: lanes may be None."""
