"""What to say of a file that no format takes: the format that comes nearest, and why it was not taken."""

from __future__ import annotations

import difflib

from fairlead.traces.formats import FORMATS, Format
from fairlead.traces.source import Source


def nearest(source: Source) -> str:
    """A hint: the nearest format with what is missing, or what kind of file this is instead."""
    if special := _special(source):
        return special
    candidates = [known for known in FORMATS if source.kind in known.kinds and known.name != "plain"]
    best = min(candidates, key=lambda known: len(known.lacks(source)) / len(known.needs))
    if len(best.lacks(source)) == len(best.needs):
        best = FORMATS[0]
    return f"closest is {best.name!r}, {_why_not(best, source)}; known: {', '.join(f.name for f in FORMATS)}"


def _why_not(known: Format, source: Source) -> str:
    lacking = known.lacks(source)
    if not lacking:
        return f"but {known.why_not(source)}"
    return f"which also needs {', '.join(_like(column, source) for column in lacking)}"


def _like(column: str, source: Source) -> str:
    """A missing column, with the one of the file that may be meant."""
    alike = difflib.get_close_matches(column, source.header, 1, 0.8)
    return f"{column} (your {alike[0]!r}?)" if alike else column


def _special(source: Source) -> str | None:
    """What can be said of a file whatever its columns are."""
    if source.kind != "csv" or len(source.header) != 1:
        return None
    only = source.header[0]
    if "JobID" in only.split():
        return "this looks like sacct's table for people: run it again with --parsable2"
    if ";" in only:
        return "columns have to be separated by commas"
    return None
