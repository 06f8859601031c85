"""`fairlead policies`: what there is to choose from, and what each does exactly."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import print_json, stdout_console
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fairlead.policy.registry import Entry

Stages = Mapping[str, list["Entry"]]


def policies(
    name: Annotated[str | None, typer.Argument(help="A policy or preset: its whole page and its options.")] = None,
    json: JsonOption = False,
) -> None:
    """List the policies of every stage and the presets, or show the page of one."""
    from fairlead.policy import registry

    stages, presets = registry.stages(), registry.presets()
    if name is None:
        if json:
            print_json(
                {"stages": {s: [_entry(e) for e in entries] for s, entries in stages.items()}, "presets": presets}
            )
        else:
            _print_list(stages, presets)
        return
    found = _named(name, stages)
    spec = presets.get(name)
    if not found and spec is None:
        known = {entry.name for entries in stages.values() for entry in entries}
        raise InputError(f"unknown policy {name!r}", hint=did_you_mean(name, known | set(presets)))
    if json:
        print_json({"name": name, "preset": spec, "stages": [{"stage": s, **_entry(e, whole=True)} for s, e in found]})
    else:
        _print_pages(name, found, spec)


def _named(name: str, stages: Stages) -> list[tuple[str, Entry]]:
    """The policies of that name: `fifo`, or `ordering=fifo` where two stages share a name."""
    wanted_stage, _, wanted = name.rpartition("=")
    return [
        (stage, entry)
        for stage, entries in stages.items()
        for entry in entries
        if entry.name == wanted.split(":")[0] and wanted_stage in ("", stage)
    ]


def _entry(entry: Entry, *, whole: bool = False) -> dict[str, Any]:
    options = {name: {"default": default, "help": said} for name, (default, said) in entry.options.items()}
    about = {"name": entry.name, "summary": entry.summary, "options": options}
    return {**about, "doc": inspect.cleandoc(entry.doc)} if whole else about


def _print_list(stages: Stages, presets: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("summary")
    for stage, entries in stages.items():
        table.add_row(Text(stage, style="bold cyan"), "")
        for entry in entries:
            table.add_row(Text(f"  {entry.name}", style="bold"), Text(entry.summary))
    table.add_row(Text("presets", style="bold cyan"), "")
    for name, spec in presets.items():
        table.add_row(Text(f"  {name}", style="bold"), Text(spec))
    console = stdout_console()
    console.print(table)
    console.print(Text("\n`fairlead policies NAME` shows what one does exactly, and its options.", style="dim"))


def _print_pages(name: str, found: list[tuple[str, Entry]], spec: str | None) -> None:
    from rich.text import Text

    console = stdout_console()
    if spec is not None:
        console.print(Text.assemble((name, "bold cyan"), " is a preset for ", (spec, "bold")))
    for number, (stage, entry) in enumerate(found):
        if number or spec is not None:
            console.print()
        console.print(Text(f"{stage}={entry.name}", style="bold cyan"))
        console.print(Text(inspect.cleandoc(entry.doc)))
        for option, (default, said) in entry.options.items():
            console.print(Text.assemble("  ", (option, "bold"), f"={default}  {said}"))
