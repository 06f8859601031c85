from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.report import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.5, "0.500 s"), (59.94, "59.9 s"), (180.0, "3.00 min"), (9000.0, "2.50 h"), (864_000.0, "10.0 d")],
)
def test_a_duration_gets_the_unit_that_fits(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"), [(10.0, "10.0 J"), (7.2e3, "2.00 Wh"), (7.2e6, "2.00 kWh"), (3.4 * 3.6e9, "3.40 MWh")]
)
def test_energy_is_told_in_watt_hours(joules: float, text: str) -> None:
    assert units.energy(joules) == text


def test_money_has_cents_only_while_they_matter() -> None:
    assert units.money(12.345) == "$12.35" or units.money(12.345) == "$12.34"
    assert units.money(12_345.6) == "$12,346"


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "text"])
def test_what_is_no_number_is_a_dash(value: object) -> None:
    assert units.text(value, units.duration) == units.MISSING


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_text_is_within_half_a_percent_of_the_number(value: float) -> None:
    assert float(units.digits(value).replace(",", "")) == pytest.approx(value, rel=5.1e-3)
