"""The `fairlead` command: its groups, and how every error ends.

A mistake of the user's is `error:` and `hint:` on stderr and status 2, a failed run status 1, an interrupt 130. A
traceback is only ever a bug of ours.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead.cli import (
    audit,
    backup,
    compare,
    configuration,
    demo,
    doctor,
    explain,
    history,
    install_service,
    jobs,
    live,
    measure,
    node,
    nodes,
    page,
    policies,
    predictor,
    reproduce,
    simulate,
    steer,
    submit,
    tokens,
    top,
    traces,
    whatif,
    widths,
)
from fairlead.cli.console import say
from fairlead.errors import FairleadError, InputError

_MISTAKES = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
    errno.EEXIST, errno.EROFS,
})  # fmt: skip
"""What is wrong with a path that somebody gave; a full disk, say, is nobody's mistake."""


class Group(TyperGroup):
    """A command group that knows the line it was called with, and ends errors the way this module says."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Keep the command line for the report, which tells how to get the same result again."""
        line = shlex.join(["fairlead", *args])
        context = super().make_context(info_name, args, parent, **extra)
        context.obj = line
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and turn Fairlead's errors into words and an exit status."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe should be noticed here, not at exit
        except FairleadError as error:
            say("error", error.message)
            if error.hint:
                say("hint", error.hint)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            say("error", "interrupted")
            raise typer.Exit(130) from interrupt
        except BrokenPipeError as closed:
            _forget_stdout()
            raise typer.Exit(1) from closed
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say("error", f"{where}{error.strerror or error}")
            is_mistake = error.filename is not None and error.errno in _MISTAKES
            raise typer.Exit(InputError.exit_code if is_mistake else 1) from error
        return result


def _forget_stdout() -> None:
    """The reader has gone (`| head`); without this Python complains of the last flush."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fairlead schedules shared GPU clusters: how many GPUs, in which order, which ones and with whom.",
)
_JOBS, _CLUSTER, _STUDY = "Jobs on a live cluster", "Running a live cluster", "Simulation and measurement"

app.command("submit", rich_help_panel=_JOBS, context_settings={"allow_interspersed_args": False})(submit.submit)
app.command("jobs", rich_help_panel=_JOBS)(jobs.jobs)
app.command("status", rich_help_panel=_JOBS)(jobs.status)
app.command("logs", rich_help_panel=_JOBS)(jobs.logs)
app.command("explain", rich_help_panel=_JOBS)(explain.explain)
app.command("cancel", rich_help_panel=_JOBS)(jobs.cancel)
app.command("hold", rich_help_panel=_JOBS)(jobs.hold)
app.command("release", rich_help_panel=_JOBS)(jobs.release)
app.command("top", rich_help_panel=_JOBS)(top.top)
app.command("page", rich_help_panel=_JOBS)(page.page)

app.command("demo", rich_help_panel=_CLUSTER)(demo.demo)
app.command("up", rich_help_panel=_CLUSTER)(live.up)
app.command("steer", rich_help_panel=_CLUSTER)(steer.steer)
app.command("down", rich_help_panel=_CLUSTER)(live.down)
app.command("install-service", rich_help_panel=_CLUSTER)(install_service.install_service)
app.command("backup", rich_help_panel=_CLUSTER)(backup.backup)
app.command("restore", rich_help_panel=_CLUSTER)(backup.restore)
app.add_typer(nodes.app, name="nodes", rich_help_panel=_CLUSTER)
app.add_typer(node.app, name="node", rich_help_panel=_CLUSTER)
app.command("events", rich_help_panel=_CLUSTER)(nodes.events)
app.add_typer(tokens.app, name="token", rich_help_panel=_CLUSTER)
app.command("audit", rich_help_panel=_CLUSTER)(audit.audit)
app.add_typer(configuration.app, name="config", rich_help_panel=_CLUSTER)
app.command("doctor", rich_help_panel=_CLUSTER)(doctor.doctor)

app.command("simulate", rich_help_panel=_STUDY)(simulate.simulate)
app.command("compare", rich_help_panel=_STUDY)(compare.compare)
app.command("whatif", rich_help_panel=_STUDY)(whatif.whatif)
app.command("policies", rich_help_panel=_STUDY)(policies.policies)
app.command("reproduce", rich_help_panel=_STUDY)(reproduce.reproduce)
app.command("widths", rich_help_panel=_STUDY)(widths.widths)
app.add_typer(traces.app, name="traces", rich_help_panel=_STUDY)
app.add_typer(measure.app, name="measure", rich_help_panel=_STUDY)
app.add_typer(history.app, name="history", rich_help_panel=_STUDY)
app.add_typer(predictor.app, name="predictor", rich_help_panel=_STUDY)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fairlead import __version__

        typer.echo(f"fairlead {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """The entry point of the `fairlead` script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets question marks, not a traceback
    app(prog_name="fairlead")
