"""`fairlead config`: what is configured, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.live import ConfigOption, effective
from fairlead.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="Show or check the configuration of a live controller.")


@app.command("show")
def show(config: ConfigOption = None, home: HomeOption = None, json: JsonOption = False) -> None:
    """Print the values that `fairlead up` would start with, and where each comes from."""
    from fairlead.live.config import SETTINGS
    from fairlead.live.home import home_folder

    values = effective(config, home_folder(home), {}).to_dict()
    if json:
        print_json(values)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("setting", "value", "from", "what it is"):
        table.add_column(title, no_wrap=title != "what it is")
    for name, one in values.items():
        value = "–" if one["value"] is None else str(one["value"])
        style = "" if one["source"] == "default" else "bold"
        table.add_row(Text(name, style), Text(value, style), Text(one["source"], "dim"), Text(SETTINGS[name].about))
    stdout_console().print(table)


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A fairlead.toml.")], json: JsonOption = False
) -> None:
    """Check a configuration file: every key, every value."""
    from fairlead.live.config import load

    found = load(file)
    given = [name for name, one in found.values.items() if one.source != "default"]
    if json:
        print_json({"file": str(file), "settings": given})
    else:
        say("note", f"{file} is good, and sets {len(given)} values")
