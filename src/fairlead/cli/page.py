"""`fairlead page`: the controller's page, with a link that signs you in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit, urlunsplit

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.live.client import Client

_ANY_HOST = ("0.0.0.0", "::")


def page(
    open_: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Print a link to the controller's page that signs you in: once, within ten minutes."""
    with connect(home) as client:
        if client.url.startswith("unix:"):
            raise InputError(f"browsers cannot reach {client.url}", hint="have the controller listen on a port")
        link = sign_in_link(client)
    if json:
        print_json({"url": page_url(client.url), "link": link})
    else:
        sys.stdout.write(link + "\n")
    if open_ and not _opened(link):
        say("note", "no browser could be opened here; open the link by hand")


def sign_in_link(client: Client) -> str:
    """To the page, as whoever the client's token is."""
    return link(client.url, client.sign_in_code())


def link(url: str, code: str) -> str:
    """The code is in the fragment, which a browser sends to nobody."""
    return f"{page_url(url)}#sign-in={code}"


def page_url(url: str) -> str:
    """Where a browser on this machine finds it; a controller that listens everywhere is here, too."""
    parts = urlsplit(url)
    if parts.hostname in _ANY_HOST:
        parts = parts._replace(netloc=f"127.0.0.1:{parts.port}")
    return urlunsplit(parts._replace(path="/"))


def _opened(link: str) -> bool:
    import webbrowser

    return webbrowser.open(link)
