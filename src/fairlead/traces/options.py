"""`name[:option=value...]`: the little language in which a synthetic trace is asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InputError, did_you_mean

_LARGE = 1_000_000_000
"""Nothing that is counted here is more."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its default, whose type its values have, and the values it may take."""

    default: Any
    expected: str
    good: Callable[[Any], bool]

    def value(self, name: str, written: str) -> Any:
        """The option's value from its text, checked."""
        try:
            found = type(self.default)(written)
        except ValueError:
            found = None
        if found is None or not self.good(found):
            raise InputError(f"option {name}: found {written!r}, expected {self.expected}")
        return found


def above_0(default: float, what: str) -> Option:
    """A check that takes numbers above 0 only."""
    return Option(default, f"{what} above 0", lambda x: x > 0 and math.isfinite(x))


def whole_from(least: int, default: int, what: str) -> Option:
    """A whole number with a lower bound."""
    return Option(default, f"{what}, {least} or more", lambda x: least <= x <= _LARGE)


def between(low: float, high: float, default: float) -> Option:
    """A number between two others."""
    return Option(default, f"a number from {low:g} to {high:g}", lambda x: low <= x <= high)


def one_of(*names: str) -> Option:
    """A word, the first by default."""
    return Option(names[0], f"one of {', '.join(names)}", lambda x: x in names)


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name, and the options as written; they are separated by colons or commas."""
    name, *parts = re.split("[:,]", spec)
    written: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"synthetic trace {spec!r}: found {part!r}, expected option=value")
        if key in written:
            raise InputError(f"synthetic trace {spec!r} gives the option {key!r} more than once")
        written[key] = value.strip()
    return name.strip(), written


def values_of(options: Mapping[str, Option], written: Mapping[str, str], name: str) -> dict[str, Any]:
    """All options of a generator, defaults filled in."""
    for key in written:
        if key not in options:
            raise InputError(f"{name!r} has no option {key!r}", hint=did_you_mean(key, options))
    return {key: o.value(key, written[key]) if key in written else o.default for key, o in options.items()}
