"""The `fairlead` command: its groups, and how every error ends.

A mistake of the user's is `error:` and `hint:` on stderr and status 2, a failed run status 1, an interrupt 130. A
traceback is only ever a bug of ours.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead.cli import compare, doctor, history, measure, policies, predictor, reproduce, simulate, traces, widths
from fairlead.cli.console import say
from fairlead.errors import FairleadError


class Group(TyperGroup):
    """A command group that knows the line it was called with, and ends errors the way this module says."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Keep the command line for the report, which tells how to get the same result again."""
        line = shlex.join(["fairlead", *args])
        context = super().make_context(info_name, args, parent, **extra)
        context.obj = line
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
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
            raise typer.Exit(1) from error
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
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("policies")(policies.policies)
app.command("reproduce")(reproduce.reproduce)
app.command("widths")(widths.widths)
app.command("doctor")(doctor.doctor)
app.add_typer(traces.app, name="traces")
app.add_typer(measure.app, name="measure")
app.add_typer(history.app, name="history")
app.add_typer(predictor.app, name="predictor")


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
