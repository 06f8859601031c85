"""Fair share: whoever has used least of what is theirs is next."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fairlead.policy.queue import Key
from fairlead.policy.saved_state import reading
from fairlead.policy.stages import Ordering, Skips, option
from fairlead.policy.usage import Owner
from fairlead.policy.view import JobState, View

Path = tuple[str, ...]
"""The way to a user through the tree of shares: ("@lab", "@lab.vision", "@lab.vision/ann")."""
_OVERDUE: Path = ()
"""The lane of those who have waited too long."""
_PROTECTED, _FIRST, _BY_SHARE = -1, 0, 1
_MOST_HALF_LIVES = 64.0
"""Usage is kept in units that double with every half-life; after so many the units are changed."""


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
    run for `slice_s` seconds.

    When not to use it: where one queue for all is what people expect, or jobs cannot be told apart by user.
    """

    weights: tuple[str, ...] = option((), "weights of users and groups, as ann=2/@vision=3; 1 for the others")
    members: tuple[str, ...] = option((), "groups of users, as ann=vision/bob=lab.speech")
    half_life_s: float = option(7 * 86400.0, "seconds after which usage counts half")
    inside: Literal["fifo", "priority"] = option("fifo", "the order of one user's jobs: fifo or priority")
    backfill: Skips = option("easy", "behind a job that does not fit: none or strict, greedy, easy")
    guarantee_s: float = option(4 * 3600.0, "who has been first of a user's for half of this goes ahead; 0 is never")
    preempt: bool = option(False, "whether users who have had more make room for those who have had less")
    slice_s: float = option(1800.0, "seconds that a job runs before it may be preempted")
    ahead_s: float = option(1800.0, "seconds in advance for which running jobs count")
    lanes: ClassVar[bool] = True
    may_block: ClassVar[bool] = True
    _weight: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _group: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _used: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    """By node of the tree, in GPU-seconds of the moment `_zero_s`."""
    _seen: dict[Owner, float] = field(default_factory=dict, init=False, repr=False)
    """GPU-seconds of each owner that are in `_used`."""
    _refreshed_s: float = field(default=-1.0, init=False, repr=False)
    """When that was; whose meter stood still since then is not looked at."""
    _taken: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    """GPUs that the present decision gives, by node."""
    _held: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    """GPUs held now, by node."""
    _weights: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    """Of each node that was asked for."""
    _shares: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    """Usage over weight of each node, at the moment `_shares_at_s`."""
    _shares_at_s: float = field(default=-1.0, init=False, repr=False)
    _paths: dict[tuple[str, str], Path] = field(default_factory=dict, init=False, repr=False)
    _below: dict[str, set[Path]] = field(default_factory=dict, init=False, repr=False)
    """The users below each outermost group, or the user itself."""
    _zero_s: float = field(default=0.0, init=False, repr=False)
    _lines: dict[Path, list[tuple[Key, int]]] = field(default_factory=dict, init=False, repr=False)
    """A heap of the waiting jobs of each user."""
    _first: dict[Path, tuple[int, float]] = field(default_factory=dict, init=False, repr=False)
    """The first waiting job of each user, and when it will have been the first for too long."""
    _dirty: set[Path] = field(default_factory=set, init=False, repr=False)
    """Users of whom another job may be the first by now."""
    _starting: set[Path] = field(default_factory=set, init=False, repr=False)
    """Users of whom the present decision starts jobs: these wait until it is true."""
    _dues: list[tuple[float, Path, int]] = field(default_factory=list, init=False, repr=False)
    """(moment, user, job): when the first of a user will have waited too long."""
    _overdue: set[int] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.half_life_s <= 0 or self.guarantee_s < 0 or self.slice_s < 0 or self.ahead_s <= 0:
            raise ValueError("half_life_s and ahead_s above 0, guarantee_s and slice_s 0 or more")
        self._weight = {name: _positive(name, text) for name, text in map(_pair, self.weights)}
        self._group = dict(map(_pair, self.members))

    # -- what the stack asks -----------------------------------------------------------------------------------------

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
        self._refresh(view)
        self._overdue = {j for j in self._overdue if j in view.waiting}
        self._dirty |= self._starting
        self._starting.clear()
        found = []
        # By who was first until now: whoever has just come ahead of a job does not take away that it has waited.
        while self._dues and self._dues[0][0] <= view.now_s:
            due = heapq.heappop(self._dues)
            if self._is_due(due) and due[2] in view.waiting:
                self._overdue.add(due[2])
                found.append(view.waiting[due[2]])
        self._find_firsts(view)
        return found

    def waits(self, state: JobState, view: View) -> None:
        """Let it stand in the line of its user."""
        if self.guarantee_s:
            self._line_up(state)

    def wake_s(self, view: View) -> float | None:
        """When a job has waited too long, or may be preempted."""
        self._find_firsts(view)
        while self._dues and not self._is_due(self._dues[0]):
            heapq.heappop(self._dues)
        moments = [self._dues[0][0]] if self._dues else []
        if self.preempt and view.waiting:
            ends_s = (s.since_s + self.slice_s for s in view.running.values())
            moments += [min((t for t in ends_s if t > view.now_s), default=float("inf"))]
        soonest_s = min(moments, default=float("inf"))
        return soonest_s if soonest_s < float("inf") else None

    def lane(self, state: JobState) -> Hashable:
        """The user's, below the user's groups; one lane for those who have waited too long."""
        return _OVERDUE if self.blocks(state) else self._path(state)

    def lane_key(self, lane: Hashable, view: View) -> Any:
        """Usage over weight, level by level."""
        assert isinstance(lane, tuple)
        if lane == _OVERDUE:
            return (_FIRST, (), ())
        shares = self._shares
        if view.now_s != self._shares_at_s:
            shares.clear()
            self._shares_at_s = view.now_s
        found = []
        for node in lane:
            share = shares.get(node)
            found.append(share if share is not None else self._share(node, view.now_s))
        return (_BY_SHARE, tuple(found), lane)

    def _share(self, node: str, now_s: float) -> float:
        """Usage over weight of a user or group, kept for the rest of this decision."""
        weight = self._weights.get(node)
        if weight is None:
            weight = self._weights[node] = self._weight.get(node.rpartition("/")[2], 1.0)
        held = self._held.get(node, 0.0) + self._taken.get(node, 0.0)
        share = self._shares[node] = (self._used.get(node, 0.0) + held * self.ahead_s * self._scale(now_s)) / weight
        return share

    def waiting_key(self, state: JobState, view: View) -> Key:
        """Where its lane stands, then its place inside."""
        lane = self.lane(state)
        if lane == _OVERDUE:
            return (self.lane_key(lane, view), state.since_s, state.job.id)
        return (self.lane_key(lane, view), *self._inside(state))

    def running_key(self, state: JobState, view: View) -> Key:
        """Ahead of everybody until its slice is over, then where its user stands; nobody preempts in rounds either."""
        if not self.preempt or state.since_s + self.slice_s > view.now_s:
            return ((_PROTECTED, (), ()), state.job.id)
        return (self.lane_key(self._path(state), view), *self._inside(state))

    def took(self, state: JobState, width: int, view: View) -> Iterable[Hashable]:
        """What it holds counts from the next job on, for all of its group."""
        path = self._path(state)
        for node in path:
            self._taken[node] = self._taken.get(node, 0.0) + width * state.job.gpu_frac
            self._shares.pop(node, None)
        self._starting.add(path)
        return self._below[path[0]]

    def blocks(self, state: JobState) -> bool:
        """Nobody passes a job that has waited too long. One that runs again, or still, has not."""
        return state.job.id in self._overdue and not state.gpus

    # -- usage -------------------------------------------------------------------------------------------------------

    def _refresh(self, view: View) -> None:
        """Add what was held since the last decision, and who holds what now."""
        self._taken.clear()
        self._shares.clear()
        self._rebase(view.now_s)
        usage, scale = view.count_usage(), self._scale(view.now_s)
        known, used, holds = self._seen, self._used, self._held
        holds.clear()
        for owner, held, total in usage.totals(view.now_s, min(self._refreshed_s, view.now_s)):
            fresh = total - known.get(owner, 0.0)
            known[owner] = total
            for node in self._path_of(*owner):
                if fresh:
                    used[node] = used.get(node, 0.0) + fresh * scale
                if held:
                    holds[node] = holds.get(node, 0.0) + held
        self._refreshed_s = view.now_s

    def _scale(self, now_s: float) -> float:
        """A GPU-second of now in the units of `_used`."""
        return float(2.0 ** ((now_s - self._zero_s) / self.half_life_s))

    def _rebase(self, now_s: float) -> None:
        if now_s - self._zero_s > _MOST_HALF_LIVES * self.half_life_s:
            factor = 1.0 / self._scale(now_s)
            self._used = {node: used * factor for node, used in self._used.items() if used * factor > 1e-9}
            self._zero_s = now_s

    def _path(self, state: JobState) -> Path:
        return self._path_of(state.job.group, state.job.user)

    def _path_of(self, group: str, user: str) -> Path:
        path = self._paths.get((group, user))
        if path is None:
            inside = self._group.get(user, group)
            parts = inside.split(".") if inside else []
            groups = (f"@{'.'.join(parts[: i + 1])}" for i in range(len(parts)))
            path = self._paths[group, user] = (*groups, f"@{inside}/{user}" if inside else user)
            self._below.setdefault(path[0], set()).add(path)
        return path

    def _inside(self, state: JobState) -> Key:
        return (-state.job.priority, state.job.id) if self.inside == "priority" else (state.job.id,)

    # -- the guarantee -----------------------------------------------------------------------------------------------

    def _line_up(self, state: JobState) -> None:
        path = self._path(state)
        heapq.heappush(self._lines.setdefault(path, []), (self._inside(state), state.job.id))
        self._dirty.add(path)

    def _find_firsts(self, view: View) -> None:
        """Who is the first of each user, where that may have changed."""
        if not self.guarantee_s:
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
                due_s = view.now_s + 0.5 * self.guarantee_s
                self._first[path] = (line[0][1], due_s)
                heapq.heappush(self._dues, (due_s, path, line[0][1]))
        self._dirty.clear()

    def _is_due(self, due: tuple[float, Path, int]) -> bool:
        """Whether an entry of `_dues` is still of the one who is the first."""
        due_s, path, job_id = due
        return self._first.get(path) == (job_id, due_s) and job_id not in self._overdue

    # -- what is saved -----------------------------------------------------------------------------------------------

    def knowledge(self) -> dict[str, Any]:
        """Usage, and who has waited how long at the head of a user's jobs."""
        return {
            "zero_s": self._zero_s,
            "used": [list(pair) for pair in sorted(self._used.items())],
            "seen": [[*owner, total] for owner, total in sorted(self._seen.items())],
            "first": [[list(path), job_id, due_s] for path, (job_id, due_s) in sorted(self._first.items())],
            "starting": sorted(map(list, self._starting)),
            "overdue": sorted(self._overdue),
        }

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """All of it: usage outlives the jobs."""
        with reading("fair", saved, "zero_s", "used", "seen", "first", "starting", "overdue"):
            self._zero_s = float(saved["zero_s"])
            self._used = {str(node): float(used) for node, used in saved["used"]}
            self._seen = {(str(group), str(user)): float(total) for group, user, total in saved["seen"]}
            self._first = {tuple(map(str, path)): (int(j), float(due_s)) for path, j, due_s in saved["first"]}
            self._starting = {tuple(map(str, path)) for path in saved["starting"]}
            self._overdue = {int(j) for j in saved["overdue"]}
        if view.usage is None:  # the meters of a view that was made anew begin at 0
            self._seen = {}
        self._dues = [(due_s, path, job_id) for path, (job_id, due_s) in self._first.items()]
        heapq.heapify(self._dues)
        for state in view.waiting.values():
            self.waits(state, view)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ValueError(f"{text!r}: expected NAME=VALUE")
    return name, value


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise ValueError(f"the weight of {name} is {text!r}: a number above 0")
    return value
