"""What stages save so that a controller can be killed at any moment, and how they read it back.

Plain types that JSON keeps to the last bit: numbers by job are lists of pairs, since JSON makes every key a text, and
what is not finite is null, since JSON has no word for it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairlead.errors import InputError, did_you_mean


@contextmanager
def reading(what: str, saved: Mapping[str, Any], *keys: str) -> Iterator[None]:
    """Whatever is wrong with a saved value is an `InputError` that names whose it is."""
    if not isinstance(saved, Mapping):
        raise InputError(f"what was saved of {what} is a {type(saved).__name__}, expected a table")
    for key in saved:
        if key not in keys:
            raise InputError(f"what was saved of {what} has the unknown key {key!r}", hint=did_you_mean(str(key), keys))
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise InputError(f"what was saved of {what} cannot be read: {type(wrong).__name__} {wrong}") from None


def finite(value: float) -> float | None:
    """A number for JSON: None stands for infinity."""
    return float(value) if math.isfinite(value) else None


def or_infinite(saved: float | None) -> float:
    """The number that `finite` was given, where that could only be infinite."""
    return math.inf if saved is None else float(saved)


def draws(rng: random.Random) -> list[Any]:
    """Where a generator stands: about 7 kB."""
    version, state, gauss = rng.getstate()
    return [version, list(state), gauss]


def resume_draws(rng: random.Random, saved: list[Any]) -> None:
    """Go on drawing from there."""
    version, state, gauss = saved
    rng.setstate((version, tuple(state), gauss))
