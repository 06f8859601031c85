"""A trace file, opened: what kind of file it is, its header, and its rows as columns with their line numbers.

Nothing here knows what a column means. A csv is checked for its number of fields with a few passes over its bytes, and
only a file with quotes goes through Python's csv module, so a million rows take a fraction of a second.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from fairlead.errors import InputError

LINE = "(line)"
"""The column, beside the file's own, that says where a row was: 1 is the header line of a csv."""
_COMMA, _NEWLINE = ord(","), ord("\n")


@dataclass(frozen=True)
class Sheet:
    """Rows as they were found: text columns of a csv, typed columns of a parquet file, plus `LINE`."""

    frame: pl.DataFrame
    ragged: tuple[tuple[int, int], ...] = ()
    """Lines with the wrong number of fields, left out of the frame: (line, fields found)."""


@dataclass(frozen=True)
class Source:
    """One opened file."""

    name: str
    kind: Literal["csv", "parquet", "json"]
    header: tuple[str, ...]
    """Column names of a csv or parquet file, keys of a JSON file's first entry."""
    data: bytes = field(default=b"", repr=False)
    entries: Sequence[Any] = field(default=(), repr=False)
    """The list in a JSON file."""

    @property
    def unit(self) -> str:
        """What a row is called in messages."""
        return {"csv": "line", "parquet": "row", "json": "entry"}[self.kind]

    def sheet(self, names: Sequence[str] | None = None) -> Sheet:
        """All rows. `names` are the columns of a csv without a header line."""
        if self.kind == "parquet":
            frame = pl.read_parquet(io.BytesIO(self.data))
            return Sheet(frame.with_columns(pl.int_range(1, frame.height + 1).alias(LINE)))
        twice = [column for column in self.header if self.header.count(column) > 1]
        if names is None and twice:
            raise InputError(f"{self.name} has the column {twice[0]!r} more than once")
        rows = _quoted_rows if b'"' in self.data else _plain_rows
        sheet = rows(self, list(names or self.header), names is None)
        if not sheet.frame.height and not sheet.ragged:
            raise InputError(f"{self.name} has a header and no rows")
        return sheet


def open_source(path: Path) -> Source:
    """Open a file and find out what kind it is, by its content."""
    data = _bytes_of(path)
    name = str(path)
    if data[:4] == b"PAR1":
        return _open_parquet(name, data)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        if b"\0" in data:
            raise ValueError("it has a zero byte")
        text = data.decode()
    except ValueError as error:
        gzip = data[:2] == b"\x1f\x8b"
        raise InputError(
            f"{name} is not text: {error}",
            hint="decompress it first" if gzip else "a trace is a csv file in UTF-8, a JSON file or a parquet file",
        ) from error
    start = text[:4096].lstrip()
    if not start and not text.strip():
        raise InputError(f"{name} is empty")
    return _open_json(name, text) if start[:1] in ("[", "{") else _open_csv(name, data)


def _bytes_of(path: Path) -> bytes:
    if path.is_dir():
        raise InputError(f"{path} is a directory, not a trace file")
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        hint = "synthetic traces are called synthetic:NAME, for example synthetic:philly"
        raise InputError(f"there is no trace file {path}", hint=hint) from error
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error
    if not data:
        raise InputError(f"{path} is empty")
    return data


def _open_parquet(name: str, data: bytes) -> Source:
    try:
        header = tuple(pl.read_parquet_schema(io.BytesIO(data)))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{name} starts like a parquet file and can't be read as one: {error}") from error
    return Source(name, "parquet", header, data)


def _open_json(name: str, text: str) -> Source:
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} line {error.lineno}: not valid JSON, {error.msg}") from error
    if not isinstance(entries, list) or not entries or not isinstance(entries[0], dict):
        raise InputError(f"{name} holds no list of jobs: expected [{{...}}, ...]")
    return Source(name, "json", tuple(entries[0]), entries=entries)


def _open_csv(name: str, data: bytes) -> Source:
    if b'"' not in data:  # else a line break may be part of a value
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    first = next(line for line in io.BytesIO(data) if line.strip()).decode().strip("\r\n")
    header = tuple(cell.strip() for cell in next(csv.reader([first])))
    return Source(name, "csv", header, data)


def _plain_rows(source: Source, names: list[str], has_header: bool) -> Sheet:
    """Rows of a csv without quotes: every comma separates and every newline ends a row."""
    text = np.frombuffer(source.data if source.data.endswith(b"\n") else source.data + b"\n", np.uint8)
    marks = np.flatnonzero((text == _COMMA) | (text == _NEWLINE))
    ending = np.flatnonzero(text[marks] == _NEWLINE)
    fields = np.diff(ending, prepend=-1)
    ends = marks[ending]
    starts = np.concatenate(([0], ends[:-1] + 1))
    kept = fields == len(names)
    odd = np.flatnonzero(~kept | (ends == starts))
    blank = [i for i in odd if not text[starts[i] : ends[i]].tobytes().strip()]
    kept[blank] = False
    ragged = np.setdiff1d(odd, blank)
    if has_header:
        header_row = int(np.setdiff1d(np.arange(len(blank) + 1), blank)[0])
        kept[header_row] = False
        ragged = ragged[ragged != header_row]
    body = text if kept.all() else text[np.repeat(kept, ends - starts + 1)]
    frame = _text_frame(body.tobytes(), names)
    lines = pl.Series(LINE, np.flatnonzero(kept) + 1, dtype=pl.Int64)
    return Sheet(frame.with_columns(lines), tuple((int(i) + 1, int(fields[i])) for i in ragged))


def _text_frame(body: bytes, names: list[str]) -> pl.DataFrame:
    if not body:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    # A header of our own, since polars takes a byte-order mark off whatever comes first.
    header = ",".join(map(str, range(len(names)))) + "\n"
    return pl.read_csv(header.encode() + body, infer_schema=False, quote_char=None, new_columns=names)


def _quoted_rows(source: Source, names: list[str], has_header: bool) -> Sheet:
    """Rows of a csv with quotes, in which a value may hold commas and line breaks."""
    reader = csv.reader(io.StringIO(source.data.decode(), newline=""), strict=True)
    kept: list[list[str]] = []
    lines: list[int] = []
    ragged: list[tuple[int, int]] = []
    line = 1
    awaiting_header = has_header
    try:
        for row in reader:
            here, line = line, reader.line_num + 1
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if awaiting_header:
                awaiting_header = False
            elif len(row) == len(names):
                kept.append(row)
                lines.append(here)
            else:
                ragged.append((here, len(row)))
    except csv.Error as error:
        raise InputError(f"{source.name} line {line}: not valid csv, {error}") from error
    columns = zip(*kept, strict=True) if kept else [()] * len(names)
    frame = pl.DataFrame(
        [pl.Series(name, list(cells), dtype=pl.String) for name, cells in zip(names, columns, strict=True)]
    )
    return Sheet(frame.with_columns(pl.Series(LINE, lines, dtype=pl.Int64)), tuple(ragged))
