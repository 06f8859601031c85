"""What a rented node costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Rental


@pytest.mark.parametrize(
    ("rental", "held_s", "billed_s"),
    [
        (Rental(), 0.0, 60.0),
        (Rental(), 59.5, 60.0),
        (Rental(), 60.5, 61.0),
        (Rental(), 3600.0, 3600.0),
        (Rental(minimum_s=0.0), 0.0, 0.0),
        (Rental(minimum_s=0.0, step_s=3600.0), 0.1, 3600.0),
        (Rental(minimum_s=0.0, step_s=3600.0), 3600.0, 3600.0),
        (Rental(minimum_s=0.0, step_s=3600.0), 3601.0, 7200.0),
        (Rental(minimum_s=90.0, step_s=60.0), 10.0, 120.0),  # the minimum too is billed in whole steps
        (Rental(minimum_s=0.0, step_s=0.1), 0.3, 0.3),
    ],
)
def test_bills_by_hand(rental: Rental, held_s: float, billed_s: float) -> None:
    assert rental.billed_s(held_s) == pytest.approx(billed_s, abs=1e-9)


@given(
    minimum_s=st.floats(0, 7200),
    step_s=st.sampled_from([0.1, 0.25, 1.0, 60.0, 3600.0]),
    held_s=st.floats(0, 1e6),
    rented_s=st.floats(0, 3e7),
)
def test_a_bill_covers_the_time_in_whole_steps_and_its_end_is_not_a_step_later(
    minimum_s: float, step_s: float, held_s: float, rented_s: float
) -> None:
    rental = Rental(0.0, minimum_s, step_s)
    billed_s = rental.billed_s(held_s)
    assert billed_s >= max(minimum_s, held_s) - 1e-6
    assert billed_s < max(minimum_s, held_s) + step_s
    assert math.isclose(billed_s, round(billed_s / step_s) * step_s, rel_tol=1e-12)
    # Given back at the end of what is billed, by the clock as it is rounded, it costs no further step.
    due_s = rented_s + billed_s
    assert rental.billed_s(due_s - rented_s) == pytest.approx(billed_s, abs=1e-3 * step_s)


@pytest.mark.parametrize("terms", [(-1.0, 0.0, 1.0), (0.0, math.inf, 1.0), (0.0, 0.0, 0.0)])
def test_terms_that_make_no_sense_are_refused(terms: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="rental with boot_s"):
        Rental(*terms)
