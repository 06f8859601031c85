"""What goes where: results to stdout, everything for people to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
"""Columns of a table that goes into a file or a pipe, where rich would assume 80 and wrap."""
_STYLES = {"error": "bold red", "hint": "cyan", "note": "yellow", "report": "green", "wrote": "green"}


def say(kind: Literal["error", "hint", "note", "report", "wrote"], message: str) -> None:
    """One line to stderr, `kind: message`."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((f"{kind}:", _STYLES[kind]), " ", message)
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def stdout_console() -> Console:
    """Where a table is printed."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, _PIPE_WIDTH))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object to stdout, and nothing else."""
    from fairlead.report import as_json

    sys.stdout.write(as_json.dumps(value) + "\n")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of finished jobs while the block runs; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))
    line = bar.add_task(title, total=None)

    def report(done: int, total: int) -> None:
        bar.start()  # only now, so that a mistake found before the run leaves no empty bar behind
        bar.update(line, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
