"""`fairlead doctor`: what this machine has, what works, what is missing, and how to add it."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, stdout_console

_WORDS = {True: ("yes", "green"), False: ("no", "red"), None: ("?", "yellow")}


def doctor(
    try_mps: Annotated[bool, typer.Option("--try-mps/--no-try-mps", help="Try MPS: start a daemon and end it.")] = True,
    json: options.JsonOption = False,
) -> None:
    """Check what this machine has for running jobs on GPUs, and say how to add what is missing."""
    from dataclasses import asdict

    from rich.text import Text

    from fairlead.node.doctor import examine

    diagnosis = examine(try_mps=try_mps)
    if json:
        print_json(asdict(diagnosis))
        return
    console = stdout_console()
    widest = max(len(one.name) for one in diagnosis.findings)
    for one in diagnosis.findings:
        word, colour = _WORDS[one.works]
        costs = f"; without it {one.costs}" if one.costs else ""
        line = Text.assemble((f"{word:<4}", colour), f"{one.name:<{widest}}  {one.found}", (costs, "dim"))
        console.print(line, soft_wrap=True)
        if one.fix:
            console.print(Text.assemble(" " * (widest + 6), ("to add it: ", "cyan"), one.fix), soft_wrap=True)
