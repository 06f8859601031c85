"""Short names for the runs of a comparison: of each policy, what sets it apart from the others."""

from __future__ import annotations

import re
from collections.abc import Sequence


def short_names(specs: Sequence[str]) -> list[str]:
    """`ordering=fifo,placing=packed` beside `ordering=las,placing=packed` are `fifo` and `las`; never two alike."""
    if len(specs) == 1:
        return list(specs)
    stages = [dict(_pair(part) for part in spec.split(",")) for spec in specs]
    common = set.intersection(*(set(s.items()) for s in stages))
    names = ["+".join(name for stage, name in s.items() if (stage, name) not in common) for s in stages]
    names = [name or spec for name, spec in zip(names, specs, strict=True)]
    return distinct(names if len(set(names)) == len(names) else list(specs))


def slug(name: str) -> str:
    """A name that is safe in a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def distinct(names: Sequence[str]) -> list[str]:
    """The same names, numbered where one comes again: `fifo`, `fifo-2`."""
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 2
        while candidate.lower() in taken:
            candidate, number = f"{name}-{number}", number + 1
        taken.add(candidate.lower())
        result.append(candidate)
    return result


def _pair(part: str) -> tuple[str, str]:
    stage, _, name = part.partition("=")
    return (stage, name) if name else ("", stage)
