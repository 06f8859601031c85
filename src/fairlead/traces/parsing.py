"""From the cells of a column, as they stand in a file, to values; null where a cell makes no sense.

Cells come a chunk at a time, so each function can look at what is there before it chooses a way: a column of plain
whole numbers takes one cast, and only the cells that this leaves over are tried in other spellings.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

Parse = Callable[[pl.Series], pl.Series]

NO_VALUE = ("None", "none", "NaT", "nan", "NaN", "null", "NULL", "N/A", "NA", "Unknown", "-")
"""How programs write an empty cell, where a cell may be empty."""
_CALENDAR = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")
_ZONED = ("%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M")
_MOST_EXACT_WHOLE = 2.0**53
"""Beyond it a float no longer says which whole number it was."""


def text(cells: pl.Series) -> pl.Series:
    """Words as they are; none, or only blanks, is null."""
    words = cells if cells.dtype == pl.String else cells.cast(pl.String)
    blank = words.str.strip_chars().str.len_bytes() == 0
    return words.set(blank, None) if blank.any() else words


def number(cells: pl.Series) -> pl.Series:
    """A number, whole or not."""
    if cells.dtype != pl.String:
        return cells.cast(pl.Float64, strict=False)
    found = cells.cast(pl.Float64, strict=False)
    if found.null_count() == cells.null_count():
        return found
    return cells.str.strip_chars().cast(pl.Float64, strict=False)


def whole(cells: pl.Series) -> pl.Series:
    """A whole number; `2.0` is one, `2.5` is not."""
    if cells.dtype.is_integer():
        return cells.cast(pl.Int64, strict=False)
    if cells.dtype == pl.String:
        direct = cells.cast(pl.Int64, strict=False)
        if direct.null_count() == cells.null_count():
            return direct
        direct = cells.str.strip_chars().cast(pl.Int64, strict=False)
        return direct.fill_null(_whole_floats(number(cells)))
    return _whole_floats(number(cells))


def _whole_floats(values: pl.Series) -> pl.Series:
    exact = (values == values.floor()) & (values.abs() < _MOST_EXACT_WHOLE)
    return values.set(~exact.fill_null(False), None).cast(pl.Int64, strict=False)


def timestamp_s(cells: pl.Series) -> pl.Series:
    """Seconds since 1970 of `2017-10-09 07:01:55` or `2017-10-09T07:01:55Z`; a zone like `+08:00` may follow."""
    words = cells if cells.dtype == pl.String else cells.cast(pl.String)
    found = _calendar_s(words, _CALENDAR[0])
    if found.null_count() == words.null_count():
        return found
    words = words.str.strip_chars()
    found = found.fill_null(_calendar_s(words, _CALENDAR[1]))
    if found.null_count() == words.null_count():
        return found
    # What is left over, in one spelling: a blank for the T, +00:00 for the Z.
    odd = found.is_null() & words.is_not_null()
    spelt = words.filter(odd).str.replace("T", " ", literal=True).str.replace(r"\s*Z$", "+00:00")
    spelt = spelt.str.replace(r"\s+([+-]\d\d)", "$1").str.replace(r"([+-]\d\d)$", "$1:00")
    left = pl.Series([None] * spelt.len(), dtype=pl.Float64)
    for form in _ZONED:
        left = left.fill_null(_calendar_s(spelt, form))
    return found.scatter(odd.arg_true(), left)


def _calendar_s(words: pl.Series, form: str) -> pl.Series:
    moments = words.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False, exact=True)
    return moments.dt.epoch("us").cast(pl.Float64) / 1e6


def timestamp_or_s(cells: pl.Series) -> pl.Series:
    """A date and time, or a number of seconds."""
    seconds = number(cells)
    if seconds.null_count() == cells.null_count():
        return seconds
    return seconds.fill_null(timestamp_s(cells))


def span_s(cells: pl.Series) -> pl.Series:
    """Seconds of `D-HH:MM:SS`, as Slurm writes them; days, hours and fractions may be absent."""
    words = cells if cells.dtype == pl.String else cells.cast(pl.String)
    parts = words.str.strip_chars().str.extract_groups(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$").struct.unnest()
    days, hours, minutes, seconds = (parts[name].cast(pl.Float64) for name in parts.columns)
    return days.fill_null(0.0) * 86400.0 + hours.fill_null(0.0) * 3600.0 + minutes * 60.0 + seconds
