"""All jobs in order, waiting and running: what admission walks. Here from scratch; `ranking_index` is the fast one.

`Ranking` sorts everybody anew for every decision and answers each question by walking the list. It says what the
answers are. `IndexedRanking` gives the same ones with work in proportion to what changed, and a test holds the two
against each other.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fairlead.policy.queue import Entry, Key
from fairlead.policy.ranked import Rank, Ranked
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stages import Ordering

Widths = Callable[[JobState, View], tuple[int, int]]
"""The width that sizing wants for a job, and the narrowest that it would accept; 0 is to wait."""


class Ranking:
    """The waiting jobs by their key, and the running ones by theirs."""

    def __init__(self, ordering: Ordering, widths: Widths) -> None:
        self._ordering, self._widths = ordering, widths
        self.view: View
        """That of the present decision."""
        self._waiting: list[Entry] = []
        self._aside: list[Entry] = []
        self.ranked = Ranked()
        self.primed = False
        """Whether there has been a decision."""

    # -- before a decision -------------------------------------------------------------------------------------------

    def update(self, view: View, started: Sequence[JobState], stopped: Sequence[JobState]) -> bool:
        """Take in what happened, and what the last plan has made true; whether the order itself has changed."""
        self.view = view
        moved = bool(self._ordering.expired(view))
        if not self.primed:
            self._prime()
        self._waiting, self._aside = [], []
        for state in view.waiting.values():
            self._ordering.waits(state, view)
        for state in view.waiting.values():
            self.enqueue(state)
        self.ranked.rekey(Rank(self._ordering.running_key(s, view), s, len(s.gpus)) for s in view.running.values())
        return moved

    def _prime(self) -> None:
        """Tell the ordering of the jobs that ran before there was this ranking."""
        self.primed = True
        for state in self.view.running.values():
            self._ordering.watch(state, len(state.gpus), state.starts, self.view)

    # -- the waiting jobs --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def demand_gpus(self) -> int:
        """GPUs that the waiting jobs want together."""
        return sum(entry.width for entry in self._waiting)

    def get(self, job_id: int) -> Entry | None:
        """The entry of a job that waits."""
        return next((e for e in self._waiting if e.state.job.id == job_id), None)

    def head(self) -> Entry | None:
        """The first waiting job; None where nobody waits."""
        return self._waiting[0] if self._waiting else None

    def blocker(self) -> Entry | None:
        """The first waiting job, if it is one that nobody passes."""
        head = self.head() if self._ordering.may_block else None
        return head if head is not None and self._ordering.blocks(head.state) else None

    def first_within(self, gpus: int) -> Entry | None:
        """The first waiting job that can do with so many GPUs."""
        return next((e for e in self._waiting if e.least <= gpus), None)

    def first_in_time(self, gpus: int, spare: int, within_s: float) -> Entry | None:
        """The first that fits into `gpus`, and either into the spare ones or, with its run time, into `within_s`."""
        for entry in self._waiting:
            if entry.width <= gpus and (entry.width <= spare or self.end_s(entry.state) - self.view.now_s <= within_s):
                return entry
        return None

    def set_aside(self, entry: Entry) -> None:
        """Leave a waiting job out of the rest of this walk."""
        self._remove(entry.state.job.id)
        self._aside.append(entry)

    def restore(self) -> None:
        """End the walk: whoever was left out waits on."""
        aside, self._aside = self._aside, []
        for entry in aside:
            self._push(entry._replace(key=self._key(entry.state)) if self._ordering.lanes else entry)

    def first(self, count: int) -> list[Entry]:
        """The first waiting jobs, in order."""
        found: list[Entry] = []
        while len(found) < count and (entry := self.head()) is not None:
            self.set_aside(entry)
            found.append(entry)
        self.restore()
        return found

    def enqueue(self, state: JobState) -> None:
        """Let a job wait, unless sizing wants no GPUs for it."""
        width, least = self._widths(state, self.view)
        if width:
            self._push(Entry(self._key(state), state, width, least))
        else:
            self.dequeue(state.job.id)

    def dequeue(self, job_id: int) -> None:
        """Drop a job that no longer waits."""
        self._remove(job_id)

    def _push(self, entry: Entry) -> None:
        self._remove(entry.state.job.id)
        insort(self._waiting, entry)

    def _remove(self, job_id: int) -> None:
        self._waiting = [e for e in self._waiting if e.state.job.id != job_id]

    # -- the running jobs --------------------------------------------------------------------------------------------

    def start(self, entry: Entry, width: int) -> None:
        """A waiting job is to run on that many GPUs."""
        self._note_passing(entry)
        self.dequeue(entry.state.job.id)
        self._took(entry.state, width)
        self.ranked.add(Rank(self._ordering.as_running(entry.key, self.view.now_s), entry.state, width))

    def _note_passing(self, entry: Entry) -> None:
        """Tell an ordering that preempts whether a job goes ahead of one before it that does not fit."""
        if not self._ordering.preemptive:
            return
        head = self.head()
        if (head is not None and head.key < entry.key) or any(e.key < entry.key for e in self._aside):
            self._ordering.passed(entry.state)

    def _took(self, state: JobState, width: int) -> None:
        self._ordering.took(state, width, self.view)
        if self._ordering.lanes:
            self._waiting = sorted(e._replace(key=self._key(e.state)) for e in self._waiting)

    def _key(self, state: JobState) -> Key:
        return self._ordering.waiting_key(state, self.view)

    def stop(self, state: JobState) -> None:
        """A running job is to wait."""
        self.unrank(state.job.id)
        self.enqueue(state)

    def unrank(self, job_id: int) -> None:
        """Drop a job that no longer runs."""
        self.ranked.discard(job_id)

    def end_s(self, state: JobState) -> float:
        """When a job ends: at the speed it has if it runs, at its nominal speed from now on if it waits."""
        assert self.view.oracle is not None, "easy backfill was shown a view without an oracle"
        return self.view.now_s + self.view.oracle.remaining_s(state)

    def ends(self) -> Iterator[tuple[float, JobState, int]]:
        """(moment, job, GPUs) of the running jobs, those that this decision starts included, in order of their ends."""
        found = sorted((self.end_s(r.state), r.state.job.id, r.state, r.width) for r in self.ranked)
        return ((end_s, state, width) for end_s, _, state, width in found)

    # -- who may run, where jobs ahead displace those behind ---------------------------------------------------------

    def fill(self, free: int, widest: int | None = None) -> tuple[list[Rank], dict[int, JobState]]:
        """Fill the GPUs in order over running and waiting jobs: who is to start, and who is displaced.

        Jobs wider than `widest` are skipped.

        Take the first waiting job in order that fits into the free GPUs and those of the running jobs behind it; take
        the jobs that it displaces off the tail and put back those that still fit; repeat. Everyone ahead of the job
        taken is as a greedy walk over the whole order would leave them, so when nobody is left to take, all are.
        """
        ordering, ranked, now_s = self._ordering, self.ranked, self.view.now_s
        chosen: dict[int, Rank] = {}
        displaced: dict[int, JobState] = {}
        while (entry := self._first_that_fits(free, widest)) is not None:
            self._note_passing(entry)
            self.dequeue(entry.state.job.id)
            off: list[Rank] = []
            while free < entry.width:
                off.append(ranked.pop())
                free += off[-1].width
            free -= entry.width
            rank = Rank(ordering.as_running(entry.key, now_s), entry.state, entry.width)
            ranked.add(rank)
            if displaced.pop(entry.state.job.id, None) is None:
                chosen[entry.state.job.id] = rank
                self._took(entry.state, entry.width)
            for behind in reversed(off):
                if behind.width <= free:
                    ranked.add(behind)
                    free -= behind.width
                else:
                    # One that was chosen a moment ago: who was displaced for it is worth more as one that waits.
                    if chosen.pop(behind.state.job.id, None) is None:
                        displaced[behind.state.job.id] = behind.state
                    self.enqueue(behind.state)
        return list(chosen.values()), displaced

    def _first_that_fits(self, free: int, widest: int | None) -> Entry | None:
        """The first waiting job that fits into the free GPUs and those of running jobs behind it."""
        blocker = self.blocker()
        if blocker is not None:
            return blocker if self._fits(blocker, free, widest) else None
        return self._first_fitting(free, widest)

    def _first_fitting(self, free: int, widest: int | None) -> Entry | None:
        return next((e for e in self._waiting if self._fits(e, free, widest)), None)

    def _fits(self, entry: Entry, free: int, widest: int | None) -> bool:
        if widest is not None and entry.width > widest:
            return False
        short = entry.width - free
        key = self._ordering.as_running(entry.key, self.view.now_s)
        return short <= 0 or self.ranked.width_behind(key, short) >= short
