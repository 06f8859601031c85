"""Reading a file: which columns hold what, which rows are bad and which are left out, said in words people can act on.

A format lists its columns as `Field`s. `Reading.values` turns all of them into values, a chunk of rows at a time; only
where something is wrong does it look for the first bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from fairlead.errors import InputError
from fairlead.model.profile import Profile
from fairlead.traces.parsing import NO_VALUE, Parse, number, text, timestamp_s
from fairlead.traces.rows import LINE, Sheet, sheets
from fairlead.traces.rules import RULES
from fairlead.traces.source import Source
from fairlead.traces.trace import Wrap, all_differ

Step = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a file: how its cells become values, and what to say of those that don't."""

    column: str
    """Its name in the file; other names that it may have follow after bars: `submit_time|submission_time`."""
    name: str
    """Its name from here on."""
    parse: Parse
    expected: str
    good: pl.Expr = field(default_factory=lambda: pl.lit(True))
    """Which values are fine, over the values of the whole row."""
    optional: bool = False
    """Whether a cell may be empty, and the whole column absent."""

    def within(self, columns: Sequence[str]) -> Field | None:
        """The field under the name that the file has for it; None where it may be absent, and is."""
        names = self.column.split("|")
        found = next((name for name in names if name in columns), None)
        if found is None and self.optional:
            return None
        return replace(self, column=found or names[0])


def own(name: str, column: str | None = None, *, parse: Parse = text, optional: bool = False) -> Field:
    """A field that obeys the trace's own rule of that name."""
    return Field(column or name, name, parse, RULES[name].expected, RULES[name].good, optional)


def or_more(column: str, name: str, least: int, what: str, *, parse: Parse = number, optional: bool = False) -> Field:
    """A number with a lower bound: `what`, `least` or more."""
    good = (pl.col(name) >= least) & pl.col(name).cast(pl.Float64).is_finite()
    return Field(column, name, parse, f"{what}, {least} or more", good, optional)


def moment(column: str, name: str = "submit_s", *, parse: Parse = timestamp_s, optional: bool = False) -> Field:
    """A column that holds a date and time."""
    return Field(column, name, parse, "a time like 2017-10-09 07:01:55", optional=optional)


@dataclass
class Reading:
    """What has been learnt while one file is read."""

    source: Source
    skip_bad_rows: bool = False
    throughputs: str | Path | None = None
    """The table of step rates that the user names, for formats that count steps."""
    notes: list[str] = field(default_factory=list)
    skipped_rows: int = 0
    wrap: Wrap | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    _first_bad: str = ""
    _left_out: dict[str, int] = field(default_factory=dict)

    def values(
        self,
        fields: Sequence[Field],
        *,
        then: Step | None = None,
        names: Sequence[str] | None = None,
        has_header: bool = True,
    ) -> pl.DataFrame:
        """The fields that the file has, as values, without bad rows; `LINE` comes along.

        `then` is applied to every chunk of rows, so that what it leaves out is never in memory.
        """
        columns = list(names or self.source.header)
        present = [found for f in fields if (found := f.within(columns)) is not None]
        wanted = list(dict.fromkeys(f.column for f in present))
        rows = sheets(self.source, wanted, names, has_header=has_header)
        return self.values_of(rows, present, columns, then=then)

    def values_of(
        self, rows: Iterable[Sheet], fields: Sequence[Field], columns: Sequence[str] = (), *, then: Step | None = None
    ) -> pl.DataFrame:
        """The same of rows that came from anywhere; `columns` are all that the file has."""
        kept: list[pl.DataFrame] = []
        seen, first, bad = 0, None, 0
        for sheet in rows:
            frame, count, example = _checked(sheet, fields, columns, self.source.name)
            seen += sheet.frame.height + len(sheet.ragged)
            bad += count
            first = first or example
            kept.append(then(frame) if then is not None else frame)
        if not seen:
            raise InputError(f"{self.source.name} has a header and no rows")
        if first is not None:
            self.reject(bad, first)
        return _joined(kept)

    def once(self, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        """Without the rows whose `job_id` was there before; `column` is what the file calls it."""
        if all_differ(frame["job_id"]):
            return frame
        first = pl.col(LINE).first().over("job_id")
        again = frame.with_columns(first.alias("first")).filter(pl.col(LINE) != pl.col("first"))
        row = again.row(0, named=True)
        expected = f"a name that was not there before ({self.source.unit} {row['first']} has it)"
        self.reject(again.height, (row[LINE], f", column {column}: found {row['job_id']!r}, expected {expected}"))
        return frame.filter(pl.col("job_id").is_first_distinct())

    def leave_out(self, frame: pl.DataFrame, unwanted: pl.Expr, what: str) -> pl.DataFrame:
        """Without rows that are right but no use to a scheduler; a note will count them."""
        kept = frame.filter(~unwanted)
        if kept.height < frame.height:
            self._left_out[what] = self._left_out.get(what, 0) + frame.height - kept.height
        return kept

    def without_gpus(self, frame: pl.DataFrame, what: str = "jobs") -> pl.DataFrame:
        """Without rows that asked for no GPU."""
        return self.leave_out(frame, pl.col("gpus") == 0, f"{what} that asked for no GPU")

    def without_run_time(self, frame: pl.DataFrame, what: str = "jobs") -> pl.DataFrame:
        """Without rows that ended as they started; public traces have many (cancelled, failed at once)."""
        return self.leave_out(frame, pl.col("duration_s") <= 0, f"{what} that ran for no time")

    def on_its_clock(self, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        """Dates start at 0 with the first of them; a column that counts seconds keeps its own start."""
        found = next(name for name in column.split("|") if name in self.source.header)
        has_dates = any(not cell.replace(".", "", 1).isdigit() for cell in self.source.sampled(found))
        return from_zero(frame) if has_dates else frame

    def reject(self, rows: int, first: tuple[int, str]) -> None:
        """Count bad rows, or stop at the first."""
        message = f"{self.source.name} {self.source.unit} {first[0]}{first[1]}"
        if not self.skip_bad_rows:
            more = f" ({rows:,} bad rows in all)" if rows > 1 else ""
            hint = f"correct it, or have bad rows left out with --skip-bad-rows{more}"
            raise InputError(message, hint=hint)
        self.skipped_rows += rows
        self._first_bad = self._first_bad or message

    def all_notes(self) -> tuple[str, ...]:
        """Bad rows with the first as an example, rows that were left out, and what else should be known."""
        skipped = []
        if self.skipped_rows:
            rows = "1 bad row" if self.skipped_rows == 1 else f"{self.skipped_rows:,} bad rows"
            skipped = [f"skipped {rows}; the first: {self._first_bad}"]
        left_out = [f"{what}: {count:,} left out" for what, count in self._left_out.items()]
        return (*skipped, *left_out, *self.notes)


def _checked(
    sheet: Sheet, fields: Sequence[Field], columns: Sequence[str], name: str
) -> tuple[pl.DataFrame, int, tuple[int, str] | None]:
    """The good rows of a chunk as values, how many are bad, and the first of these in words."""
    found = sheet.frame
    values = pl.DataFrame([found[LINE], *(_parsed(f, found[f.column], name) for f in fields)])
    bad = pl.DataFrame([_is_bad(f, values, found[f.column]) for f in fields])
    any_bad = bad.select(pl.any_horizontal(pl.all()).alias("bad"))["bad"]
    if not any_bad.any() and not sheet.ragged:
        return values, 0, None
    examples = [
        (line, f", column {f.column}: found {_shown(cell)}, expected {f.expected}")
        for f in fields
        for line, cell in found.filter(bad[f.name]).select(LINE, f.column).head(1).rows()
    ]
    examples += [
        (line, f": found {count} fields, expected {len(columns)} ({', '.join(columns)})")
        for line, count in sheet.ragged[:1]
    ]
    return values.filter(~any_bad), int(any_bad.sum()) + len(sheet.ragged), min(examples)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames, which are emptied a column at a time: never are they in memory twice."""
    names = frames[0].columns
    return pl.DataFrame([pl.concat([frame.drop_in_place(name) for frame in frames], rechunk=True) for name in names])


def _parsed(a_field: Field, cells: pl.Series, name: str) -> pl.Series:
    try:
        values = a_field.parse(cells).alias(a_field.name)
    except pl.exceptions.PolarsError as error:  # a column of lists in a parquet file
        raise InputError(f"{name}, column {a_field.column}: expected {a_field.expected}; {error}") from error
    return values.fill_nan(None) if a_field.optional and values.dtype == pl.Float64 else values


def _is_bad(a_field: Field, values: pl.DataFrame, cells: pl.Series) -> pl.Series:
    """Whether a cell is empty and may not be, or makes no sense, or is out of bounds."""
    value = values[a_field.name]
    # A rule over two columns is null when the other one is bad, which is then the cell to complain about.
    wrong = values.select((pl.col(a_field.name).is_null() | ~a_field.good.fill_null(True)).alias(a_field.name))
    bad = wrong[a_field.name]
    if not a_field.optional or not value.null_count():
        return bad  # an empty cell has no value
    if value.null_count() == cells.null_count() or cells.dtype != pl.String:
        return bad & cells.is_not_null()
    said = cells.str.strip_chars()
    return bad & ~(cells.is_null() | (said == "") | said.is_in(list(NO_VALUE)))


def _shown(cell: object) -> str:
    """A cell as it stands in the file, cut where it is very long."""
    if cell is None or cell == "":
        return "nothing"
    shown = str(cell)
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


def from_zero(frame: pl.DataFrame) -> pl.DataFrame:
    """Moments on the calendar as seconds since the earliest submission."""
    return frame.with_columns(pl.col("submit_s") - pl.col("submit_s").min())
