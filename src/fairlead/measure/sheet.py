"""Tables that people bring: their columns by any of their names, and complaints that say where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InputError
from fairlead.model.files import read_rows


class BadCellError(Exception):
    """One cell that makes no sense: its column, what it says and what was expected."""

    def __init__(self, column: str, found: str, expected: str) -> None:
        super().__init__(f", column {column}: found {repr(found[:60]) if found else 'nothing'}, expected {expected}")


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    line: int
    cells: dict[str, str]

    def number(self, column: str, expected: str, least: float, most: float, *, whole: bool = False) -> float:
        """A cell as a number within bounds."""
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most or (whole and value != int(value)):
            raise BadCellError(column, text, expected)
        return value


@dataclass(frozen=True)
class Sheet:
    """A csv file with a line of column names."""

    path: Path
    columns: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]

    @classmethod
    def read(cls, path: Path) -> Sheet:
        """Read a csv file whole."""
        columns, rows = read_rows(path)
        return cls(path, columns, rows)

    def first_of(self, names: Sequence[str], what: str, hint: str) -> str:
        """The column that goes by one of these names."""
        for name in names:
            if name in self.columns:
                return name
        found = ", ".join(name or "(unnamed)" for name in self.columns)
        raise InputError(f"{self.path}: no column for {what}: expected {' or '.join(names)}, found {found}", hint=hint)

    def __iter__(self) -> Iterator[Row | tuple[int, str]]:
        """Rows; in place of one with too many or too few cells, its line and the complaint."""
        for line, cells in self.rows:
            if len(cells) == len(self.columns):
                yield Row(line, dict(zip(self.columns, cells, strict=True)))
            else:
                yield line, f": found {len(cells)} cells, expected {len(self.columns)}"
