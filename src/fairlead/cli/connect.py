"""How commands find the controller, and the job that is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import say
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.live.client import Client

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="The controller's folder. Default: FAIRLEAD_HOME, else ~/.fairlead."),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Its number, or its name if no other job has it.")]
JobsArgument = Annotated[list[str], typer.Argument(metavar="JOB...", help="Numbers or names of jobs.")]
ACTIVE = "waiting,held,backing-off,running"
_RECENT = 1000
"""Jobs that are over are looked for by name among the last so many."""


def connect(home: Path | None) -> Client:
    """The controller of that folder; else the one that FAIRLEAD_URL names, else that of the usual folder."""
    from fairlead.live.client import Client, default_client
    from fairlead.live.connection import ControllerUnreachableError

    _note_unknown_variable()
    if home is None:
        return default_client()
    from fairlead.live.home import Home, home_folder, read

    folder = Home(home_folder(home))
    url = read(folder.url)
    if not url:
        hint = "start one with: fairlead up --fake-gpus 8"
        raise ControllerUnreachableError(f"no controller answers at {folder.path}", hint=hint)
    return Client(url, read(folder.token))


def _note_unknown_variable() -> None:
    """A mistyped FAIRLEAD_URL would have another controller asked than the one that is meant."""
    from fairlead.live.environment_variables import PREFIX, READ, unknown

    others = [name for name in os.environ if name.startswith(PREFIX) and name not in READ]
    if others and unknown(others, ()):
        from fairlead.live.config import VARIABLES

        if error := unknown(others, VARIABLES):
            say("note", f"{error.message}; {error.hint}")


def job_number(client: Client, text: str) -> int:
    """The job that is meant. Of jobs with the same name one that is not over is preferred."""
    if text.isascii() and text.isdigit():
        return int(text)
    for states, most in ((ACTIVE, None), (None, _RECENT)):
        found = [job["id"] for job in client.jobs(states=states, most=most) if job["name"] == text]
        if len(found) == 1:
            return int(found[0])
        if found:
            listed = ", ".join(str(number) for number in sorted(found)[:10])
            raise InputError(f"{len(found)} jobs are called {text!r}", hint=f"give the number of one: {listed}")
    raise InputError(f"no job is called {text!r}", hint="fairlead jobs --all lists those that you can see")
