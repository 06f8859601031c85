"""Errors that a person can act on.

Each names what failed, the value seen, what was allowed and, where there is one, a hint. The command line prints them
without a traceback and exits with `exit_code`; anything else that escapes is a bug of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FairleadError(Exception):
    """The base of all errors that are meant for people; exit status 1 (the run failed)."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders in `compare`; the default would drop the keyword.
        return _rebuild, (type(self), self.message, self.hint)


class InputError(FairleadError):
    """What the user gave is wrong; exit status 2."""

    exit_code = 2


class InfeasibleError(FairleadError):
    """What was asked for cannot be had, however it is done; exit status 3."""

    exit_code = 3


class RunError(FairleadError):
    """A run broke one of its own laws (a job lost, GPU-seconds not conserved, a refused plan); exit status 1."""


def _rebuild(kind: type[FairleadError], message: str, hint: str | None) -> FairleadError:
    return kind(message, hint=hint)


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """A hint that lists what was allowed, closest first."""
    names = sorted(str(name) for name in allowed)  # members of enumerations by their value
    close = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    listed = ", ".join(names)
    return f"did you mean {close[0]!r}? known: {listed}" if close else f"known: {listed}"
