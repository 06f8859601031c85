"""Attempts that span nodes: the parts that agents tell of, joined to one status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from fairlead.live.engines.engine import AttemptState, AttemptStatus, Progress, StoppedBy
from fairlead.node.identity import AttemptId

Part = Mapping[str, Any]
"""What one node tells of an attempt."""
_FIRST = (StoppedBy.NOBODY, StoppedBy.SIGNAL, StoppedBy.MACHINE, StoppedBy.FAIRLEAD)
"""Of parts that failed: by itself, or ended by others; those that we ended followed from these."""


def grouped(told: Mapping[int, Sequence[Part]]) -> dict[AttemptId, dict[int, Part]]:
    """What all nodes tell, by attempt and then by node."""
    found: dict[AttemptId, dict[int, Part]] = {}
    for node, parts in told.items():
        for part in parts:
            found.setdefault(attempt_of(part), {})[node] = part
    return found


def told_by(status: Mapping[str, Any]) -> list[Part]:
    """All that a node tells of attempts: those that were started, and those that never will be, which have no state."""
    return [*status["barred"], *status["attempts"]]


def attempt_of(part: Part) -> AttemptId:
    """The attempt that this part belongs to."""
    return AttemptId.parse(part["id"])


def is_over(part: Part) -> bool:
    """Whether nothing of this part runs any more."""
    return part["state"] in (AttemptState.ENDED, AttemptState.LOST)


def joined(
    attempt: AttemptId,
    parts: Mapping[int, Part],
    bars: Mapping[int, Part],
    unreachable: AbstractSet[int],
    absent: AbstractSet[int] = frozenset(),
) -> AttemptStatus:
    """How the attempt stands. It is over when all of its parts are; what became of one that cannot be asked is open.

    Parts on nodes that are `absent` are lost with them.

    `bars` are told by nodes on which it was stopped before it came: there it will never start, and is over. Of a node
    that answers and has not heard of it nothing of the kind is known: its order may still be on the way.
    """
    without = _missing(parts, bars)
    missing = [node for node in without if node not in absent]
    known = sorted(parts.values(), key=lambda part: int(part["rank"]))
    if not missing and all(is_over(part) for part in known):
        if len(without) > len(missing) and not (known and all(_is_done(part) for part in known)):
            return lost(attempt, _progress(known), _energy_j(known))
        return _ended(attempt, known, is_barred=bool(bars)) if known else _never(attempt)
    is_starting = any(node not in unreachable for node in missing)
    is_starting = is_starting or any(part["state"] == AttemptState.STARTING for part in known)
    return AttemptStatus(
        attempt,
        state=AttemptState.STARTING if is_starting else AttemptState.RUNNING,
        started_at_s=_least(known, "started_at_s"),
        stop_requested_at_s=_least(known, "stop_requested_at_s"),
        evicted=_evicted(known),
        ended_nodes=frozenset(bars)
        | (absent & frozenset(without))
        | {node for node, part in parts.items() if is_over(part)},
        progress=_progress(known),
        energy_j=_energy_j(known),
        energy_at_s=_least(known, "energy_at_s"),
    )


def lost(attempt: AttemptId, progress: Progress | None = None, energy_j: float | None = None) -> AttemptStatus:
    """One that went with a node."""
    return AttemptStatus(
        attempt,
        AttemptState.LOST,
        reason="node-lost",
        stopped_by=StoppedBy.MACHINE,
        progress=progress,
        energy_j=energy_j,
    )


def must_stop(parts: Mapping[int, Part], bars: Mapping[int, Part]) -> list[int]:
    """Nodes whose part has lost the others: one has failed, was lost, was stopped, or will never start."""
    if not is_broken(parts, bars):
        return []
    return [node for node, part in parts.items() if not is_over(part) and part["stop_requested_at_s"] is None]


def must_not_start(parts: Mapping[int, Part], bars: Mapping[int, Part]) -> list[int]:
    """Nodes that have not heard of the attempt, where it would find the others ended or stopped."""
    is_stopping = any(part["stop_requested_at_s"] is not None for part in parts.values())
    return _missing(parts, bars) if is_stopping or is_broken(parts, bars) else []


def is_broken(parts: Mapping[int, Part], bars: Mapping[int, Part]) -> bool:
    """Whether what is left of the attempt can come to nothing."""
    return bool(bars) or any(_is_broken(part) for part in parts.values())


def _is_broken(part: Part) -> bool:
    if part["evicted"]:
        return True
    if not is_over(part):
        return False
    if part["state"] == AttemptState.LOST or part["exit_code"] != 0 or part["stop_requested_at_s"] is not None:
        return True
    # Somebody else's signal, at which it ended with 0 half way: the others would wait for it for ever.
    return bool(part["stopped_by"]) and not (part["progress"] or {}).get("has_finished")


def _is_done(part: Part) -> bool:
    """Whether it says that the work is through, whatever became of the others."""
    return bool((part["progress"] or {}).get("has_finished")) and part["exit_code"] == 0


def _missing(parts: Mapping[int, Part], bars: Mapping[int, Part]) -> list[int]:
    wanted = next(iter((parts or bars).values()))["nodes"] if parts or bars else ()
    return [node for node in wanted if node not in parts and node not in bars]


def _ended(attempt: AttemptId, parts: Sequence[Part], *, is_barred: bool) -> AttemptStatus:
    """By the part that failed by itself, since the ends of the others followed from it."""
    failed = [part for part in parts if part["state"] == AttemptState.LOST or part["exit_code"] != 0]
    failed.sort(key=lambda part: _FIRST.index(StoppedBy(part["stopped_by"])))
    stopped = [part for part in parts if part["stopped_by"]]
    told = (failed or stopped or parts)[0]
    ends = [part["ended_at_s"] for part in parts if part["ended_at_s"] is not None]
    is_lost = any(part["state"] == AttemptState.LOST for part in parts)
    return AttemptStatus(
        attempt,
        state=AttemptState.LOST if is_lost else AttemptState.ENDED,
        exit_code=None if is_lost else told["exit_code"],
        reason=told["reason"],
        detail=told["detail"],
        started_at_s=_least(parts, "started_at_s"),
        ended_at_s=max(ends, default=None),
        ended_ago_s=_least(parts, "ended_ago_s"),
        stop_requested_at_s=told["stop_requested_at_s"],
        # A part that never came cannot have done its work, however well the others ended.
        stopped_by=StoppedBy.FAIRLEAD if is_barred and not failed else StoppedBy(told["stopped_by"]),
        ran_s=max((part["ran_s"] for part in parts if part["ran_s"] is not None), default=None),
        evicted=_evicted(parts),
        progress=_progress(parts),
        energy_j=_energy_j(parts),
        energy_at_s=max(ends, default=None),
    )


def _never(attempt: AttemptId) -> AttemptStatus:
    """One that was stopped before it came."""
    return AttemptStatus(attempt, AttemptState.ENDED, reason="never-started", stopped_by=StoppedBy.FAIRLEAD)


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
