"""The file format of interference tables: what an entry may hold, and how a table is laid out as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

FORMAT = "fairlead-interference-1"
MAX_SPEED = 1.5
"""A measured speed above this is a mistake: a neighbour helps by noise only."""


def wrong_names(names: object) -> str | None:
    """What is wrong with the names of a set, if anything."""
    expected = "expected a list of at least 2 names"
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) and n for n in names):
        return f"names is {brief(names)}, {expected}"
    return f"names has {len(names)}, {expected}" if len(names) < 2 else None


def wrong_speeds(names: Sequence[str], speeds: object) -> str | None:
    """What is wrong with the speeds of a set, if anything."""
    if not isinstance(speeds, list | tuple):
        return f"speeds is {brief(speeds)}, expected a list of {len(names)} numbers"
    if len(speeds) != len(names):
        return f"{len(speeds)} speeds for {len(names)} names; expected one each"
    for name, speed in zip(names, speeds, strict=True):
        if not _is_number(speed) or not 0.0 < speed <= MAX_SPEED:  # NaN fails this too
            return f"speed of {name} is {brief(speed)}, expected more than 0 and at most {MAX_SPEED} of its solo speed"
    return None


def wrong_utilisation(utilisation_frac: object) -> str | None:
    """What is wrong with a utilisation, if anything."""
    if utilisation_frac is None or (_is_number(utilisation_frac) and 0.0 <= utilisation_frac <= 1.0):
        return None
    return f"utilisation_frac is {brief(utilisation_frac)}, expected 0 to 1, or null where it is unknown"


def wrong_samples(samples: object) -> str | None:
    """What is wrong with a number of samples, if anything."""
    if isinstance(samples, int) and not isinstance(samples, bool) and samples >= 1:
        return None
    return f"samples is {brief(samples)}, expected a whole number, at least 1"


def brief(value: object) -> str:
    """A value for an error message, as short as that needs."""
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_text(value: Mapping[str, Any]) -> str:
    """JSON with one set per line, so that two histories can be compared line by line."""
    parts = []
    for name, item in value.items():
        lines = [json.dumps(i, ensure_ascii=False, allow_nan=False) for i in item] if isinstance(item, list) else []
        rest = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else json.dumps(item, ensure_ascii=False)
        parts.append(f" {json.dumps(name)}: {rest}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
