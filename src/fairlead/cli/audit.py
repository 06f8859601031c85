"""`fairlead audit`: who did what."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption

_LAST = 50


def audit(
    last: Annotated[int, typer.Option("--last", min=1, max=1000, help="Only the last N entries.")] = _LAST,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, metavar="N", help="All entries after number N, instead of the last ones."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only entries of this user.")] = None,
    what: Annotated[
        str | None,
        typer.Option("--what", metavar="WORD", help="Only this action: submitted, cancelled, sign-in-failed, ..."),
    ] = None,
    job: Annotated[
        int | None, typer.Option("--job", min=1, metavar="JOB", help="Only about this job's number.")
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Show who submitted, cancelled, drained, made tokens and failed to sign in; for administrators."""
    with connect(home) as client:
        found = client.audit(after=after, last=last, user=user, what=what, job_id=job)
        acts = list(found)
    if json:
        print_json({"acts": acts})
        return
    if not acts:
        say("note", "nothing of that kind is in the audit log")
        return
    from rich.table import Table
    from rich.text import Text

    from fairlead.printable import printable

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("number", "when", "who", "from", "what", "job", "about"):
        justify = "right" if title in ("number", "job") else "left"
        table.add_column(title, no_wrap=title != "about", overflow="fold", justify=justify)  # type: ignore[arg-type]
    for one in acts:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at_s"]))
        job_id = "" if one["job_id"] is None else str(one["job_id"])
        cells = (str(one["id"]), when, one["user"], one["source"], one["what"], job_id, one["about"])
        table.add_row(*(Text(printable(cell)) for cell in cells))
    stdout_console().print(table)
