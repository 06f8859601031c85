"""Fair share: whoever has used least of what is theirs is next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fairlead.policy.ordering.guarantee import Guarantee
from fairlead.policy.ordering.shares import Path, Shares
from fairlead.policy.queue import Key
from fairlead.policy.saved_state import reading
from fairlead.policy.stages import Ordering, Skips, option
from fairlead.policy.view import JobState, View

_OVERDUE: Path = ()
"""The lane of those who have waited too long."""
_PROTECTED, _FIRST, _BY_SHARE = -1, 0, 1


@dataclass
class Fair(Ordering):
    """Users, and groups of users, get GPU-hours in proportion to their weights.

    Everybody's usage is the GPU-seconds that their jobs have held; of a shared GPU the part held counts. It loses half
    of its value every `half_life_s` seconds. What running jobs hold now counts `ahead_s` seconds in advance, so that a
    user does not get a whole empty cluster at once.
    Next is the group with the least usage over its weight, inside it the group or user with the least, and so on down;
    inside a user jobs go in order of submission, or with `inside=priority` by priority first.

    Weights: `weights=ann=2/@vision=3`, 1 for everybody else; `@` marks a group. A user's group is the job's own, or as
    `members=ann=vision/bob=lab.speech` says: a group inside another is written with a dot.

    `backfill` is as of `ordering=fifo`; `easy`, the default, gives the first job that does not fit a reservation, which
    needs run times. A job that has been the first of its user's for half of `guarantee_s` goes ahead of everybody, and
    nobody behind it starts unless its reservation stays as it is: with running jobs that are shorter than the other
    half it starts within `guarantee_s`, whatever others submit. 0 is no guarantee.

    With `preempt=true` jobs of users who have had more make room for those of users who have had less, once they have
    run for `slice_s` seconds; a job that started ahead of one that did not fit makes room at once. Users who always
    have jobs waiting then get their shares within 2 % over a day, whatever the sizes of their jobs, if these can use
    them: GPUs that nobody ahead fits into are lent to others. Without preemption every user may be one job away from
    its share, so that a job should be at most 1 % of the GPU-hours of the time that you look at.

    When not to use it: where one queue for all is what people expect, or jobs cannot be told apart by user.
    """

    weights: tuple[str, ...] = option((), "weights of users and groups, as ann=2/@vision=3; 1 for the others")
    members: tuple[str, ...] = option((), "groups of users, as ann=vision/bob=lab.speech")
    half_life_s: float = option(7 * 86400.0, "seconds after which usage counts half")
    inside: Literal["fifo", "priority"] = option("fifo", "the order of one user's jobs: fifo or priority")
    backfill: Skips = option("easy", "behind a job that does not fit: none or strict, greedy, easy")
    guarantee_s: float = option(4 * 3600.0, "who has been first of a user's for half of this goes ahead; 0 is never")
    preempt: bool = option(False, "whether users who have had more make room for those who have had less")
    slice_s: float = option(300.0, "seconds that a job runs before it may be preempted")
    ahead_s: float = option(1800.0, "seconds in advance for which running jobs count")
    lanes: ClassVar[bool] = True
    may_block: ClassVar[bool] = True
    _shares: Shares = field(init=False, repr=False, compare=False)
    _guarantee: Guarantee = field(init=False, repr=False, compare=False)
    _unprotected: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    """Jobs that have passed others, by the start with which they did: they have no slice of their own."""

    def __post_init__(self) -> None:
        if self.half_life_s <= 0 or self.guarantee_s < 0 or self.slice_s < 0 or self.ahead_s <= 0:
            raise ValueError("half_life_s and ahead_s above 0, guarantee_s and slice_s 0 or more")
        # Who may be preempted counts for no longer than its slice: more would favour whoever holds nothing.
        ahead_s = min(self.ahead_s, max(1.0, self.slice_s)) if self.preempt else self.ahead_s
        self._shares = Shares(self.weights, self.members, self.half_life_s, ahead_s)
        self._guarantee = Guarantee(0.5 * self.guarantee_s, self._shares.path, self._inside)

    @property
    def preemptive(self) -> bool:
        """Whether users below their share displace others, as the option says."""
        return self.preempt

    @property
    def skips(self) -> Skips:
        """As the option says; who preempts holds no reservations, and skips whoever does not fit."""
        return "greedy" if self.preempt and self.backfill in ("auto", "easy") else self.backfill

    @property
    def drifts(self) -> bool:
        """Where shares decide who is preempted, every running job moves with its user's usage."""
        return self.preempt

    @property
    def needs_oracle(self) -> bool:
        """EASY plans with run times."""
        return self.skips == "easy"

    def expired(self, view: View) -> list[JobState]:
        """Bring usage up to date; gives the waiting jobs that have waited too long since the last decision."""
        self._shares.refresh(view)
        if self._unprotected:
            running = view.running
            self._unprotected = {j: n for j, n in self._unprotected.items() if j in running and running[j].starts == n}
        return self._guarantee.expired(view)

    def waits(self, state: JobState, view: View) -> None:
        """Let it stand in the line of its user."""
        self._guarantee.line_up(state)

    def wake_s(self, view: View) -> float | None:
        """When a job has waited too long, or may be preempted; where all may be, a slice from now."""
        soonest_s = self._guarantee.soonest_s(view)
        if self.preempt and view.waiting and self._somebody_may_yield(view):
            # Also when every slice is over: who is ahead changes with usage, though nothing happens.
            ends_s = (s.since_s + self.slice_s for s in view.running.values())
            later_s = view.now_s + max(1.0, self.slice_s)
            soonest_s = min(soonest_s, min((t for t in ends_s if t > view.now_s), default=later_s))
        return soonest_s if soonest_s < float("inf") else None

    def _somebody_may_yield(self, view: View) -> bool:
        """Whether anything but services runs, or starts in this decision and is not among the running ones yet."""
        return bool(self._guarantee.starting) or any(s.job.kind != "service" for s in view.running.values())

    def lane(self, state: JobState) -> Hashable:
        """The user's, below the user's groups; one lane for those who have waited too long."""
        return _OVERDUE if self.blocks(state) else self._shares.path(state)

    def lane_key(self, lane: Hashable, view: View) -> Any:
        """Usage over weight, level by level."""
        assert isinstance(lane, tuple)
        return (_BY_SHARE, self._shares.of(lane, view.now_s), lane) if lane != _OVERDUE else (_FIRST, (), ())

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Where its lane stands, then its place inside."""
        lane = self.lane(state)
        if lane == _OVERDUE:
            return (self.lane_key(lane, view), state.since_s, state.job.id)
        return (self.lane_key(lane, view), *self._inside(state))

    def running_key(self, state: JobState, view: View) -> Key:
        """Ahead of everybody until its slice is over, then where its user stands; nobody preempts in rounds either."""
        passed = self._unprotected.get(state.job.id) == state.starts
        if not self.preempt or (state.since_s + self.slice_s > view.now_s and not passed):
            return ((_PROTECTED, (), ()), state.job.id)
        return (self.lane_key(self._shares.path(state), view), *self._inside(state))

    def _inside(self, state: JobState) -> Key:
        return (-state.job.priority, state.job.id) if self.inside == "priority" else (state.job.id,)

    def took(self, state: JobState, width: int, view: View) -> Iterable[Hashable]:
        """What it holds counts from the next job on, for all of its group."""
        path = self._shares.path(state)
        self._guarantee.starting.add(path)
        return self._shares.take(path, width * state.job.gpu_frac)

    def passed(self, state: JobState) -> None:
        """It runs on what one ahead of it cannot use yet, and so keeps nobody from it.

        Else narrow jobs, each with a slice that began at another moment, would hold a wide one up for ever.
        """
        if self.preempt:
            self._unprotected[state.job.id] = state.starts + 1

    def blocks(self, state: JobState) -> bool:
        """Nobody passes a job that has waited too long. One that runs again, or still, has not."""
        return state.job.id in self._guarantee.overdue and not state.gpus

    def knowledge(self) -> dict[str, Any]:
        """Usage, who has waited how long at the head of a user's jobs, and who has no slice."""
        unprotected = [list(pair) for pair in sorted(self._unprotected.items())]
        return {**self._shares.knowledge(), **self._guarantee.knowledge(), "unprotected": unprotected}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """All of it: usage outlives the jobs."""
        with reading("fair", saved, "zero_s", "used", "seen", "first", "starting", "overdue", "unprotected"):
            self._shares.recall(saved, view)
            self._guarantee.recall(saved)
            self._unprotected = {int(j): int(starts) for j, starts in saved.get("unprotected", ())}
        for state in view.waiting.values():
            self.waits(state, view)
