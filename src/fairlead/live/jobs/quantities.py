"""Durations and sizes as people write them: `90s`, `1h30m`, `50ms`, `20GiB`."""

from __future__ import annotations

import math
import re

from fairlead.errors import InputError

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MIB = {"kib": 2.0**-10, "mib": 1.0, "gib": 2.0**10, "tib": 2.0**20}
_MIB |= {"kb": 1e3 / 2**20, "mb": 1e6 / 2**20, "gb": 1e9 / 2**20, "tb": 1e12 / 2**20}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(text: str, what: str) -> float:
    """A duration, in one unit or several; `what` is named where it is none."""
    total_s, rest = 0.0, text.strip()
    while rest:
        match = _PART.match(rest)
        if match is None or match[2].lower() not in _SECONDS:
            break
        total_s += float(match[1]) * _SECONDS[match[2].lower()]
        rest = rest[match.end() :]
    if rest or not text.strip() or not math.isfinite(total_s):
        raise InputError(
            f"{what} is {text!r}; expected a duration with its unit", hint="for example 50ms, 90s, 45m, 6h, 1h30m or 2d"
        )
    return total_s


def mebibytes(text: str, what: str) -> float:
    """A size of memory in MiB; 1 GB is a thousand million bytes, 1 GiB a little more."""
    match = _PART.fullmatch(text.strip())
    if match is None or match[2].lower() not in _MIB or not math.isfinite(float(match[1])):
        raise InputError(f"{what} is {text!r}; expected a size with its unit", hint="for example 512MiB, 20GiB or 24GB")
    return float(match[1]) * _MIB[match[2].lower()]
