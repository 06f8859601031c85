"""What an agent tells of changes gives the controller the status that the agent has."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.node.stream.delta import applied, difference, is_quiet

_attempts = st.dictionaries(
    st.sampled_from("abc"), st.fixed_dictionaries({"state": st.sampled_from("xy"), "energy_j": st.integers(0, 2)})
)
_statuses = st.builds(
    lambda attempts, watts, revision: {
        "revision": revision,
        "attempts": [{"id": key, **value} for key, value in attempts.items()],
        "readings": [{"gpu": key, "power_w": value} for key, value in watts.items()],
        "events": [],
        "guard_age_s": 0.0,
    },
    _attempts,
    st.dictionaries(st.sampled_from("gh"), st.integers(0, 2)),
    st.integers(0, 3),
)


def _plain(status: dict[str, Any]) -> dict[str, Any]:
    attempts = {one["id"]: {k: v for k, v in one.items() if k != "_restless"} for one in status["attempts"]}
    return {**status, "attempts": attempts, "readings": {one["gpu"]: one for one in status["readings"]}}


@given(st.lists(_statuses, min_size=1, max_size=6))
def test_differences_one_after_the_other_give_the_last_status(stories: list[dict[str, Any]]) -> None:
    known: dict[str, Any] | None = None
    before = None
    for status in stories:
        told = difference(before, status, restless=True)
        known, before = applied(known, told) if told else known, status
        assert known is not None
        assert _plain(known) == _plain(status)


def test_nothing_is_told_when_nothing_happens() -> None:
    status = {"revision": 1, "attempts": [{"id": "a", "energy_j": 1}], "readings": [], "events": []}
    later = {**status, "attempts": [{"id": "a", "energy_j": 2}]}
    assert difference(status, status, restless=True) == {}
    assert difference(status, later, restless=False) == {}
    assert is_quiet(difference(status, later, restless=True))


def test_what_has_not_changed_is_the_same_object() -> None:
    first = {"revision": 1, "attempts": [{"id": "a"}, {"id": "b"}], "readings": [], "events": []}
    known = applied(None, difference(None, first, restless=True))
    told = difference(first, {**first, "revision": 2, "attempts": [{"id": "a"}, {"id": "c"}]}, restless=False)
    assert applied(known, told)["attempts"][0] is known["attempts"][0]
