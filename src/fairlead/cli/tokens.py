"""`fairlead token`: who may talk to the controller."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Make, list, rotate and revoke tokens; for administrators.")


@app.command("create")
def create(
    user: Annotated[str, typer.Argument(help="The user; as root, the account that jobs run under.")],
    role: Annotated[str, typer.Option("--role", help="user, operator or admin.")] = "user",
    note: Annotated[str, typer.Option("--note", help="What it is for.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="When it expires: 30d, or never. Default: 90d.")
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token and print it. It is shown only once."""
    from fairlead.live.jobs.quantities import seconds

    life_s = None if expires is None else 0.0 if expires == "never" else seconds(expires, "--expires")
    if life_s == 0.0 and expires != "never":
        raise InputError(f"--expires {expires}: it would never be valid", hint="for example 30d, or never")
    with connect(home) as client:
        made = client.make_token(user, role, note, life_s)
        url = client.url
    if json:
        print_json({**made, "url": url})
        return
    typer.echo(made["token"])
    say("hint", f"{user} sets FAIRLEAD_URL={url} and FAIRLEAD_TOKEN to this; it cannot be shown again")


@app.command("list")
def list_(home: HomeOption = None, json: JsonOption = False) -> None:
    """List tokens: whose they are and when they expire, not the tokens themselves."""
    with connect(home) as client:
        found = client.tokens()
    if json:
        print_json({"tokens": found})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("token", "user", "role", "made", "expires", "revoked", "note"):
        table.add_column(title, no_wrap=title != "note", justify="right" if title == "token" else "left")
    for one in found:
        made, expires, revoked = (_day(one[f"{what}_at_s"]) for what in ("created", "expires", "revoked"))
        table.add_row(str(one["id"]), one["user"], one["role"], made, expires or "never", revoked, Text(one["note"]))
    stdout_console().print(table)


@app.command("rotate")
def rotate(
    token: Annotated[
        int | None, typer.Argument(metavar="TOKEN", help="Its number in the list. Default: your own.")
    ] = None,
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="How long the old one stays valid: 1h.")] = "0s",
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Replace a token by a new one for the same user and role, and print it. It is shown only once."""
    from fairlead.live.home import Home, home_folder, read
    from fairlead.live.jobs.quantities import seconds

    with connect(home) as client:
        made = client.rotate_token(token, seconds(keep, "--keep"))
        url, old = client.url, client.token
    folder = Home(home_folder(home))
    is_homes = token is None and read(folder.token) == old
    if is_homes:
        folder.write(folder.token, made["token"] + "\n")
    if json:
        print_json({**made, "url": url})
        return
    typer.echo(made["token"])
    if is_homes:
        say("note", f"{folder.token} has it, too")
    else:
        say("hint", "set FAIRLEAD_TOKEN to this; it cannot be shown again")


@app.command("revoke")
def revoke(
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Its number in the list.")],
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Revoke a token at once."""
    with connect(home) as client:
        found = client.revoke_token(token)
    if json:
        print_json(found)
    else:
        say("note", f"token {token} is revoked")


def _day(at_s: float | None) -> str:
    return "" if at_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
