"""Policies by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from fairlead.errors import InputError
from fairlead.policy import registry
from fairlead.policy.ordering.las import Las


def test_what_is_not_named_is_the_default() -> None:
    assert (
        registry.build("placing=spread").spec
        == "sizing=fixed,ordering=fifo,placing=spread,sharing=exclusive,powering=always-on"
    )


def test_a_preset_can_be_overridden() -> None:
    stack = registry.build("tiresias,placing=spread")
    assert stack.spec == "sizing=fixed,ordering=las:queues=2,placing=spread,sharing=exclusive,powering=always-on"
    assert registry.build("tiresias,ordering=srtf").spec.split(",")[1] == "ordering=srtf"


def test_a_policy_may_stand_alone() -> None:
    assert registry.build("fifo:backfill=greedy").ordering.skips == "greedy"
    assert registry.build("packed-nonsticky").placing.sticky is False


def test_options_take_their_declared_types() -> None:
    ordering = registry.build("las:queues=3:thresholds=100/2e3").ordering
    assert isinstance(ordering, Las)
    assert (ordering.queues, ordering.thresholds) == (3, (100.0, 2000.0))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "unknown policy ''"),
        ("fiffo", "did you mean 'fifo'"),
        ("ordring=fifo", "did you mean 'ordering'"),
        ("ordering=packed", "unknown ordering policy 'packed'"),
        ("ordering=fifo:backfil=greedy", "did you mean 'backfill'"),
        ("ordering=fifo:backfill=gredy", "did you mean 'greedy'"),
        ("ordering=fifo:backfill", "'backfill' has no value"),
        ("ordering=srtf:x=1", "srtf has no options"),
        ("ordering=las:queues=two", "expected a whole number"),
        ("ordering=las:queues=-1", "0 or more"),
        ("ordering=las:queues=3:thresholds=9", "3 queues have 2 thresholds, found 1"),
        ("ordering=las:queues=3:thresholds=9/3", "above 0 and ascending"),
        ("ordering=priority:preempt=maybe", "expected true or false"),
        ("ordering=fifo,ordering=srtf", "names the stage ordering twice"),
        ("fifo,srtf", "names the stage ordering twice"),
        ("placing=packed-sticky:sticky=false", "sticky is both true and false"),
    ],
)
def test_a_wrong_name_gets_a_hint(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.build(spec)


def test_easy_backfill_and_rounds_contradict_each_other() -> None:
    with pytest.raises(InputError, match="cannot be used in rounds"):
        registry.build("fifo:backfill=easy", round_s=360.0)


def test_third_parties_add_policies_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("fair", "fairlead.policy.ordering.las:Las", "fairlead.ordering")
    monkeypatch.setattr(registry, "entry_points", lambda group, **_: [point] if group == "fairlead.ordering" else [])
    assert isinstance(registry.build("ordering=fair:queues=4").ordering, Las)
    wrong = EntryPoint("fair", "fairlead.policy.placing.packed:Packed", "fairlead.ordering")
    monkeypatch.setattr(registry, "entry_points", lambda group, **_: [wrong] if group == "fairlead.ordering" else [])
    with pytest.raises(InputError, match="is no Ordering"):
        registry.build("ordering=fair")


def test_every_policy_has_a_page_that_says_when_not_to_use_it() -> None:
    for entries in registry.stages().values():
        for entry in entries:
            assert entry.summary
            assert "When not to use it" in entry.doc, entry.name
            assert all(help for _, help in entry.options.values())
