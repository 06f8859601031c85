"""`fairlead token`: who may talk to the controller."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens; for administrators.")


@app.command("create")
def create(
    user: Annotated[str, typer.Argument(help="Whose it is; where jobs run as their users, an account.")],
    role: Annotated[str, typer.Option("--role", help="user, operator or admin.")] = "user",
    note: Annotated[str, typer.Option("--note", help="What it is for.")] = "",
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token and print it, this once."""
    with connect(home) as client:
        made = client.make_token(user, role, note)
        url = client.url
    if json:
        print_json({**made, "url": url})
        return
    typer.echo(made["token"])
    say("hint", f"{user} sets FAIRLEAD_URL={url} and FAIRLEAD_TOKEN to this; it cannot be shown again")


@app.command("list")
def list_(home: HomeOption = None, json: JsonOption = False) -> None:
    """List tokens, without what they are."""
    with connect(home) as client:
        found = client.tokens()
    if json:
        print_json({"tokens": found})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("token", "user", "role", "made", "revoked", "note"):
        table.add_column(title, no_wrap=title != "note", justify="right" if title == "token" else "left")
    for one in found:
        revoked = _day(one["revoked_at_s"]) if one["revoked_at_s"] else ""
        table.add_row(str(one["id"]), one["user"], one["role"], _day(one["created_at_s"]), revoked, Text(one["note"]))
    stdout_console().print(table)


@app.command("revoke")
def revoke(
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Its number in the list.")],
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """From now on a token lets nobody in."""
    with connect(home) as client:
        found = client.revoke_token(token)
    if json:
        print_json(found)
    else:
        say("note", f"token {token} is revoked")


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
