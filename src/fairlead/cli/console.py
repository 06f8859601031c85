"""What goes where: results to stdout, everything for people to stderr.

All that a terminal gets to see passes through here, so here it is made harmless: see `fairlead.printable`. JSON does
not pass: it escapes what it must by itself, and programs want it exact.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from fairlead.printable import printable_lines

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
"""Columns of a table that goes into a file or a pipe, where rich would assume 80 and wrap."""
_STYLES = {"error": "bold red", "hint": "cyan", "note": "yellow", "report": "green", "wrote": "green"}


def say(kind: Literal["error", "hint", "note", "report", "wrote"], message: str) -> None:
    """One line to stderr, `kind: message`."""
    from rich.text import Text

    line = Text.assemble((f"{kind}:", _STYLES[kind]), " ", message)
    _console(stderr=True).print(line, soft_wrap=True)


def stdout_console() -> Console:
    """Where a table is printed."""
    console = _console()
    return console if console.is_terminal else _console(width=max(console.width, _PIPE_WIDTH))


def _console(**options: Any) -> Console:
    """One that obeys nothing in the texts that it prints: no markup, no control characters."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Harmless(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable_lines(text), style, control)

    return Harmless(highlight=False, markup=False, **options)


def print_log(pieces: Iterable[bytes], *, raw: bool = False) -> int:
    """What a job wrote, piece by piece: as it is where no terminal reads it or `raw` is wanted, else harmless.

    Gives the number of bytes.
    """
    written = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_plain = raw or not sys.stdout.isatty()
    for piece in pieces:
        if is_plain:
            sys.stdout.buffer.write(piece)
        else:
            sys.stdout.write(printable_lines(decoder.decode(piece)))
        sys.stdout.flush()
        written += len(piece)
    return written


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=_console(stderr=True))
    line = bar.add_task(title, total=None)

    def report(done: int, total: int) -> None:
        bar.start()  # only now, so that a mistake found before the run leaves no empty bar behind
        bar.update(line, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
