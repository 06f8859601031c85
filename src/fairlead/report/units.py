"""Numbers as people read them: three digits and a unit that fits. Data keep their base units; only text is rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

MISSING = "–"
"""What stands where there is no number."""

Formatter = Callable[[float], str]
_Scale = Sequence[tuple[float, float, str]]

# (from this value on, the unit in base units, its name)
_DURATION: _Scale = ((0.0, 1.0, "s"), (120.0, 60.0, "min"), (2 * 3600.0, 3600.0, "h"), (72 * 3600.0, 86400.0, "d"))
_ENERGY: _Scale = (
    (0.0, 1.0, "J"),
    (3.6e3, 3.6e3, "Wh"),
    (3.6e6, 3.6e6, "kWh"),
    (3.6e9, 3.6e9, "MWh"),
    (3.6e12, 3.6e12, "GWh"),
)
_POWER: _Scale = ((0.0, 1.0, "W"), (1e3, 1e3, "kW"), (1e6, 1e6, "MW"))


def digits(value: float, significant: int = 3) -> str:
    """`1234.5` as `1,234`, `12.345` as `12.3`, `0.012345` as `0.0123`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days."""
    return _scaled(seconds, _DURATION)


def energy(joules: float) -> str:
    """Joules as watt-hours, kilowatt-hours and so on."""
    return _scaled(joules, _ENERGY)


def power(watts: float) -> str:
    """Watts as watts, kilowatts or megawatts."""
    return _scaled(watts, _POWER)


def money(usd: float) -> str:
    """Dollars, with cents below a hundred."""
    return f"${usd:,.2f}" if abs(usd) < 100 else f"${usd:,.0f}"


def fraction(value: float) -> str:
    """A part of one, in percent."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """A whole number with separators."""
    return f"{value:,.0f}"


def ratio(value: float) -> str:
    """A number without a unit."""
    return digits(value)


def hours(value: float) -> str:
    """GPU-hours, which stay hours however many they are."""
    return f"{digits(value)} h"


def text(value: object, formatter: Formatter) -> str:
    """The formatted number, or a dash where there is none to show."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return MISSING
    return formatter(float(value))


def axis_scale(largest: float, formatter: Formatter) -> tuple[float, str]:
    """What to divide an axis by, and its unit, so that its largest value reads well."""
    scale = {duration: _DURATION, energy: _ENERGY, power: _POWER}[formatter]
    return _fitting(largest, scale)


def _fitting(value: float, scale: _Scale) -> tuple[float, str]:
    for least, unit, name in reversed(scale):
        if abs(value) >= least:
            return unit, name
    return scale[0][1:]


def _scaled(value: float, scale: _Scale) -> str:
    unit, name = _fitting(value, scale)
    return f"{digits(value / unit)} {name}"
