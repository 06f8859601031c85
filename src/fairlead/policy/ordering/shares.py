"""What users and groups have used of what is theirs: a tree of GPU-seconds over weights, for `ordering=fair`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.policy.usage import Owner
from fairlead.policy.view import JobState, View

Path = tuple[str, ...]
"""The way to a user through the tree of shares: ("@lab", "@lab.vision", "@lab.vision/ann")."""
_MOST_HALF_LIVES = 64.0
"""Usage is kept in units that double with every half-life; after so many the units are changed."""


class Shares:
    """Usage over weight of every node of the tree; what is held now counts `ahead_s` seconds in advance."""

    def __init__(self, weights: Iterable[str], members: Iterable[str], half_life_s: float, ahead_s: float) -> None:
        self._weight = {name: _positive(name, text) for name, text in map(_pair, weights)}
        """By name, as the user has said."""
        self._group = dict(map(_pair, members))
        self._half_life_s, self._ahead_s = half_life_s, ahead_s
        self._used: dict[str, float] = {}
        """By node of the tree, in GPU-seconds of the moment `_zero_s`."""
        self._zero_s = 0.0
        self._seen: dict[Owner, float] = {}
        """GPU-seconds of each owner that are in `_used`."""
        self._refreshed_s = -1.0
        """When that was; whose meter stood still since then is not looked at."""
        self._taken: dict[str, float] = {}
        """GPUs that the present decision gives, by node."""
        self._held: dict[str, float] = {}
        """GPUs held now, by node."""
        self._weights: dict[str, float] = {}
        """Of each node that was asked for."""
        self._shares: dict[str, float] = {}
        """Usage over weight of each node, at the moment `_shares_at_s`."""
        self._shares_at_s = -1.0
        self._ahead = 0.0
        """What a GPU that is held now counts, in the units of `_used`, at that moment."""
        self._paths: dict[Owner, Path] = {}
        self._below: dict[str, set[Path]] = {}
        """The users below each outermost group, or the user itself."""

    def of(self, path: Path, now_s: float) -> tuple[float, ...]:
        """Usage over weight, level by level: whose is least is next."""
        if now_s != self._shares_at_s:
            self._settle(now_s)
        shares = self._shares
        return tuple([shares[node] if node in shares else self._share(node) for node in path])

    def _settle(self, now_s: float) -> None:
        self._shares.clear()
        self._shares_at_s = now_s
        self._ahead = self._ahead_s * self._scale(now_s)

    def _share(self, node: str) -> float:
        """Usage over weight of a user or group, kept for the rest of this decision."""
        weight = self._weights.get(node)
        if weight is None:
            weight = self._weights[node] = self._weight.get(node.rpartition("/")[2], 1.0)
        held = self._held.get(node, 0.0) + self._taken.get(node, 0.0)
        share = self._shares[node] = (self._used.get(node, 0.0) + held * self._ahead) / weight
        return share

    def take(self, path: Path, gpus: float) -> Iterable[Path]:
        """The present decision gives GPUs to a user; gives the users who stand elsewhere by that."""
        for node in path:
            self._taken[node] = self._taken.get(node, 0.0) + gpus
            self._shares.pop(node, None)
        return self._below[path[0]]

    def refresh(self, view: View) -> None:
        """Add what was held since the last decision, and who holds what now."""
        self._taken.clear()
        self._rebase(view.now_s)
        self._settle(view.now_s)
        usage, scale = view.count_usage(), self._scale(view.now_s)
        known, used, holds = self._seen, self._used, self._held
        holds.clear()
        for owner, held, total in usage.totals(view.now_s, min(self._refreshed_s, view.now_s)):
            fresh = total - known.get(owner, 0.0)
            known[owner] = total
            for node in self.path_of(*owner):
                if fresh:
                    used[node] = used.get(node, 0.0) + fresh * scale
                if held:
                    holds[node] = holds.get(node, 0.0) + held
        self._refreshed_s = view.now_s

    def _scale(self, now_s: float) -> float:
        """A GPU-second of now in the units of `_used`."""
        return float(2.0 ** ((now_s - self._zero_s) / self._half_life_s))

    def _rebase(self, now_s: float) -> None:
        if now_s - self._zero_s > _MOST_HALF_LIVES * self._half_life_s:
            factor = 1.0 / self._scale(now_s)
            self._used = {node: used * factor for node, used in self._used.items() if used * factor > 1e-9}
            self._zero_s = now_s

    def path(self, state: JobState) -> Path:
        """The way to a job's user."""
        return self.path_of(state.job.group, state.job.user)

    def path_of(self, group: str, user: str) -> Path:
        """The way to a user, below the groups that the options or the jobs name."""
        path = self._paths.get((group, user))
        if path is None:
            inside = self._group.get(user, group)
            parts = inside.split(".") if inside else []
            groups = (f"@{'.'.join(parts[: i + 1])}" for i in range(len(parts)))
            path = self._paths[group, user] = (*groups, f"@{inside}/{user}" if inside else user)
            self._below.setdefault(path[0], set()).add(path)
        return path

    def knowledge(self) -> dict[str, Any]:
        """Usage outlives the jobs."""
        return {
            "zero_s": self._zero_s,
            "used": [list(pair) for pair in sorted(self._used.items())],
            "seen": [[*owner, total] for owner, total in sorted(self._seen.items())],
        }

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on with the usage that was saved."""
        self._zero_s = float(saved["zero_s"])
        self._used = {str(node): float(used) for node, used in saved["used"]}
        self._seen = {(str(group), str(user)): float(total) for group, user, total in saved["seen"]}
        if view.usage is None:  # the meters of a view that was made anew begin at 0
            self._seen = {}


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
