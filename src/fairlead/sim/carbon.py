"""Carbon: what the energy of a run emitted, from the grid's intensity, constant or by the hour."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fairlead.errors import InputError
from fairlead.model.files import read_text

_HINT = "a number of grams of CO2 per kWh, or a csv with the columns hour,g_per_kwh (hours 0, 1, 2, ... of the run)"


@dataclass(frozen=True)
class Carbon:
    """Grams of CO2 per kWh, hour by hour from the start of the run; the series repeats when it ends."""

    g_per_kwh: tuple[float, ...]

    def emitted_kg(self, timeline: pl.DataFrame) -> float:
        """Power times intensity over the run. Power is the mean of each interval of the timeline."""
        if len(self.g_per_kwh) == 1:
            kwh = sum((end - start) * watts for start, end, watts in _rows(timeline)) / 3.6e6
            return kwh * self.g_per_kwh[0] / 1000.0
        grams = 0.0
        for start_s, end_s, watts in _rows(timeline):
            at_s = start_s
            while at_s < end_s:
                hour = int(at_s // 3600.0)
                until_s = min(end_s, 3600.0 * (hour + 1))
                grams += (until_s - at_s) * watts / 3.6e6 * self.g_per_kwh[hour % len(self.g_per_kwh)]
                at_s = until_s
        return grams / 1000.0


def parse_carbon(text: str) -> Carbon:
    """`400`, or the path of an hourly file."""
    try:
        constant: float | None = float(text)
    except ValueError:
        constant = None
    if constant is not None:
        return Carbon((_checked(constant, f"carbon {text!r}"),))
    path = Path(text)
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except csv.Error as error:
        raise InputError(f"{path} is no csv file: {error}", hint=_HINT) from None
    values = []
    for line, row in enumerate(rows, start=2):
        if row.get("hour") != str(line - 2) or row.get("g_per_kwh") is None:
            raise InputError(f"{path} line {line}: expected hour {line - 2} and its g_per_kwh", hint=_HINT)
        try:
            values.append(_checked(float(row["g_per_kwh"]), f"{path} line {line}"))
        except ValueError:
            raise InputError(f"{path} line {line}, column g_per_kwh: found {row['g_per_kwh']!r}", hint=_HINT) from None
    if not values:
        raise InputError(f"{path}: no hours found", hint=_HINT)
    return Carbon(tuple(values))


def _checked(value: float, where: str) -> float:
    if not 0.0 <= value < float("inf"):
        raise InputError(f"{where}: found {value:g}, expected 0 or more grams of CO2 per kWh", hint=_HINT)
    return value


def _rows(timeline: pl.DataFrame) -> list[tuple[float, float, float]]:
    return timeline.select("start_s", "end_s", "power_w").rows()
