"""Rounds: where a policy decides every so many seconds, moments are rounded up to the next one."""

from __future__ import annotations

import math

NEVER = math.inf


def at_round(moment_s: float, round_s: float | None, slack: float = 0.0) -> float:
    """The first round at or after a moment; the moment itself where there are no rounds."""
    if round_s is None or moment_s == NEVER:
        return moment_s
    return math.ceil(moment_s / round_s - slack) * round_s
