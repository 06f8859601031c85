"""Attempts that span nodes: the parts that agents tell of, joined to one status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from fairlead.live.engine import AttemptState, AttemptStatus, Key, Progress

Part = Mapping[str, Any]
"""What one node tells of an attempt."""


def grouped(told: Mapping[int, Sequence[Part]]) -> dict[Key, dict[int, Part]]:
    """What all nodes tell, by attempt and then by node."""
    found: dict[Key, dict[int, Part]] = {}
    for node, parts in told.items():
        for part in parts:
            found.setdefault((part["job_id"], part["attempt"]), {})[node] = part
    return found


def is_over(part: Part) -> bool:
    """Whether nothing of this part runs any more."""
    return part["state"] in (AttemptState.ENDED, AttemptState.LOST)


def joined(key: Key, parts: Mapping[int, Part], unreachable: AbstractSet[int]) -> AttemptStatus:
    """How the attempt stands. It is over when all of its parts are; what became of one that cannot be asked is open."""
    wanted = next(iter(parts.values()))["nodes"]
    missing = [node for node in wanted if node not in parts]
    known = sorted(parts.values(), key=lambda part: int(part["rank"]))
    # A part that was never started is not waited for once the others were told to go.
    is_leaving = any(part["stop_requested_at_s"] is not None for part in known)
    is_whole = not missing or (is_leaving and not any(node in unreachable for node in missing))
    if is_whole and all(is_over(part) for part in known):
        return _ended(key, known)
    is_starting = any(node not in unreachable for node in missing)
    return AttemptStatus(
        *key,
        state=AttemptState.STARTING if is_starting else AttemptState.RUNNING,
        started_at_s=_least(known, "started_at_s"),
        stop_requested_at_s=_least(known, "stop_requested_at_s"),
        evicted=_evicted(known),
        progress=_progress(known),
        energy_j=_energy_j(known),
    )


def must_leave(parts: Mapping[int, Part]) -> list[int]:
    """Nodes whose part has lost the others: one has failed, was lost, or was told to go."""
    if not any(_is_broken(part) for part in parts.values()):
        return []
    return [node for node, part in parts.items() if not is_over(part) and part["stop_requested_at_s"] is None]


def _is_broken(part: Part) -> bool:
    if part["evicted"]:
        return True
    has_failed = part["state"] == AttemptState.LOST or part["exit_code"] != 0
    return is_over(part) and (has_failed or part["stop_requested_at_s"] is not None)


def _ended(key: Key, parts: Sequence[Part]) -> AttemptStatus:
    """By the part that failed first, since what came after followed from it."""
    failed = [part for part in parts if part["state"] == AttemptState.LOST or part["exit_code"] != 0]
    failed.sort(key=lambda part: float("inf") if part["ended_at_s"] is None else part["ended_at_s"])
    asked = [part for part in parts if part["stop_requested_at_s"] is not None]
    told = (failed or asked or parts)[0]
    ends = [part["ended_at_s"] for part in parts if part["ended_at_s"] is not None]
    is_lost = any(part["state"] == AttemptState.LOST for part in parts)
    return AttemptStatus(
        *key,
        state=AttemptState.LOST if is_lost else AttemptState.ENDED,
        exit_code=None if is_lost else told["exit_code"],
        reason=told["reason"],
        detail=told["detail"],
        started_at_s=_least(parts, "started_at_s"),
        ended_at_s=max(ends, default=None),
        stop_requested_at_s=told["stop_requested_at_s"],
        evicted=_evicted(parts),
        progress=_progress(parts),
        energy_j=_energy_j(parts),
    )


def _least(parts: Sequence[Part], name: str) -> float | None:
    return min((part[name] for part in parts if part[name] is not None), default=None)


def _evicted(parts: Sequence[Part]) -> str:
    return next((part["evicted"] for part in parts if part["evicted"]), "")


def _progress(parts: Sequence[Part]) -> Progress | None:
    """Of the first node that has reported any."""
    return next((Progress(**part["progress"]) for part in parts if part["progress"] is not None), None)


def _energy_j(parts: Sequence[Part]) -> float | None:
    known = [part["energy_j"] for part in parts]
    return None if any(part is None for part in known) else sum(known)
