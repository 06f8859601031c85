"""What the hardware counters say of applications: how busy they keep the memory and the arithmetic units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InputError
from fairlead.measure.sheet import BadCellError, Row, Sheet

_DRAM = ("dram_frac", "dram_util")
_FMA = ("fma_frac", "fma_util", "sm_frac", "sm_util")
_HINT = (
    "a csv with application, dram_frac and fma_frac (0 to 1) or dram_util and fma_util (percent); sm_ serves as fma_"
)


@dataclass(frozen=True, slots=True)
class Counters:
    """Means over a few iterations on one GPU."""

    application: str
    dram_frac: float
    fma_frac: float
    """Of the FMA pipes or, where that was not recorded, of the SMs."""


def read_counters(path: Path) -> list[Counters]:
    """A table of applications. Columns ending in `_frac` are fractions, those ending in `_util` percentages."""
    sheet = Sheet.read(path)
    name = sheet.first_of(["application"], "the application", _HINT)
    dram = sheet.first_of(_DRAM, "DRAM utilisation", _HINT)
    fma = sheet.first_of(_FMA, "FMA utilisation", _HINT)
    table: dict[str, Counters] = {}
    for row in sheet:
        if isinstance(row, tuple):
            raise InputError(f"{path} line {row[0]}{row[1]}")
        try:
            application = row.cells[name]
            if not application:
                raise BadCellError(name, "", "the name of an application")
            if application in table:
                raise BadCellError(name, application, "a name that was not there before")
            table[application] = Counters(application, _fraction(row, dram), _fraction(row, fma))
        except BadCellError as error:
            raise InputError(f"{path} line {row.line}{error}") from None
    if not table:
        raise InputError(f"{path}: no applications found", hint=_HINT)
    return list(table.values())


def _fraction(row: Row, column: str) -> float:
    if column.endswith("_util"):
        return row.number(column, "a percentage from 0 to 100", 0.0, 100.0) / 100.0
    return row.number(column, "a fraction from 0 to 1", 0.0, 1.0)


def parse_counters(text: str) -> Counters:
    """`NAME:dram=0.4:fma=0.7`."""
    name, *parts = text.split(":")
    given: Mapping[str, str] = dict(part.partition("=")[::2] for part in parts)
    if not name or set(given) != {"dram", "fma"} or len(parts) != 2:
        raise InputError(f"application {text!r}: expected NAME:dram=0.4:fma=0.7, or a csv file")
    values = []
    for key in ("dram", "fma"):
        try:
            value = float(given[key])
        except ValueError:
            value = float("nan")
        if not 0.0 <= value <= 1.0:
            raise InputError(f"application {text!r}: {key}: found {given[key]!r}, expected a fraction from 0 to 1")
        values.append(value)
    return Counters(name, *values)
