"""`fairlead traces`: look at a trace, make one, turn one format into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.traces import Trace

app = typer.Typer(no_args_is_help=True, help="Describe, generate and convert traces.")

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="A file, or synthetic:NAME.")]


@app.command("describe")
def describe(
    trace: TraceArgument,
    format: options.FormatOption = None,
    skip_bad_rows: options.SkipOption = False,
    throughputs: options.ThroughputsOption = None,
    json: options.JsonOption = False,
) -> None:
    """Say what is in a trace: jobs, sizes, durations, load."""
    from fairlead import traces

    read = options.read_trace(trace, format=format, skip_bad_rows=skip_bad_rows, throughputs=throughputs)
    about = traces.describe(read)
    if json:
        print_json(about)
    else:
        _print_table(about)


@app.command("generate")
def generate(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="NAME[:option=value...] of a generator.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it: .csv or .parquet.")],
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="How many jobs.")] = None,
    seed: options.SeedOption = 0,
    json: options.JsonOption = False,
) -> None:
    """Make a synthetic trace."""
    from fairlead import traces

    made = traces.generate(spec.removeprefix("synthetic:"), jobs=jobs, seed=seed)
    _save(made, out, json)


@app.command("convert")
def convert(
    trace: TraceArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write it: .csv or .parquet.")],
    format: options.FormatOption = None,
    skip_bad_rows: options.SkipOption = False,
    throughputs: options.ThroughputsOption = None,
    json: options.JsonOption = False,
) -> None:
    """Rewrite a trace of any known format as Fairlead's own csv or parquet."""
    if out.exists() and Path(trace).exists() and out.samefile(trace):
        raise InputError(f"{out} is both the trace to read and the file to write", hint="give another name")
    read = options.read_trace(trace, format=format, skip_bad_rows=skip_bad_rows, throughputs=throughputs)
    _save(read, out, json)


def _save(trace: Trace, out: Path, json: bool) -> None:
    from fairlead import traces

    try:
        traces.save(trace, out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    if json:
        print_json({"path": out, "jobs": len(trace), "skipped_rows": trace.skipped_rows, "notes": trace.notes})
    say("wrote", f"{out} ({len(trace):,} jobs)")


def _print_table(about: Mapping[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("name", style="dim")
    table.add_column("value")
    for name, value in _lines(about):
        table.add_row(Text(name), Text(value))
    stdout_console().print(table)


def _lines(about: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as dotted names."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{within}{name}.")
        elif isinstance(value, float):
            yield f"{within}{name}", f"{value:,.6g}"
        elif isinstance(value, list | tuple):
            yield f"{within}{name}", ", ".join(map(str, value)) or "none"
        elif value is None:
            yield f"{within}{name}", "–"
        else:
            yield f"{within}{name}", str(value)
