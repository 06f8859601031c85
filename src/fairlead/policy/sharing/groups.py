"""Shared GPUs by who is on them, in order of utilisation, so that nobody has to look at every GPU or subset."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from fairlead.model.interference import Interference
from fairlead.model.profile import Profile
from fairlead.policy.view import View

Group = tuple[int, ...]
"""The jobs on a GPU; GPUs with the same jobs form one group."""


class GroupIndex:
    """The groups of a view, fullest first. It catches up with what changed when it is asked."""

    def __init__(self, history: Interference) -> None:
        self._history = history
        self._ranked: list[tuple[float, Group]] = []
        """(-utilisation, group), ascending."""
        self._utilisation: dict[Group, float] = {}
        self._position = 0
        self._epoch = -1

    def catch_up(self, view: View) -> None:
        """Take in the groups that came, went or changed since the last time."""
        if view.group_epoch != self._epoch:
            self._epoch, self._position = view.group_epoch, len(view.regrouped)
            self._utilisation = {group: self._measure(group, view) for group in view.groups}
            self._ranked = sorted((-u, group) for group, u in self._utilisation.items())
            return
        for group in dict.fromkeys(view.regrouped[self._position :]):
            if group in self._utilisation and group not in view.groups:
                at = bisect_left(self._ranked, (-self._utilisation.pop(group), group))
                del self._ranked[at]
            elif group not in self._utilisation and group in view.groups:
                self._utilisation[group] = self._measure(group, view)
                insort(self._ranked, (-self._utilisation[group], group))
        self._position = len(view.regrouped)

    def at_most(self, utilisation_frac: float) -> Iterator[Group]:
        """Groups that are no fuller than that, fullest first."""
        for i in range(bisect_left(self._ranked, (-utilisation_frac, ())), len(self._ranked)):
            yield self._ranked[i][1]

    def _measure(self, group: Group, view: View) -> float:
        return self._history.utilisation(profiles_of(group, view))


def profiles_of(group: Group, view: View) -> list[Profile]:
    """The applications of a group."""
    return [view.running[j].job.profile for j in group]
