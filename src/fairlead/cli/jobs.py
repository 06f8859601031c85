"""`fairlead jobs` and the commands for one job: status, logs, cancel, hold, release."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connect import ACTIVE, HomeOption, JobArgument, JobsArgument, connect, job_number
from fairlead.cli.console import print_json, print_log, say, stdout_console
from fairlead.cli.moments import moment
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.live.client import Client

_LOOK_S = 1.0
_MOST = 500
_LINE_BYTES, _WINDOW_BYTES = 300, 256 * 1024
"""The last lines are looked for in so many bytes each, and in this many at the most."""
_ORDER = ("running", "waiting", "backing-off", "held", "finished", "parked", "cancelled")


def jobs(
    all_: Annotated[bool, typer.Option("--all", help="Include jobs that are over.")] = False,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE,...", help="Only jobs in these states: waiting, running, parked, ..."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only jobs of this user.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Only the newest N.")] = _MOST,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """List jobs: where they run, or why they wait."""
    states = state if state is not None else None if all_ else ACTIVE
    with connect(home) as client:
        if watch:
            with contextlib.suppress(KeyboardInterrupt):
                _watch(lambda: _listed(client, states, user, most))
            return
        found = _listed(client, states, user, most)
    if json:
        print_json({"jobs": found})
        return
    from fairlead.cli.live_tables import job_table

    if found:
        stdout_console().print(job_table(found))
    else:
        say("note", "no jobs" if all_ or state else "no jobs that are not over; --all lists those, too")
    if len(found) == most:
        say("note", f"the newest {most}; --most shows more")


def _listed(client: Client, states: str | None, user: str | None, most: int) -> list[dict[str, Any]]:
    found = client.jobs(states=states, user=user, most=most)
    return sorted(found, key=lambda job: (_ORDER.index(job["state"]), job["id"]))


def _watch(look: Callable[[], list[dict[str, Any]]]) -> None:
    from rich.live import Live

    from fairlead.cli.live_tables import job_table

    console = stdout_console()
    if not console.is_terminal:
        raise InputError("--watch needs a terminal", hint="fairlead events -f goes into pipes")
    with Live(job_table(look()), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_LOOK_S)
            live.update(job_table(look()), refresh=True)


def status(job: JobArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Show everything about one job."""
    with connect(home) as client:
        found = client.job(job_number(client, job))
    if json:
        print_json(found)
        return
    from fairlead.cli.live_tables import job_page

    stdout_console().print(job_page(found))


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job is over.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only what it wrote to stdout.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only what it wrote to stderr.")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Which attempt. Default: the last.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only the last N lines.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what it wrote since then: 10m ago, or 14:30.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not hide control characters from the terminal.")] = False,
    home: HomeOption = None,
) -> None:
    """Print what a job wrote, stdout and stderr in the order of time.

    On a terminal control characters are shown, not obeyed.
    """
    if stdout and stderr:
        raise InputError("--stdout and --stderr exclude each other", hint="without either, both are printed")
    since_s = None if since is None else moment(since, "--since", time.time())
    offset = 0 if tail is None else -min(max(tail * _LINE_BYTES, 8192), _WINDOW_BYTES)
    with connect(home) as client:
        number = job_number(client, job)
        stream = "stderr" if stderr else "stdout" if stdout else "all"
        pieces = client.log(number, stream=stream, attempt=attempt, offset=offset, follow=follow, since_s=since_s)
        written = print_log(pieces if tail is None else _from_last_lines(pieces, tail), raw=raw)
        if not written and tail != 0:
            say("note", _why_empty(client.job(number), stream, since))


def _why_empty(job: dict[str, Any], stream: str, since: str | None) -> str:
    """Why there is nothing to print."""
    what = "anything" if stream == "all" else f"anything to {stream}"
    if not job["attempt"]:
        return f"job {job['id']} is {job['state']} and has not run yet; fairlead explain {job['id']} says why"
    if since is not None:
        return f"job {job['id']} has not written {what} since {since}"
    if job["state"] in _ORDER[:4]:
        return f"job {job['id']} has not written {what} yet; Python keeps output back unless it runs with -u"
    if job["output_path"] is None:
        return f"job {job['id']} has no output, or it was deleted: logs are kept as long as jobs.keep_logs_days says"
    return f"job {job['id']} has not written {what}"


def _from_last_lines(pieces: Iterable[bytes], tail: int) -> Iterator[bytes]:
    """The last lines of the first piece, and the others whole."""
    for count, piece in enumerate(pieces):
        yield piece if count else b"".join(piece.splitlines(keepends=True)[-tail:] if tail else ())


def cancel(job: JobsArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Cancel jobs, waiting or running."""
    _wish("cancel", job, home, json)


def hold(job: JobsArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Hold jobs: stop them, or take them out of the queue, until you release them."""
    _wish("hold", job, home, json)


def release(job: JobsArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Put held, parked or backing-off jobs into the queue again."""
    _wish("release", job, home, json)


def _wish(what: str, jobs: list[str], home: Path | None, json: bool) -> None:
    """Each of them; what is wrong with one keeps none of the others."""
    done, failed = [], 0
    with connect(home) as client:
        for text in jobs:
            try:
                done.append(getattr(client, what)(job_number(client, text)))
            except InputError as error:
                failed += 1
                say("error", error.message)
                if error.hint:
                    say("hint", error.hint)
    if json:
        print_json({"jobs": done})
    else:
        words = {"cancel": "is being cancelled", "hold": "is being held", "release": "waits for GPUs again"}
        for one in done:
            say("note", f"job {one['id']} {words[what]}")
    if failed:
        raise typer.Exit(InputError.exit_code)
