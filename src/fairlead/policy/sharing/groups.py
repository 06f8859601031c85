"""Shared GPUs by who is on them, in order of utilisation, so that nobody has to look at every GPU or subset."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fairlead.model.interference import Interference
from fairlead.model.profile import Profile
from fairlead.policy.view import View

Group = tuple[int, ...]
"""The jobs on a GPU; GPUs with the same jobs form one group."""
_Names = tuple[str, ...]
"""The profiles of a set, in lower case and sorted: what a history knows sets by."""


@dataclass(slots=True)
class _Kind:
    """Groups of the same profiles: they are equally full."""

    profiles: list[Profile]
    utilisation_frac: float
    groups: set[Group] = field(default_factory=set)

    @property
    def key(self) -> tuple[tuple[str, float], ...]:
        return _key(self.profiles)

    @property
    def names(self) -> _Names:
        return _sorted_names(p.name for p in self.profiles)


class GroupIndex:
    """The groups of a view, fullest first. It catches up with what changed when it is asked.

    How full a group is follows from its jobs' profiles and from the history, so it changes while the group stays the
    same: when the history learns of a set, all groups of that set change places.
    """

    def __init__(self, history: Interference) -> None:
        self._history = history
        self._levels: dict[float, list[Group]] = {}
        """Groups by -utilisation, each list ascending."""
        self._ranked: list[float] = []
        """The levels, ascending."""
        self._kind_of: dict[Group, _Kind] = {}
        self._kinds: dict[tuple[tuple[str, float], ...], _Kind] = {}
        self._named: dict[_Names, list[_Kind]] = {}
        self._learnt: set[_Names] = set()
        """Sets of which the history has learnt since the last time."""
        self._position = 0
        self._epoch = -1

    def learnt(self, names: Iterable[str]) -> None:
        """The history has learnt of this set."""
        self._learnt.add(_sorted_names(names))

    def catch_up(self, view: View) -> None:
        """Take in the groups that came and went since the last time, and what was learnt of those that stayed."""
        if view.group_epoch != self._epoch:
            self._count_anew(view)
        else:
            for group in dict.fromkeys(view.regrouped[self._position :]):
                if group in view.groups:
                    if group not in self._kind_of:
                        insort(self._level(-self._enter(group, view).utilisation_frac), group)
                elif group in self._kind_of:
                    self._remove(group)
            self._measure_anew()
        self._learnt.clear()
        self._epoch, self._position = view.group_epoch, len(view.regrouped)

    def at_most(self, utilisation_frac: float) -> Iterator[Group]:
        """Groups that are no fuller than that, fullest first."""
        for i in range(bisect_left(self._ranked, -utilisation_frac), len(self._ranked)):
            yield from self._levels[self._ranked[i]]

    def above(self, utilisation_frac: float) -> Iterator[Group]:
        """Groups that are fuller than that, fullest first."""
        for i in range(bisect_left(self._ranked, -utilisation_frac)):
            yield from self._levels[self._ranked[i]]

    def _count_anew(self, view: View) -> None:
        for known in (self._levels, self._kind_of, self._kinds, self._named):
            known.clear()
        for group in view.groups:
            self._enter(group, view)
        for kind in self._kinds.values():
            self._levels.setdefault(-kind.utilisation_frac, []).extend(kind.groups)
        for groups in self._levels.values():
            groups.sort()
        self._ranked = sorted(self._levels)

    def _measure_anew(self) -> None:
        """Sets that were learnt of: all groups of a kind move together, as there may be thousands."""
        for names in self._learnt:
            for kind in self._named.get(names, ()):
                before = kind.utilisation_frac
                kind.utilisation_frac = self._history.utilisation(kind.profiles)
                if kind.utilisation_frac != before:
                    self._levels[-before] = [g for g in self._levels[-before] if g not in kind.groups]
                    self._drop_if_empty(-before)
                    level = self._level(-kind.utilisation_frac)
                    level.extend(kind.groups)
                    level.sort()

    def _enter(self, group: Group, view: View) -> _Kind:
        """Count a group among those of its kind."""
        profiles = profiles_of(group, view)
        key = _key(profiles)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(profiles, self._history.utilisation(profiles))
            self._named.setdefault(kind.names, []).append(kind)
        kind.groups.add(group)
        self._kind_of[group] = kind
        return kind

    def _remove(self, group: Group) -> None:
        kind = self._kind_of.pop(group)
        kind.groups.remove(group)
        level = self._levels[-kind.utilisation_frac]
        del level[bisect_left(level, group)]
        self._drop_if_empty(-kind.utilisation_frac)
        if not kind.groups:
            del self._kinds[kind.key]
            alike = self._named[kind.names] = [k for k in self._named[kind.names] if k is not kind]
            if not alike:
                del self._named[kind.names]

    def _level(self, at: float) -> list[Group]:
        if at not in self._levels:
            self._levels[at] = []
            insort(self._ranked, at)
        return self._levels[at]

    def _drop_if_empty(self, at: float) -> None:
        if not self._levels[at]:
            del self._levels[at]
            del self._ranked[bisect_left(self._ranked, at)]


def _key(profiles: Sequence[Profile]) -> tuple[tuple[str, float], ...]:
    # A list first: for so few a generator takes twice as long, and this is done for every group.
    return tuple([(p.name, p.activity_frac) for p in profiles])


def _sorted_names(names: Iterable[str]) -> _Names:
    return tuple(sorted(name.lower() for name in names))


def described(group: Group, gpus: Iterable[int]) -> str:
    """In words: `beside jobs 3, 7 on GPUs 4-5, 9`."""
    spans: list[list[int]] = []
    for gpu in sorted(gpus):
        if spans and spans[-1][-1] == gpu - 1:
            spans[-1][1:] = [gpu]
        else:
            spans.append([gpu])
    listed = ", ".join("-".join(map(str, span)) for span in spans)
    several = len(spans) > 1 or len(spans[0]) > 1
    jobs = ", ".join(map(str, group))
    return f"beside job{'s' if len(group) > 1 else ''} {jobs} on GPU{'s' if several else ''} {listed}"


def profiles_of(group: Group, view: View) -> list[Profile]:
    """The profiles of the jobs of a group."""
    return [view.running[j].job.profile for j in group]
