"""Shared GPUs by who is on them, in order of utilisation, so that nobody has to look at every GPU or subset."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
        self._recalled: Mapping[str, Any] | None = None

    def catch_up(self, view: View) -> None:
        """Take in the groups that came, went or changed since the last time."""
        if view.group_epoch != self._epoch:
            self._epoch, self._position = view.group_epoch, len(view.regrouped)
            known = self._take_recalled(view)
            self._utilisation = {g: known[g] if g in known else self._measure(g, view) for g in view.groups}
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

    def above(self, utilisation_frac: float) -> Iterator[Group]:
        """Groups that are fuller than that, fullest first."""
        for i in range(bisect_left(self._ranked, (-utilisation_frac, ()))):
            yield self._ranked[i][1]

    def knowledge(self) -> Mapping[str, Any]:
        """Utilisations as they were measured when groups formed: the history may say something else by now."""
        held = [[list(group), utilisation] for group, utilisation in self._utilisation.items()]
        return self._recalled or {"epoch": self._epoch, "held": held}

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go by them until the groups change."""
        held = [[[int(j) for j in group], float(utilisation)] for group, utilisation in saved["held"]]
        self._recalled = {"epoch": int(saved["epoch"]), "held": held}

    def _take_recalled(self, view: View) -> dict[Group, float]:
        """What was recalled, where it is of this epoch of the view, or of a view that there was before it."""
        saved, self._recalled = self._recalled, None
        if saved is None or view.group_epoch not in (0, saved["epoch"]):
            return {}
        return {tuple(group): utilisation for group, utilisation in saved["held"]}

    def _measure(self, group: Group, view: View) -> float:
        return self._history.utilisation(profiles_of(group, view))


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
    """The applications of a group."""
    return [view.running[j].job.profile for j in group]
