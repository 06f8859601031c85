"""`fairlead reproduce`: a paper's figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, progress_bar, say, stdout_console


def reproduce(
    paper: Annotated[str, typer.Argument(help="The paper: boa, eaco, fgd, muxflow or pal.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The folder of public data. Without it, synthetic data is made."),
    ] = None,
    json: options.JsonOption = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write report.html, claims.json and the plots as PNG.")
    ] = None,
) -> None:
    """Run a paper's comparison and put its figures beside ours."""
    from fairlead.report import claims_table
    from fairlead.report.write import prepare, write_reproduction
    from fairlead.reproduce import reproduce as run

    if out is not None:
        prepare(out)
    with progress_bar(f"reproducing {paper}") as progress:
        found = run(paper, data, progress)
    if data is None:
        say("note", found.data)
    if json:
        print_json(found.as_json())
    else:
        stdout_console().print(claims_table.table(found))
    if out is not None:
        hint = write_reproduction(found, out)
        if hint:
            say("hint", hint)
        say("wrote", str(out))
