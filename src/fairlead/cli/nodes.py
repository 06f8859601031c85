"""`fairlead nodes` and `fairlead events`: the cluster, and what happens on it."""

from __future__ import annotations

import json as plain_json
import sys
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption, connect, job_number
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption

app = typer.Typer(invoke_without_command=True, help="Show nodes and GPUs; take them out of use, and back.")
NodeArgument = Annotated[str, typer.Argument(metavar="NAME", help="A node, or a GPU as node-0:3.")]
_LAST = 50


@app.callback()
def nodes(context: typer.Context, home: HomeOption = None, json: JsonOption = False) -> None:
    """Show nodes and GPUs, and who is on them; `drain`, `resume` and `enable` take them out of use, and back."""
    if context.invoked_subcommand is not None:
        return
    with connect(home) as client:
        found = client.nodes()
    if json:
        print_json(found)
        return
    from fairlead.cli.live_tables import gpu_table

    stdout_console().print(gpu_table(found["nodes"]))
    if found["is_fake"]:
        say("note", "these GPUs are made up, and so is what is metered on them")


@app.command("drain")
def drain(name: NodeArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Drain a node or a GPU: it takes no new jobs, and running ones may finish."""
    with connect(home) as client:
        found = client.drain(name)
    _print_drained(found, json)


@app.command("resume")
def resume(name: NodeArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Let a drained node or GPU take jobs again."""
    with connect(home) as client:
        found = client.resume(name)
    _print_drained(found, json)


@app.command("enable")
def enable(name: NodeArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Enable GPUs that their guards have disabled. Find out first why they were."""
    with connect(home) as client:
        found = client.enable(name)
    if json:
        print_json(found)
    elif found["gpus"]:
        say("note", f"{', '.join(found['gpus'])}: in the pool again")
    else:
        say("note", f"{name}: no guard had disabled it")


def _print_drained(found: dict[str, object], json: bool) -> None:
    if json:
        print_json(found)
    else:
        say("note", f"{found['name']} {'takes no new jobs' if found['is_drained'] else 'takes jobs again'}")


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only events of this job.")] = None,
    last: Annotated[int, typer.Option("--last", min=0, max=1000, help="Start with the last N events.")] = _LAST,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Print the last events of the cluster, and with --follow the next ones; --json prints one object per line."""
    from fairlead.cli.live_tables import event_text

    console = stdout_console()
    with connect(home) as client:
        number = None if job is None else job_number(client, job)
        found = client.events(job_id=number, after=0 if number is not None else -last, follow=follow)
        if json and not follow:
            print_json({"events": list(found)})
            return
        for event in found:
            if json:
                sys.stdout.write(plain_json.dumps(event) + "\n")
                sys.stdout.flush()
            else:
                console.print(event_text(event), soft_wrap=True)
