"""A reproduction as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fairlead.report.claims import Reproduction


def table(found: Reproduction) -> Table:
    """One row per claim; what does not hold stands out, with the reason."""
    shown = Table(title=f"{found.paper}: {found.data}", title_justify="left", box=None, pad_edge=False)
    shown.add_column("claim", overflow="fold")
    shown.add_column("paper", justify="right")
    shown.add_column("ours", justify="right")
    shown.add_column("unit")
    shown.add_column("holds")
    shown.add_column("note", overflow="fold")
    for row in found.rows:
        verdict = Text("yes", "green") if row.holds else Text("no", "bold red")
        shown.add_row(row.claim, number(row.paper), number(row.ours), row.unit, verdict, row.note)
    return shown


def number(value: float | None) -> str:
    """A figure of a claim; a dash where the paper has none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
