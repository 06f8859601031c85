"""All jobs in order, kept up to date: a decision costs what changed, not the number of jobs.

Waiting jobs stand in a heap per width (`queue`), for EASY in a tree of run times per width (`backfill_index`); running
ones in a sorted list, for EASY also by their ends. An ordering whose keys change while jobs wait has them in lanes: the
order among lanes is taken anew with every decision, the order inside a lane stays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.policy.backfill_index import Lanes
from fairlead.policy.queue import By, Entry, LanedQueue, Queue
from fairlead.policy.ranked import Rank, Ranked
from fairlead.policy.ranking import Ranking, Widths
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stages import Ordering


class IndexedRanking(Ranking):
    """`by`: the first that fits will be asked for; `easy`: those that end in time; `ranks`: the running jobs."""

    def __init__(self, ordering: Ordering, widths: Widths, *, by: By, easy: bool, ranks: bool) -> None:
        super().__init__(ordering, widths)
        self._easy, self._ranks = easy, ranks
        self._laned = LanedQueue(ordering.lane, by=by) if ordering.lanes else None
        self._unlaned = Queue(by=by)
        self._queue: Queue | LanedQueue = self._laned if self._laned is not None else self._unlaned
        self._run_times: dict[Hashable, Lanes] = {}
        """EASY: run times of the waiting jobs, by lane."""
        self._shortest = Lanes()
        """EASY with lanes: the same of all jobs, to say at once that nobody fits."""
        self._ends = Ranked()
        """EASY: the running jobs by the moment of their end."""

    def update(self, view: View, started: Sequence[JobState], stopped: Sequence[JobState]) -> bool:
        """Take in the changes that the view tells, and what the last plan has made true."""
        self.view = view
        ordering, changes = self._ordering, view.changes
        fallen = ordering.expired(view)
        if self._laned is not None:
            self._laned.sort(self._lane_key)
        for state in (*changes.ended, *changes.withdrawn):
            self.dequeue(state.job.id)
            self.unrank(state.job.id)
        arrived: Iterable[JobState] = (*changes.arrived, *changes.returned, *stopped)
        running: Iterable[JobState] = (*started, *changes.retimed) if self._ranks or self._easy else ()
        if not self.primed:
            self._prime()
            arrived, running = view.waiting.values(), view.running.values()
        elif fallen:
            arrived = (*arrived, *(s for s in fallen if not s.gpus))
            running = (*running, *(s for s in fallen if s.gpus))
        waiting = view.waiting
        for state in arrived:
            self.unrank(state.job.id)
            if state.job.id in waiting:
                ordering.waits(state, view)
                self.enqueue(state)
        if self._ranks:
            self._rank(running, view)
        if self._easy:
            for state in running:
                if state.gpus:
                    self._ends.add(Rank((self.end_s(state), state.job.id), state, len(state.gpus)))
        return bool(fallen)

    def _rank(self, running: Iterable[JobState], view: View) -> None:
        key = self._ordering.running_key
        if self._ordering.drifts or self._ordering.lanes:
            self.ranked.rekey(Rank(key(s, view), s, len(s.gpus)) for s in view.running.values())
            return
        for state in running:
            if state.gpus:
                self.ranked.add(Rank(key(state, view), state, len(state.gpus)))

    # -- the waiting jobs --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def demand_gpus(self) -> int:
        """GPUs that the waiting jobs want together."""
        return self._queue.demand_gpus

    def get(self, job_id: int) -> Entry | None:
        """The entry of a job that waits."""
        return self._queue.get(job_id)

    def head(self) -> Entry | None:
        """The first waiting job; None where nobody waits."""
        return self._queue.head()

    def first_within(self, gpus: int) -> Entry | None:
        """The first of the heads of each width, or least width."""
        return self._queue.first_within(gpus)

    def first_in_time(self, gpus: int, spare: int, within_s: float) -> Entry | None:
        """By the trees of run times, lane by lane."""
        if self._laned is not None and self._shortest.first(gpus, spare, within_s) is None:
            return None  # nobody fits, in whatever lane
        lanes: Iterable[Hashable] = (None,) if self._laned is None else self._laned.lanes()
        for lane in lanes:
            times = self._run_times.get(lane)
            found = times.first(gpus, spare, within_s) if times is not None else None
            if found is not None:
                return self._queue.get(found)
        return None

    def _first_fitting(self, free: int, widest: int | None) -> Entry | None:
        """By the first of each width, as nobody behind it of that width fits if it does not; lane by lane."""
        if self._laned is None:
            return self._first_of(self._unlaned.heads(), free, widest)
        narrowest = self._laned.narrowest
        for heads in self._laned.heads_in_order():
            found = self._first_of(heads, free, widest)
            if found is not None:
                return found
            # The further back, the fewer run behind: where the narrowest does not fit, nobody of later lanes does.
            if not self._fits(heads[0]._replace(width=narrowest), free, widest):
                return None
        return None

    def _first_of(self, heads: Iterable[Entry], free: int, widest: int | None) -> Entry | None:
        # `_fits`, written out: it is asked hundreds of thousands of times.
        as_running, now_s, width_behind = self._ordering.as_running, self.view.now_s, self.ranked.width_behind
        best: Entry | None = None
        for entry in heads:
            if (best is not None and entry.key >= best.key) or (widest is not None and entry.width > widest):
                continue
            short = entry.width - free
            if short <= 0 or width_behind(as_running(entry.key, now_s), short) >= short:
                best = entry
        return best

    def _push(self, entry: Entry) -> None:
        if self._easy:
            self._remove(entry.state.job.id)
        self._queue.push(entry)
        if self._easy:
            job_id = entry.state.job.id
            times = self._run_times.setdefault(self._lane_of(job_id), Lanes())
            run_s = self.end_s(entry.state) - self.view.now_s
            times.push(job_id, entry.key if self._laned is None else entry.key[1:], entry.width, run_s)
            if self._laned is not None:
                self._shortest.push(job_id, (job_id,), entry.width, run_s)

    def _remove(self, job_id: int) -> None:
        if self._easy and job_id in self._queue:
            self._run_times[self._lane_of(job_id)].remove(job_id)
            self._shortest.remove(job_id)
        self._queue.remove(job_id)

    def _lane_of(self, job_id: int) -> Hashable:
        """The lane that a waiting job stands in; its ordering may have another one in mind by now."""
        return None if self._laned is None else self._laned.lane_of(job_id)

    # -- the running jobs --------------------------------------------------------------------------------------------

    def start(self, entry: Entry, width: int) -> None:
        """Note it in the lists that this stack keeps."""
        self._note_passing(entry)
        self.dequeue(entry.state.job.id)
        self._took(entry.state, width)
        if self._ranks:
            self.ranked.add(Rank(self._ordering.as_running(entry.key, self.view.now_s), entry.state, width))
        if self._easy:
            self._ends.add(Rank((self.end_s(entry.state), entry.state.job.id), entry.state, width))

    def _took(self, state: JobState, width: int) -> None:
        changed = self._ordering.took(state, width, self.view)
        if self._laned is None:
            return
        if changed is None:
            self._laned.sort(self._lane_key)
        else:
            for lane in changed:
                self._laned.rekey(lane, self._lane_key(lane))

    def _lane_key(self, lane: Hashable) -> Any:
        return self._ordering.lane_key(lane, self.view)

    def unrank(self, job_id: int) -> None:
        """Drop a job that no longer runs."""
        if self._ranks:
            self.ranked.discard(job_id)
        if self._easy:
            self._ends.discard(job_id)

    def ends(self) -> Iterator[tuple[float, JobState, int]]:
        """From the list that is kept."""
        return ((rank.key[0], rank.state, rank.width) for rank in self._ends)
