"""`fairlead submit`: hand a command, or a file of jobs, to the controller."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.live.client import Client
    from fairlead.live.jobs.request import JobRequest

_NEEDS, _WISHES, _RUN = "What it needs", "What it is worth", "How it runs"
_FILES = (".toml", ".yaml", ".yml")
_LOOK_S = 0.5
_OVER = ("finished", "parked", "cancelled")


def submit(
    words: Annotated[
        list[str], typer.Argument(metavar="[--] COMMAND... | FILE", help="A command, or a job file (.toml, .yaml).")
    ],
    gpus: Annotated[
        float | None,
        typer.Option("--gpus", "-g", help="GPUs to ask for; 0.3 is a part of one. Default: 1.", rich_help_panel=_NEEDS),
    ] = None,
    min_gpus: Annotated[
        int | None, typer.Option("--min-gpus", help="The fewest GPUs it can run on.", rich_help_panel=_NEEDS)
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", help="The most GPUs it can use.", rich_help_panel=_NEEDS)
    ] = None,
    mem: Annotated[
        str | None, typer.Option("--mem", metavar="SIZE", help="Memory on each GPU: 20GiB.", rich_help_panel=_NEEDS)
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME", help="The profile that describes it: resnet50.", rich_help_panel=_NEEDS
        ),
    ] = None,
    application: Annotated[
        str | None,
        typer.Option(
            "--application",
            metavar="NAME",
            help="The program it is a run of. Default: by its profile or its command.",
            rich_help_panel=_NEEDS,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="TIME", help="When it should be done, from now: 6h.", rich_help_panel=_WISHES
        ),
    ] = None,
    estimate: Annotated[
        str | None,
        typer.Option(
            "--estimate",
            metavar="TIME",
            help="How long it takes alone on the GPUs asked for: 2h.",
            rich_help_panel=_WISHES,
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority", metavar="P", help="Priority: low, normal, high or a number.", rich_help_panel=_WISHES
        ),
    ] = None,
    service: Annotated[
        bool,
        typer.Option(
            "--service", help="A service: it answers requests, and its latency counts.", rich_help_panel=_WISHES
        ),
    ] = False,
    slo: Annotated[
        str | None,
        typer.Option("--slo", metavar="TIME", help="The latency a service must keep: 50ms.", rich_help_panel=_WISHES),
    ] = None,
    latency_url: Annotated[
        str | None,
        typer.Option(
            "--latency-url",
            metavar="URL",
            help="Where a service tells its latency: http://127.0.0.1:8000/metrics.",
            rich_help_panel=_WISHES,
        ),
    ] = None,
    latency_metric: Annotated[
        str | None,
        typer.Option(
            "--latency-metric",
            metavar="NAME",
            help="The Prometheus histogram or summary there, in seconds.",
            rich_help_panel=_WISHES,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Its name. Default: the name of its program.", rich_help_panel=_RUN)
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="K[=V]", help="Set a variable, or pass yours on; may be repeated.", rich_help_panel=_RUN
        ),
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option("--cwd", metavar="DIR", help="The folder to run in. Default: this one.", rich_help_panel=_RUN),
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", help="How often to restart it after a failure.", rich_help_panel=_RUN)
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option("--grace", metavar="TIME", help="Time from SIGTERM to SIGKILL: 30s.", rich_help_panel=_RUN),
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold it until `fairlead release`.", rich_help_panel=_RUN)
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is over; exit code 1 unless it finished.")
    ] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Submit a job: a command after the options, or a file of jobs. Prints its number."""
    from fairlead.live.jobs.job_files import load_jobs, request
    from fairlead.live.jobs.quantities import mebibytes, seconds

    given: dict[str, Any] = {
        "gpus": gpus,
        "min_gpus": min_gpus,
        "max_gpus": max_gpus,
        "memory_mib": None if mem is None else mebibytes(mem, "--mem"),
        "profile": profile,
        "application": application,
        "deadline_s": None if deadline is None else seconds(deadline, "--deadline"),
        "estimate_s": None if estimate is None else seconds(estimate, "--estimate"),
        "priority": _priority(priority),
        "kind": "service" if service else None,
        "slo_s": None if slo is None else seconds(slo, "--slo"),
        "latency_url": latency_url,
        "latency_metric": latency_metric,
        "name": name,
        "env": _variables(env) if env else None,
        "cwd": None if cwd is None else str(cwd.absolute()),
        "retries": retries,
        "grace_s": None if grace is None else seconds(grace, "--grace"),
        "hold": hold or None,
    }
    given = {key: value for key, value in given.items() if value is not None}
    if words[0].lower().endswith(_FILES):
        _refuse_beside_file(words, given)
        wanted = load_jobs(Path(words[0]), Path.cwd())
    else:
        wanted = [request({"cwd": str(Path.cwd()), **given, "command": words}, "this job")]
    for unknown in dict.fromkeys(one.profile for one in wanted if not _is_known(one.profile)):
        say("note", f"no profile {unknown!r} is known; the job is taken to be like the generic one")
    with connect(home) as client:
        _submit_all(client, wanted, wait=wait, json=json)


def _priority(text: str | None) -> int | str | None:
    """A number, or a word that is checked elsewhere."""
    if text is None or not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return text
    return int(text)


def _variables(env: list[str]) -> dict[str, str]:
    """`K=V` as it is, `K` as it is here."""
    found = {}
    for word in env:
        key, equals, value = word.partition("=")
        if not equals and key not in os.environ:
            raise InputError(f"--env {key}: there is no such variable here", hint=f"--env {key}=VALUE sets one")
        found[key] = value if equals else os.environ[key]
    return found


def _is_known(profile: str) -> bool:
    from dataclasses import replace

    from fairlead.model.profile import GENERIC, profile_named

    return profile.lower() == GENERIC.name or replace(profile_named(profile), name=GENERIC.name) != GENERIC


def _refuse_beside_file(words: list[str], given: dict[str, Any]) -> None:
    if len(words) > 1:
        hint = "options stand before the file; one file at a time"
        raise InputError(f"{words[0]} is a job file, and {words[1]!r} follows it", hint=hint)
    if given:
        raise InputError(f"{words[0]} is a job file: {next(iter(given))} belongs into it, not beside it")


def _submit_all(client: Client, wanted: list[JobRequest], *, wait: bool, json: bool) -> None:
    made = []
    for one in wanted:
        answer = client.submit(one.model_dump(mode="json", exclude_unset=True))
        made.append({"id": answer["id"], "name": one.shown_name})
        if not json:
            typer.echo(answer["id"])
    if wait:
        over = [_await(client, one["id"]) for one in made]
        made = [
            {**one, "state": job["state"], "exit_code": job["exit_code"]} for one, job in zip(made, over, strict=True)
        ]
    elif not json:
        numbers = " ".join(str(one["id"]) for one in made)
        follow = f"fairlead logs -f {numbers}" if len(made) == 1 else "fairlead jobs"
        say("hint", f"follow with: {follow}; stop with: fairlead cancel {numbers}")
    if json:
        print_json({"jobs": made})
    if any(one.get("state", "finished") != "finished" for one in made):
        raise typer.Exit(1)


def _await(client: Client, job_id: int) -> dict[str, Any]:
    while (job := client.job(job_id))["state"] not in _OVER:
        time.sleep(_LOOK_S)
    code = "" if job["exit_code"] is None else f", status {job['exit_code']}"
    say("note", f"job {job_id} {job['state']}{code}")
    return job
