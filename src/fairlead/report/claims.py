"""Claims of a paper beside what we find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure: the paper's, ours, and whether ours bears it out. One that does not says why in its note."""

    claim: str
    unit: str
    paper: float | None
    ours: float
    holds: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot of a reproduction."""

    name: str
    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Reproduction:
    """All claims of a paper."""

    paper: str
    data: str
    """What it ran on."""
    rows: Sequence[Claim]
    figures: Sequence[Figure] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """What `fairlead reproduce NAME --json` prints."""
        return {"paper": self.paper, "data": self.data, "rows": [asdict(row) for row in self.rows]}


def about(claim: str, unit: str, paper: float, ours: float, within: float, note: str = "") -> Claim:
    """A claim that holds when ours is within so much of the paper's figure."""
    return Claim(claim, unit, paper, ours, abs(ours - paper) <= within, note)


def at_least(claim: str, unit: str, wanted: float, ours: float, note: str = "", *, paper: float | None = None) -> Claim:
    """A claim that holds when ours is no smaller than wanted."""
    return Claim(claim, unit, paper, ours, ours >= wanted, note)
