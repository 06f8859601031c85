"""What all answers have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

StateWord = Literal["waiting", "held", "backing-off", "running", "finished", "parked", "cancelled"]
Anything = dict[str, Any]


class Shape(BaseModel):
    """No field but those that are named."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Any answer that is not what was asked for."""

    error: str
    hint: str | None
