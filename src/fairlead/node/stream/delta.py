"""What differs between two statuses of a node (`host.py`), and the later one made from the earlier. Pure.

Figures that change by themselves, joules and readings, are told now and then; everything else at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Status = Mapping[str, Any]
_RESTLESS = ("energy_j", "energy_at_s", "ended_ago_s")
"""Of an attempt."""
_LISTS = {"attempts": "id", "readings": "gpu"}
"""What is told one by one, and by what each is known."""
_APART = (*_LISTS, "events", "guard_age_s")


def difference(before: Status | None, now: Status, *, restless: bool) -> dict[str, Any]:
    """Empty where nothing differs; `restless` tells also what changes by itself."""
    if before is None:
        return {"all": dict(now)}
    told: dict[str, Any] = {}
    plain = {name: value for name, value in now.items() if name not in _APART and before.get(name) != value}
    if plain:
        told["set"] = plain
    for name, key in _LISTS.items():
        if name == "readings" and not restless:
            continue
        changed, gone = _listed(before[name], now[name], key, restless)
        if changed:
            told[name] = changed
        if gone:
            told[f"{name}_gone"] = gone
    if now["events"]:
        told["events"] = now["events"]
    if restless and now.get("guard_age_s", 0.0) != before.get("guard_age_s", 0.0) and _is_late(before, now):
        told["guard_age_s"] = now["guard_age_s"]
    return told


def applied(before: Status | None, told: Mapping[str, Any]) -> dict[str, Any]:
    """The status after a difference. What has not changed is the same object, so that nobody looks at it again."""
    if "all" in told:
        return dict(told["all"])
    assert before is not None  # the first that an agent tells is all
    now = {**before, **told.get("set", {}), "events": told.get("events", [])}
    if "guard_age_s" in told:
        now["guard_age_s"] = told["guard_age_s"]
    for name, key in _LISTS.items():
        changed, gone = told.get(name, ()), told.get(f"{name}_gone", ())
        if changed or gone:
            kept = {one[key]: one for one in before[name]}
            for missing in gone:
                kept.pop(missing, None)
            kept.update({one[key]: one for one in changed})
            now[name] = list(kept.values())
    return now


def is_quiet(told: Mapping[str, Any]) -> bool:
    """Whether nobody has to act on it: it holds figures that change by themselves only."""
    return told.keys() <= {"readings", "guard_age_s", "attempts"} and all(
        one.get("_restless") for one in told.get("attempts", ())
    )


def _listed(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], key: str, restless: bool
) -> tuple[list[dict[str, Any]], list[Any]]:
    known = {one[key]: one for one in before}
    changed = []
    for one in now:
        old = known.pop(one[key], None)
        if old is None or _plain(old) != _plain(one):
            changed.append(dict(one))
        elif restless and old != one:
            changed.append({**one, "_restless": True} if key == "id" else dict(one))
    return changed, list(known)


def _plain(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in _RESTLESS and name != "_restless"}


def _is_late(before: Status, now: Status) -> bool:
    """A guard that looks every moment is none the older for it."""
    return bool(max(before.get("guard_age_s", 0.0), now.get("guard_age_s", 0.0)) > 10.0)
