from __future__ import annotations

import pytest

from fairlead.report.names import distinct, short_names, slug


def test_a_run_is_called_by_what_sets_it_apart() -> None:
    assert short_names(["ordering=fifo,placing=packed", "ordering=las:queues=2,placing=packed"]) == [
        "fifo",
        "las:queues=2",
    ]


def test_two_stages_that_differ_are_both_named() -> None:
    specs = ["ordering=fifo,placing=packed", "ordering=las,placing=spread"]
    assert short_names(specs) == ["fifo+packed", "las+spread"]


def test_names_are_never_alike_even_for_equal_policies() -> None:
    assert short_names(["ordering=fifo", "ordering=fifo"]) == ["ordering=fifo", "ordering=fifo-2"]
    assert distinct(["a", "A", "a"]) == ["a", "A-2", "a-3"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [("ordering=fifo:backfill=easy", "ordering-fifo-backfill-easy"), ("../../etc", "etc"), ("", "run")],
)
def test_a_slug_is_safe_in_a_file_name(name: str, safe: str) -> None:
    assert slug(name) == safe
