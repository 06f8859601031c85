"""A trace file, opened: what kind of file it is, its header and its first rows. All of its rows come later (rows.py).

Nothing here knows what a column means.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import polars as pl

from fairlead.errors import InputError

BOM = b"\xef\xbb\xbf"
DELIMITERS = (",", "\t", "|")
"""What may stand between the cells of a csv file, tabs in a Gavel trace and bars in Slurm's accounts among them."""
_SAMPLE_BYTES = 1 << 16
LONGEST_LINE_BYTES = 1 << 26
_COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_BLANKS = re.compile(r"\s*")
_LINE_END = re.compile(r"\r\n|\n|\r")
_TEXT_HINT = "a trace is a csv file in UTF-8, a JSON file or a parquet file"


@dataclass(frozen=True)
class Source:
    """An opened trace file, with what its beginning tells."""

    path: Path
    kind: Literal["csv", "parquet", "json"]
    header: tuple[str, ...]
    """Column names of a csv or parquet file, keys of a JSON file's first entry."""
    delimiter: str = ","
    sample: tuple[tuple[str, ...], ...] = ()
    """The first rows of a csv below its header, to look at what is in them."""
    entries: Sequence[tuple[int, Any]] = field(default=(), repr=False)
    """The values in a JSON file, each with the line or the place in the list where it stands."""
    unit: str = "line"
    """What a row is called in messages."""
    data: bytes | None = field(default=None, repr=False)
    """All of it, where the file can be read only once (a pipe)."""

    @property
    def name(self) -> str:
        """Where it came from, for messages."""
        return str(self.path)

    def open(self) -> BinaryIO:
        """The bytes from their start."""
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise InputError(f"{self.name} can't be read: {error.strerror or error}") from error

    def sampled(self, column: str) -> list[str]:
        """The cells of one column in the first rows."""
        at = self.header.index(column)
        return [row[at].strip() for row in self.sample if len(row) == len(self.header)]


def open_source(path: Path) -> Source:
    """Open a file and find out what kind it is, by its content."""
    data = _all_of_a_pipe(path)
    start = _start_of(path, data)
    if start[:4] == b"PAR1":
        return _open_parquet(path, data)
    name, start = str(path), start.removeprefix(BOM)
    if any(start.startswith(mark) for mark in _COMPRESSED):
        raise InputError(f"{name} is not text: it is compressed", hint="decompress it first")
    first = as_text(start, name, whole=False).lstrip()
    if not first:
        raise InputError(f"{name} is empty")
    return _open_json(path, data) if first[:1] in ("[", "{") else _open_csv(path, data, start)


def as_text(data: bytes, name: str, *, whole: bool = True) -> str:
    """Bytes as text, or an error in words; without `whole` the last character may be cut in two."""
    if b"\0" in data:
        raise InputError(f"{name} is not text: it has a zero byte", hint=_TEXT_HINT)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if not whole and error.end == len(data) and error.reason == "unexpected end of data":
            return data[: error.start].decode()
        raise InputError(f"{name} is not text: {error}", hint=_TEXT_HINT) from error


def _all_of_a_pipe(path: Path) -> bytes | None:
    if path.is_dir():
        raise InputError(f"{path} is a directory, not a trace file")
    if path.is_file() or not path.exists():
        return None
    return _read(path, -1)


def _start_of(path: Path, data: bytes | None) -> bytes:
    """Enough to hold the first line that is not blank, and some rows more."""
    size = _SAMPLE_BYTES
    while True:
        start = _read(path, size) if data is None else data[:size]
        said = start.removeprefix(BOM).lstrip()
        if len(start) < size or b"\n" in said or b"\r" in said or (said and size >= LONGEST_LINE_BYTES):
            return start
        size *= 4


def _read(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError as error:
        hint = "synthetic traces are called synthetic:NAME, for example synthetic:philly"
        raise InputError(f"there is no trace file {path}", hint=hint) from error
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error


def _open_parquet(path: Path, data: bytes | None) -> Source:
    try:
        header = tuple(pl.read_parquet_schema(path if data is None else io.BytesIO(data)))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path} starts like a parquet file and can't be read as one: {error}") from error
    return Source(path, "parquet", header, unit="row", data=data)


def _open_json(path: Path, data: bytes | None) -> Source:
    """A list, an object with a list `items`, or one value after the other (JSON lines)."""
    name = str(path)
    text = as_text((_read(path, -1) if data is None else data).removeprefix(BOM), name)
    values = _json_values(name, text)
    only = values[0][1] if len(values) == 1 else None
    listed = only.get("items") if isinstance(only, dict) else only
    is_list = isinstance(listed, list)
    entries = list(enumerate(listed, start=1)) if isinstance(listed, list) else values
    if not entries or not isinstance(entries[0][1], dict) or not entries[0][1]:
        raise InputError(f"{name} holds no list of jobs: expected [{{...}}, ...], or an object in each line")
    return Source(path, "json", tuple(entries[0][1]), entries=entries, unit="entry" if is_list else "line")


def _json_values(name: str, text: str) -> list[tuple[int, Any]]:
    """The values that stand one after the other, each with the line on which it begins."""
    decoder = json.JSONDecoder()
    values: list[tuple[int, Any]] = []
    at, line, counted = 0, 1, 0
    while (at := _next_word(text, at)) < len(text):
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InputError(f"{name} line {error.lineno}: not valid JSON, {error.msg}") from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists within lists within lists
            raise InputError(f"{name}: not valid JSON, {error}") from error
        values.append((line, value))
    return values


def _next_word(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _open_csv(path: Path, data: bytes | None, start: bytes) -> Source:
    name = str(path)
    sample: list[tuple[str, ...]] = []
    lines = _LINE_END.split(as_text(start, name, whole=False))
    if len(start) >= _SAMPLE_BYTES and len(lines) > 1:
        lines.pop()  # cut short
    first = next(number for number, line in enumerate(lines) if line.strip())
    delimiter = max(DELIMITERS, key=lines[first].count)
    rows = _sample_rows(lines[first:], delimiter)
    try:
        header = next(rows)
    except csv.Error as error:  # a carriage return alone, where quotes are, ends no row
        raise InputError(f"{name} line 1: not valid csv, {error}", hint="end rows with a line feed") from error
    with suppress(csv.Error):  # whoever reads all rows says where it is
        sample.extend(row for row in rows if any(row))
    return Source(path, "csv", tuple(header), delimiter, tuple(sample), data=data)


def _sample_rows(lines: Sequence[str], delimiter: str) -> Iterator[tuple[str, ...]]:
    """The cells of some lines; only between commas a quotation mark means something."""
    if delimiter == ",":
        rows: Iterable[list[str]] = csv.reader(line + "\n" for line in lines)
    else:
        rows = (line.split(delimiter) for line in lines)
    return (tuple(cell.strip() for cell in row) for row in rows if row)
