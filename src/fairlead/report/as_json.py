"""JSON that every reader accepts: no NaN, no infinity (both are null), no types of a library."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any


def plain(value: Any) -> Any:
    """The same value in the types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):  # a NumPy scalar
        return plain(value.item())
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def dumps(value: Any) -> str:
    """Indented JSON text, with the numbers of NumPy as plain ones."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)
