"""`fairlead node`: machines that join a controller (`fairlead up --engine join`)."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.node.gpu.meter import GpuInfo

app = typer.Typer(no_args_is_help=True, help="Have machines join a controller, and take them out again.")


@app.command("token")
def token(
    life: Annotated[str, typer.Option("--life", metavar="TIME", help="How long it works: 1h, 30m, ...")] = "1h",
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token that lets one machine join, once."""
    from fairlead.live.jobs.quantities import seconds

    life_s = seconds(life, "--life")
    with connect(home) as client:
        made = client.node_token(life_s)
    if json:
        print_json(made)
    else:
        sys.stdout.write(f"fairlead node join {made['url']} --token {made['token']}\n")
        say("note", f"run that on the machine that is to join, within {life}; it works once")


@app.command("join")
def join(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the controller takes agents: https://head:7318.")],
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="FAIRLEAD_JOIN_TOKEN", help="Of `fairlead node token`; not needed again later."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of this node. Default: the machine's.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="What survives is kept here. Default: ~/.fairlead-node.")
    ] = None,
    fake_gpus: Annotated[int, typer.Option("--fake-gpus", min=0, help="So many made-up GPUs.")] = 0,
    fake_first: Annotated[int, typer.Option("--fake-first", min=0, help="Where their numbers begin.")] = 0,
) -> None:
    """Have this machine join a controller, and run its agent until SIGTERM; under systemd, for instance."""
    from fairlead.node.stream.dialer import Credentials
    from fairlead.node.stream.joining import FILE
    from fairlead.node.stream.joining import join as ask_to_join

    kept = (folder or Path.home() / ".fairlead-node").absolute()
    if token is not None:
        made = ask_to_join(kept, url, token, name or socket.gethostname().split(".")[0], _gpus(fake_gpus, fake_first))
        say("note", f"joined {made.controller} as {made.node}")
    elif not (kept / FILE).exists():
        raise InputError(f"{kept} has joined nothing yet", hint="give --token; an administrator makes it")
    else:
        say("note", f"{Credentials.load(kept / FILE).node} goes on in {kept}")
    _become_agent(kept, kept / FILE, fake_gpus, fake_first)


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A node that has joined.")],
    force: Annotated[bool, typer.Option("--force", help="Its jobs are stopped, and go on elsewhere.")] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Take a node out for good; drain it first, and wait for its jobs."""
    with connect(home) as client:
        found = client.remove_node(name, force=force)
    if json:
        print_json(found)
    else:
        say("note", f"{name} is out; its agent can be stopped, and its token lets nobody in")


def _gpus(fake_gpus: int, fake_first: int) -> list[GpuInfo]:
    from fairlead.node.gpu.fake_gpus import FakeMeter
    from fairlead.node.gpu.meter import MeterError

    if fake_gpus:
        return list(FakeMeter(fake_gpus, "H200", first=fake_first).gpus)
    from fairlead.node.gpu.nvml import NvmlMeter

    try:
        meter = NvmlMeter()
    except MeterError as error:
        raise InputError(f"this machine's GPUs cannot be used: {error.message}", hint=error.hint) from None
    infos = list(meter.gpus)
    meter.close()
    return infos


def _become_agent(folder: Path, credentials: Path, fake_gpus: int, fake_first: int) -> NoReturn:
    words = ["--folder", str(folder), "--dial", str(credentials)]
    if fake_gpus:
        words += ["--fake-gpus", str(fake_gpus), "--fake-first", str(fake_first)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "fairlead.node.http.server", *words])
