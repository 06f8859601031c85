"""`load`: a trace from a file of any known format, or from a generator."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fairlead.errors import InputError, did_you_mean
from fairlead.traces.clock import on_own_clock
from fairlead.traces.formats import FORMATS, Format
from fairlead.traces.nearest import nearest
from fairlead.traces.reading import Reading
from fairlead.traces.source import Source, open_source
from fairlead.traces.synthetic import generate
from fairlead.traces.trace import Trace

SYNTHETIC = "synthetic:"


def load(
    path: str | Path,
    *,
    format: str | None = None,
    skip_bad_rows: bool = False,
    wrap: bool = True,
    throughputs: str | Path | None = None,
) -> Trace:
    """Read a trace. The format is found by the file's content unless it is named.

    `synthetic:NAME[:option=value...]` is a path too: see `generate`. A bad row is an error unless `skip_bad_rows`, in
    which case bad rows are dropped and counted. `wrap=False` has a trace end with its last row where its format says
    that arrivals go on. `throughputs` is the table of step rates that belongs to a Gavel trace.
    """
    if str(path).startswith(SYNTHETIC):
        return generate(str(path).removeprefix(SYNTHETIC))
    named = None if format is None else format_named(format)
    source = open_source(Path(path))
    chosen = named or _recognised(source)
    _insist(chosen, source)
    reading = Reading(source, skip_bad_rows, throughputs)
    try:
        frame = reading.once(chosen.read(reading), chosen.id_column)
    except pl.exceptions.PolarsError as error:
        # A parquet file with a damaged body, a column of lists: nothing a rule can name.
        raise InputError(f"{source.name} can't be read as {chosen.name!r}: {error}") from error
    if frame.height:
        frame, about_clock = on_own_clock(frame)
        reading.notes.extend(about_clock)
    if wrap and reading.wrap is not None:
        reading.notes.append(
            "durations are iteration counts, as in PAL's artifact (if yours are seconds: --format plain); after its "
            f"last row the trace starts again from its first, {reading.wrap.rate_per_h:g} jobs per hour at random "
            f"times (seed {reading.wrap.seed})"
        )
    if "gpu_frac" in frame.columns and (fractional := int((frame["gpu_frac"] < 1.0).sum())):
        share = fractional / frame.height
        reading.notes.append(f"jobs that ask for a part of a GPU: {fractional:,} ({share:.1%}); they share GPUs")
    notes = reading.all_notes()
    if not frame.height:
        raise InputError(f"{source.name} has no jobs left to schedule", hint="; ".join(notes) or None)
    return Trace.from_columns(
        frame,
        names_checked=True,
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
    raise InputError(f"{source.name} has no known trace format; {_found(source)}", hint=nearest(source))


def _insist(chosen: Format, source: Source) -> None:
    """A format that the user named has to fit."""
    if chosen.fits(source):
        return
    if source.kind not in chosen.kinds:
        kinds = " or ".join(chosen.kinds)
        raise InputError(f"{source.name} is a {source.kind} file; a trace in format {chosen.name!r} is {kinds}")
    lacking = ", ".join(chosen.lacks(source))
    raise InputError(f"{source.name} is not in format {chosen.name!r}: it lacks {lacking}; {_found(source)}")


def _found(source: Source) -> str:
    shown = ", ".join(column or "(no name)" for column in source.header[:20])
    return f"{'keys' if source.kind == 'json' else 'columns'} found: {shown or 'none'}"
