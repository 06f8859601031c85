"""The rows of a file, a chunk at a time, as columns of text with their line numbers.

A file of millions of rows is never in memory whole: each chunk is turned into values before the next is read. The
number of cells in each row is checked with a few passes over the bytes; only from the first quotation mark on does a
csv go through Python's csv module, where a value may hold commas and line breaks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from fairlead.errors import InputError
from fairlead.traces.source import BOM, LONGEST_LINE_BYTES, Source, as_text

LINE = "(line)"
"""The column, beside the file's own, that says where a row was: 1 is the header line of a csv."""
_CHUNK_BYTES = 8 << 20
_CHUNK_ROWS = 1 << 16
_NEWLINE = ord("\n")


@dataclass(frozen=True)
class Sheet:
    """Some rows as they were found: text columns of a csv, typed columns of a parquet file, plus `LINE`."""

    frame: pl.DataFrame
    ragged: tuple[tuple[int, int], ...] = ()
    """Lines with the wrong number of cells, left out of the frame: (line, cells found)."""


def sheets(
    source: Source, wanted: Sequence[str], names: Sequence[str] | None = None, *, has_header: bool = True
) -> Iterator[Sheet]:
    """All rows of a csv or parquet file, with the columns `wanted`; `names` are what its columns are called here."""
    if source.kind == "parquet":
        frame = pl.read_parquet(source.path if source.data is None else io.BytesIO(source.data), columns=list(wanted))
        yield Sheet(frame.with_columns(pl.int_range(1, frame.height + 1, dtype=pl.UInt32).alias(LINE)))
        return
    columns = list(names or source.header)
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise InputError(f"{source.name} has the column {twice[0]!r} more than once")
    yield from _Csv(source, columns, [columns.index(name) for name in wanted], has_header).sheets()


class _Csv:
    """One pass over a csv file."""

    def __init__(self, source: Source, columns: list[str], wanted: list[int], has_header: bool) -> None:
        self._source = source
        self._columns = columns
        self._wanted = wanted
        self._awaits_header = has_header
        self._line = 1

    def sheets(self) -> Iterator[Sheet]:
        """Chunks without quotation marks quickly; from the first with one on, row by row."""
        quotes = self._source.delimiter == ","
        with self._source.open() as file:
            for offset, block in _blocks(file, self._source.name, quotes=quotes):
                if quotes and b'"' in block:
                    file.seek(offset)
                    yield from self._quoted(file)
                    return
                yield self._plain(block)

    def _plain(self, block: bytes) -> Sheet:
        """Rows without quotation marks: every delimiter separates and every newline ends a row."""
        text: npt.NDArray[np.uint8] = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        starts = np.concatenate(([0], ends[:-1] + 1))
        marks = (text == ord(self._source.delimiter)).view(np.uint8)
        cells = np.add.reduceat(marks, starts, dtype=np.int32) + 1
        lengths = ends - starts
        kept = cells == len(self._columns)
        odd = np.flatnonzero(~kept | (lengths < cells))  # or nothing but delimiters
        blank = [i for i in odd if not block[starts[i] : ends[i]].strip(b", \t|")]
        kept[blank] = False
        ragged = np.setdiff1d(odd[~kept[odd]], blank)
        if self._awaits_header and len(blank) < len(ends):
            self._awaits_header = False
            header = int(np.setdiff1d(np.arange(len(blank) + 1), blank)[0])
            kept[header] = False
            ragged = ragged[ragged != header]
        body = block if kept.all() else text[np.repeat(kept, lengths + 1)].tobytes()
        lines = pl.Series(LINE, np.flatnonzero(kept) + self._line, dtype=pl.UInt32)
        found = tuple((int(i) + self._line, int(cells[i])) for i in ragged)
        self._line += len(ends)
        return Sheet(self._text_frame(body).with_columns(lines), found)

    def _text_frame(self, body: bytes) -> pl.DataFrame:
        numbers = [str(i) for i in self._wanted]
        renamed = {str(i): self._columns[i] for i in self._wanted}
        if not body:
            return pl.DataFrame(schema=dict.fromkeys(renamed.values(), pl.String))
        delimiter = self._source.delimiter
        # A header of our own, since polars takes a byte-order mark off whatever comes first.
        header = delimiter.join(map(str, range(len(self._columns)))) + "\n"
        frame = pl.read_csv(
            header.encode() + body, separator=delimiter, columns=numbers, infer_schema=False, quote_char=None
        )
        return frame.select(numbers).rename(renamed)

    def _quoted(self, file: BinaryIO) -> Iterator[Sheet]:
        """Rows in which a value may hold commas and line breaks."""
        reader = csv.reader(_lines(file, self._source.name), strict=True)
        base, line = self._line - 1, self._line
        kept: list[list[str]] = []
        lines: list[int] = []
        ragged: list[tuple[int, int]] = []
        try:
            for row in reader:
                here, line = line, base + reader.line_num + 1
                if not any(cell.strip() for cell in row):
                    continue
                if self._awaits_header:
                    self._awaits_header = False
                elif len(row) == len(self._columns):
                    kept.append([row[i] for i in self._wanted])
                    lines.append(here)
                else:
                    ragged.append((here, len(row)))
                if len(kept) >= _CHUNK_ROWS:
                    yield self._sheet_of(kept, lines, ragged)
                    kept, lines, ragged = [], [], []
        except csv.Error as error:
            raise InputError(f"{self._source.name} line {line}: not valid csv, {error}") from error
        yield self._sheet_of(kept, lines, ragged)

    def _sheet_of(self, rows: list[list[str]], lines: list[int], ragged: list[tuple[int, int]]) -> Sheet:
        names = [self._columns[i] for i in self._wanted]
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        cells = [pl.Series(name, list(c), dtype=pl.String) for name, c in zip(names, columns, strict=True)]
        return Sheet(pl.DataFrame([*cells, pl.Series(LINE, lines, dtype=pl.UInt32)]), tuple(ragged))


def _blocks(file: BinaryIO, name: str, *, quotes: bool) -> Iterator[tuple[int, bytes]]:
    """Whole lines of some megabytes, each block with its place in the file; every line ends in one newline."""
    offset = len(BOM) if file.read(len(BOM)) == BOM else 0
    file.seek(offset)
    rest, alone = b"", False
    while True:
        more = file.read(_CHUNK_BYTES)
        block = rest + more
        if not block:
            return
        cut = _last_line_end(block) if more else len(block)
        if not cut and len(block) > LONGEST_LINE_BYTES:
            raise InputError(f"{name} has a line of more than {LONGEST_LINE_BYTES >> 20} MiB; that is no trace")
        if cut:
            lines = block[:cut]
            if not lines.isascii() or b"\0" in lines:
                as_text(lines, name)
            quoted = quotes and b'"' in lines  # a line break may be part of a value
            if quoted and alone:
                said = "rows end with a carriage return alone, which between quotation marks ends no row"
                raise InputError(f"{name}: not valid csv, {said}", hint="end rows with a line feed")
            alone = alone or (b"\r" in lines and b"\n" not in lines)
            yield offset, lines if quoted else _with_newlines(lines)
        offset, rest = offset + cut, block[cut:]


def _last_line_end(block: bytes) -> int:
    """Just behind the last line; a carriage return at the very end may be half of a line end."""
    return block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, len(block) - 1) + 1


def _with_newlines(lines: bytes) -> bytes:
    if b"\r" in lines:
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return lines if lines.endswith(b"\n") else lines + b"\n"


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Lines as they stand, up to their newline: within quotation marks a carriage return is part of a value."""
    while line := file.readline(LONGEST_LINE_BYTES):
        yield as_text(line, name)
