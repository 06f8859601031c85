"""`load`: a trace from a file of any known format, or from a generator."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fairlead.errors import InputError, did_you_mean
from fairlead.traces.formats import FORMATS, Format
from fairlead.traces.reading import Reading
from fairlead.traces.source import Source, open_source
from fairlead.traces.synthetic import generate
from fairlead.traces.trace import Trace

SYNTHETIC = "synthetic:"


def load(path: str | Path, *, format: str | None = None, skip_bad_rows: bool = False, wrap: bool = True) -> Trace:
    """Read a trace. The format is found by the file's content unless it is named.

    `synthetic:NAME[:option=value...]` is a path too: see `generate`. A bad row is an error unless `skip_bad_rows`, in
    which case bad rows are dropped and counted. `wrap=False` has a trace end with its last row where its format says
    that arrivals go on.
    """
    if str(path).startswith(SYNTHETIC):
        return generate(str(path).removeprefix(SYNTHETIC))
    named = None if format is None else format_named(format)
    source = open_source(Path(path))
    chosen = named or _recognised(source)
    _insist(chosen, source)
    reading = Reading(source, skip_bad_rows)
    try:
        frame = reading.once(chosen.read(reading), chosen.id_column)
    except pl.exceptions.PolarsError as error:
        # A parquet file with a damaged body, a column of lists: nothing a rule can name.
        raise InputError(f"{source.name} can't be read as {chosen.name!r}: {error}") from error
    if wrap and reading.wrap is not None:
        reading.notes.append(
            f"after its last row the trace starts again from its first, {reading.wrap.rate_per_h:g} jobs per hour at "
            f"random times (seed {reading.wrap.seed})"
        )
    notes = (*reading.bad_row_notes(), *reading.notes)
    if not frame.height:
        raise InputError(f"{source.name} has no jobs left to schedule", hint="; ".join(notes) or None)
    return Trace.from_columns(
        frame,
        format=chosen.name,
        source=source.name,
        profiles=reading.profiles,
        wrap=reading.wrap if wrap else None,
        notes=notes,
        skipped_rows=reading.skipped_rows,
    )


def format_named(name: str) -> Format:
    """The format of that name."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise InputError(f"unknown trace format {name!r}", hint=did_you_mean(name, [f.name for f in FORMATS]))


def _recognised(source: Source) -> Format:
    for known in FORMATS:
        if known.recognises(source):
            return known
    raise InputError(f"{source.name} has no known trace format; {_found(source)}", hint=_closest(source))


def _insist(chosen: Format, source: Source) -> None:
    """A format that the user named has to fit."""
    if chosen.recognises(source):
        return
    if source.kind not in chosen.kinds:
        kinds = " or ".join(chosen.kinds)
        raise InputError(f"{source.name} is a {source.kind} file; a trace in format {chosen.name!r} is {kinds}")
    lacking = ", ".join(chosen.lacks(source))
    raise InputError(f"{source.name} is not in format {chosen.name!r}: it lacks {lacking}; {_found(source)}")


def _found(source: Source) -> str:
    shown = ", ".join(column or "(no name)" for column in source.header[:20])
    return f"{'keys' if source.kind == 'json' else 'columns'} found: {shown or 'none'}"


def _closest(source: Source) -> str:
    """The format whose columns are there for the largest part, and what it still lacks."""
    candidates = [known for known in FORMATS if source.kind in known.kinds]
    best = min(candidates, key=lambda known: len(known.lacks(source)) / len(known.needs))
    lacking = best.lacks(source)
    if len(lacking) == len(best.needs):
        if len(source.header) == 1 and any(mark in source.header[0] for mark in ";\t|"):
            return "columns have to be separated by commas"
        best, lacking = FORMATS[0], list(FORMATS[0].needs)
    known = ", ".join(f.name for f in FORMATS)
    return f"closest is {best.name!r}, which also needs {', '.join(lacking)}; known: {known}"
