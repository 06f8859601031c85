"""`fairlead history`: look at what was measured of jobs that shared GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fairlead.model.interference import Interference

app = typer.Typer(no_args_is_help=True, help="Look at what was measured of jobs that shared GPUs.")


@app.callback()
def _history() -> None:
    """A group of its own, though it has one command so far."""


@app.command("show")
def show(
    table: Annotated[
        str, typer.Argument(metavar="[FILE|eaco|gavel-v100]", help="A saved history, or a built-in table.")
    ] = "eaco",
    beside: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME", help="Only sets with this job; may be repeated.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the measured sets: what each job kept of its speed, the GPU's utilisation, how often it was seen."""
    wanted = [name.lower() for name in beside or ()]
    history = _named(table)
    value = history.to_dict()
    value["sets"] = [one for one in value["sets"] if _has(one["names"], wanted)]
    value["does_not_fit"] = [names for names in value.get("does_not_fit", []) if _has(names, wanted)]
    if wanted and not value["sets"] and not value["does_not_fit"]:
        raise _nothing_with(beside or [], history, table)
    if json:
        print_json({"table": table, **value})
    else:
        _print_sets(value)


def _named(table: str) -> Interference:
    from fairlead.model import interference

    if table in interference.BUILT_IN:
        return interference.built_in(table)
    if not Path(table).exists():
        raise InputError(
            f"no history {table!r}: neither a file nor a built-in table",
            hint=did_you_mean(table, interference.BUILT_IN),
        )
    return interference.load_interference(table)


def _has(names: list[str], wanted: list[str]) -> bool:
    """Whether the set holds all that is wanted; the same name twice asks for two jobs of it."""
    lower = [name.lower() for name in names]
    return all(lower.count(name) >= wanted.count(name) for name in wanted)


def _nothing_with(beside: list[str], history: Interference, table: str) -> InputError:
    known = {name for names, _ in history for name in names}
    lower = {name.lower() for name in known}
    unknown = next((name for name in beside if name.lower() not in lower), None)
    if unknown is not None:
        return InputError(f"{table} has no set with {unknown!r}", hint=did_you_mean(unknown, known))
    return InputError(f"{table} has no set with {' + '.join(beside)} together")


def _print_sets(value: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("jobs")
    shown.add_column("speed of each")
    shown.add_column("utilisation", justify="right")
    shown.add_column("samples", justify="right")
    for one in value["sets"]:
        used = one["utilisation_frac"]
        shown.add_row(
            Text(" + ".join(one["names"])),
            Text("  ".join(f"{speed:.3f}" for speed in one["speeds"])),
            "–" if used is None else f"{used:.1%}",
            f"{one['samples']:,}",
        )
    for names in value["does_not_fit"]:
        shown.add_row(Text(" + ".join(names)), "does not fit", "–", "–")
    if shown.row_count:
        stdout_console().print(shown)
    else:
        say("note", "nothing was measured")
