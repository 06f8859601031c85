"""A reproduction as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from fairlead.report.reproduce.claims import Reproduction


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
        verdict = "[green]yes[/]" if row.holds else "[bold red]no[/]"
        shown.add_row(row.claim, _number(row.paper), _number(row.ours), row.unit, verdict, row.note)
    return shown


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
