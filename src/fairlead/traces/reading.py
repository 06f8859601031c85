"""Reading a file: which columns hold what, which rows are bad and which are left out, said in words people can act on.

A format lists its columns as `Field`s. `Reading.values` turns all of them into numbers at once; only when something is
wrong does it look for the first bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from fairlead.errors import InputError
from fairlead.model.profile import Profile
from fairlead.traces.rules import RULES
from fairlead.traces.source import LINE, Sheet, Source
from fairlead.traces.trace import Wrap

Parse = Callable[[pl.Expr, pl.DataType], pl.Expr]
"""From a column as found, with its type, to values; null where it makes no sense."""
_FOUND = "found in the file: "


def text(cells: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Words as they are; none, or only blanks, is null."""
    words = cells if dtype == pl.String else cells.cast(pl.String)
    return pl.when(words.str.strip_chars().str.len_bytes() > 0).then(words)


def number(cells: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A number, whole or not."""
    return (cells.str.strip_chars() if dtype == pl.String else cells).cast(pl.Float64, strict=False)


def whole(cells: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A whole number; `2.0` is one, `2.5` is not."""
    as_float = number(cells, dtype)
    # Beyond 2^53 a float no longer says which whole number it was.
    by_float = pl.when((as_float == as_float.floor()) & (as_float.abs() < 2.0**53)).then(as_float)
    if dtype.is_integer():
        return cells.cast(pl.Int64, strict=False)
    if dtype == pl.String:
        direct = cells.str.strip_chars().cast(pl.Int64, strict=False)
        return pl.coalesce(direct, by_float.otherwise(None).cast(pl.Int64, strict=False))
    return by_float.otherwise(None).cast(pl.Int64, strict=False)


def timestamp_s(cells: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Seconds since 1970 of `2017-10-09 07:01:55`, which may end in a zone like `+08:00`."""
    words = text(cells, dtype).str.strip_chars()
    zoned = words.str.to_datetime("%Y-%m-%d %H:%M:%S%z", time_unit="us", time_zone="UTC", strict=False)
    plain = words.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", time_zone="UTC", strict=False)
    return pl.coalesce(plain, zoned).dt.epoch("us").cast(pl.Float64) / 1e6


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a file: how its cells become values, and what to say of those that don't."""

    column: str
    """Its name in the file."""
    name: str
    """Its name from here on."""
    parse: Parse
    expected: str
    good: pl.Expr = field(default_factory=lambda: pl.lit(True))
    """Which values are fine, over the values of the whole row."""
    optional: bool = False
    """Whether a cell may be empty, and the whole column absent."""


def own(name: str, column: str | None = None, *, parse: Parse = text, optional: bool = False) -> Field:
    """A field that obeys the trace's own rule of that name."""
    return Field(column or name, name, parse, RULES[name].expected, RULES[name].good, optional)


def or_more(column: str, name: str, least: int, what: str, *, parse: Parse = number, optional: bool = False) -> Field:
    """A number with a lower bound: `what`, `least` or more."""
    good = (pl.col(name) >= least) & pl.col(name).cast(pl.Float64).is_finite()
    return Field(column, name, parse, f"{what}, {least} or more", good, optional)


def moment(column: str, name: str = "submit_s", *, optional: bool = False) -> Field:
    """A date and time."""
    return Field(column, name, timestamp_s, "a time like 2017-10-09 07:01:55", optional=optional)


@dataclass
class Reading:
    """What has been learnt while one file is read."""

    source: Source
    skip_bad_rows: bool = False
    notes: list[str] = field(default_factory=list)
    skipped_rows: int = 0
    wrap: Wrap | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    _first_bad: str = ""

    def values(self, sheet: Sheet, fields: Sequence[Field]) -> pl.DataFrame:
        """The fields that the file has, as values, without bad rows; `LINE` comes along."""
        schema = sheet.frame.schema
        fields = [f for f in fields if f.column in schema or not f.optional]
        found = sheet.frame.select(pl.col(LINE), *(pl.col(f.column).alias(_FOUND + f.name) for f in fields))
        values = found.with_columns(f.parse(pl.col(_FOUND + f.name), schema[f.column]).alias(f.name) for f in fields)
        bad = values.select(_is_bad(f, schema[f.column]).alias(f.name) for f in fields)
        any_bad = bad.select(pl.any_horizontal(pl.all()).alias("bad"))["bad"]
        if any_bad.any() or sheet.ragged:
            examples = [
                (line, f", column {f.column}: found {_shown(cell)}, expected {f.expected}")
                for f in fields
                for line, cell in values.filter(bad[f.name]).select(LINE, _FOUND + f.name).head(1).rows()
            ]
            columns = [c for c in sheet.frame.columns if c != LINE]
            examples += [
                (line, f": found {count} fields, expected {len(columns)} ({', '.join(columns)})")
                for line, count in sheet.ragged[:1]
            ]
            self._reject(int(any_bad.sum()) + len(sheet.ragged), min(examples))
        return values.filter(~any_bad).select(LINE, *(f.name for f in fields))

    def once(self, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        """Without the rows whose `job_id` was there before; `column` is what the file calls it."""
        if frame["job_id"].n_unique() == frame.height:
            return frame
        first = pl.col(LINE).first().over("job_id")
        again = frame.with_columns(first.alias("first")).filter(pl.col(LINE) != pl.col("first"))
        row = again.row(0, named=True)
        expected = f"a name that was not there before ({self.source.unit} {row['first']} has it)"
        self._reject(again.height, (row[LINE], f", column {column}: found {row['job_id']!r}, expected {expected}"))
        return frame.filter(pl.col("job_id").is_first_distinct())

    def leave_out(self, frame: pl.DataFrame, unwanted: pl.Expr, what: str) -> pl.DataFrame:
        """Without rows that are right but no use to a scheduler, with a note that counts them."""
        kept = frame.filter(~unwanted)
        if kept.height < frame.height:
            self.notes.append(f"{what}: {frame.height - kept.height:,} left out")
        return kept

    def without_gpus(self, frame: pl.DataFrame, what: str = "jobs") -> pl.DataFrame:
        """Without rows that asked for no GPU."""
        return self.leave_out(frame, pl.col("gpus") == 0, f"{what} that asked for no GPU")

    def without_run_time(self, frame: pl.DataFrame, what: str = "jobs") -> pl.DataFrame:
        """Without rows that ended as they started; public traces have many (cancelled, failed at once)."""
        return self.leave_out(frame, pl.col("duration_s") <= 0, f"{what} that ran for no time")

    def _reject(self, rows: int, first: tuple[int, str]) -> None:
        """Count bad rows, or stop at the first."""
        message = f"{self.source.name} {self.source.unit} {first[0]}{first[1]}"
        if not self.skip_bad_rows:
            more = f" ({rows:,} bad rows in all)" if rows > 1 else ""
            hint = f"correct it, or have bad rows left out with --skip-bad-rows{more}"
            raise InputError(message, hint=hint)
        self.skipped_rows += rows
        self._first_bad = self._first_bad or message

    def bad_row_notes(self) -> list[str]:
        """How many bad rows were skipped, with the first as an example."""
        if not self.skipped_rows:
            return []
        rows = "1 bad row" if self.skipped_rows == 1 else f"{self.skipped_rows:,} bad rows"
        return [f"skipped {rows}; the first: {self._first_bad}"]


def _is_bad(a_field: Field, dtype: pl.DataType) -> pl.Expr:
    """Whether a cell is empty and may not be, or makes no sense, or is out of bounds."""
    cells = pl.col(_FOUND + a_field.name)
    blank = cells.is_null() | (cells.str.strip_chars() == "") if dtype == pl.String else cells.is_null()
    # A rule over two columns is null when the other one is bad, which is then the cell to complain about.
    wrong = pl.col(a_field.name).is_null() | ~a_field.good.fill_null(True)
    return ~blank & wrong if a_field.optional else blank | wrong


def _shown(cell: object) -> str:
    """A cell as it stands in the file, cut where it is very long."""
    if cell is None or cell == "":
        return "nothing"
    shown = str(cell)
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


def from_zero(frame: pl.DataFrame) -> pl.DataFrame:
    """Moments on the calendar as seconds since the earliest submission."""
    return frame.with_columns(pl.col("submit_s") - pl.col("submit_s").min())
