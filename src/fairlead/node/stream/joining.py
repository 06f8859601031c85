"""How a machine becomes a node: a token that works once is given for the node's own."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from fairlead.errors import InputError, RunError
from fairlead.node.gpu.meter import GpuInfo, info_as_json
from fairlead.node.host import identity_of
from fairlead.node.stream.dialer import Credentials, NotTheControllerError, dial, split
from fairlead.node.stream.wire import PROTOCOL, WireError

FILE = "dial.json"
_ANSWER_S = 20.0


def join(folder: Path, url: str, token: str, name: str, gpus: Sequence[GpuInfo]) -> Credentials:
    """Ask to be let in, and keep what we are given. The token names the controller, too: nobody else is told it."""
    secret, _, known_by = token.strip().rpartition(".")
    if not secret or len(known_by) != 64:
        raise InputError("that is no token for joining", hint="an administrator makes one: fairlead node token")
    address = split(url)
    hello = {"join": secret, "node": name, "protocol": PROTOCOL, "identity": identity_of(folder)}
    hello["gpus"] = [info_as_json(info) for info in gpus]
    given = asyncio.run(_ask(address, known_by, hello))
    made = Credentials(f"{address[0]}:{address[1]}", known_by, name, given)
    _write(folder / FILE, made)
    return made


async def _ask(address: tuple[str, int], known_by: str, hello: dict[str, object]) -> str:
    where = f"{address[0]}:{address[1]}"
    try:
        wire, greeting = await dial(address, known_by)
    except NotTheControllerError as error:
        raise RunError(error.message, hint="was the token made by another controller?") from None
    except (OSError, ssl.SSLError, TimeoutError, WireError) as error:
        raise RunError(f"nobody answers at {where}: {error or type(error).__name__}") from None
    wire.send({"hello": {**hello, "nonce": greeting.get("nonce")}})
    try:
        answer = await asyncio.wait_for(wire.receive(), _ANSWER_S)
    except (WireError, TimeoutError):
        hint = "it works once, and for a while only; make another: fairlead node token"
        raise RunError(f"the controller at {where} does not take this token", hint=hint) from None
    finally:
        wire.close()
    if "joined" not in answer:
        raise RunError(f"the controller at {where} refuses: {answer.get('refused', answer)}")
    return str(answer["joined"]["token"])


def _write(path: Path, made: Credentials) -> None:
    part = path.with_name(f".{path.name}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({name: getattr(made, name) for name in Credentials.__slots__}, file)
    part.replace(path)
