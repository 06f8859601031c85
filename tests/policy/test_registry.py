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
    assert (
        stack.spec
        == "sizing=fixed,ordering=las:queues=2:within=running,placing=spread,sharing=exclusive,powering=always-on"
    )
    assert registry.build("tiresias,ordering=srtf").spec.split(",")[1] == "ordering=srtf"


@pytest.mark.parametrize(
    ("spec", "whole"),
    [
        ("boa:budget=48", "sizing=boa:budget=48,powering=rent"),
        ("boa:budget=48:linger_s=60", "sizing=boa:budget=48,powering=rent:linger_s=60"),
        ("boa:budget=48,powering=sleep", "sizing=boa:budget=48,powering=sleep"),
        ("powering=sleep,boa:budget=48", "sizing=boa:budget=48,powering=sleep"),
        ("eaco:utilisation=0.9", "ordering=priority:preempt=false,sharing=eaco:utilisation=0.9,powering=sleep"),
        (
            "eaco:preempt=true:after_s=5",
            "ordering=priority:preempt=true,sharing=eaco,powering=sleep:after_s=5",
        ),
        ("muxflow:share=0.4:backfill=none", "ordering=fifo:backfill=none,sharing=muxflow:share=0.4"),
        ("pal:bins=2,ordering=las", "ordering=las,placing=pal:bins=2"),
        ("srtf,pal:bins=2", "ordering=srtf,placing=pal:bins=2"),
        ("tiresias:queues=3", "ordering=las:within=running:queues=3"),
        ("fifo-greedy:backfill=none", "ordering=fifo:backfill=none"),
        ("tiresias,eaco,ordering=srtf", "ordering=srtf,sharing=eaco,powering=sleep"),
        ("ordering=srtf,eaco", "ordering=srtf,sharing=eaco,powering=sleep"),
    ],
)
def test_options_of_a_preset_keep_the_preset(spec: str, whole: str) -> None:
    assert registry.build(spec).spec == registry.build(whole).spec


@pytest.mark.parametrize("preset", sorted(registry.PRESETS))
def test_every_option_of_every_stage_of_a_preset_can_be_set_without_losing_the_rest(preset: str) -> None:
    plain = dict(part.split("=", 1) for part in registry.build(preset).spec.split(","))
    for stage, text in plain.items():
        if stage not in registry.PRESETS[preset]:
            continue
        name = text.split(":")[0]
        entry = next(entry for entry in registry.stages()[stage] if entry.name == name)
        for option, (default, _) in entry.options.items():
            value = str(default).lower() if isinstance(default, bool) else default if default != () else "7"
            made = dict(part.split("=", 1) for part in registry.build(f"{preset}:{option}={value}").spec.split(","))
            assert {s: t.split(":")[0] for s, t in made.items()} == {s: t.split(":")[0] for s, t in plain.items()}
            assert f":{option}={value}" in made[stage]


def test_an_option_of_several_stages_of_a_preset_is_refused_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PRESETS, "both", "sizing=pollux,sharing=muxflow")
    with pytest.raises(InputError, match="sizing=pollux, sharing=muxflow") as refused:
        registry.build("both:interval_s=60")
    assert "both,sizing=pollux:interval_s=60" in str(refused.value.hint)


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
        ("sizing=fixed:x=1", "fixed has no options"),
        ("tiresias:queues=0", "within=running needs queues"),
        ("ordering=las:queues=two", "expected a whole number"),
        ("ordering=las:queues=-1", "0 to 100"),
        ("ordering=las:queues=3:thresholds=9", "3 queues have 2 thresholds, found 1"),
        ("ordering=las:queues=3:thresholds=9/3", "above 0 and ascending"),
        ("ordering=priority:preempt=maybe", "expected true or false"),
        ("ordering=fifo,ordering=srtf", "names the stage ordering twice"),
        ("fifo,srtf", "names the stage ordering twice"),
        ("placing=packed-sticky:sticky=false", "sticky is both true and false"),
        ("boa:budgt=48", "did you mean 'budget'"),
        ("boa:budget", "'budget' has no value"),
        ("boa:budget=1:budget=2", "budget is both 1 and 2"),
        ("boa:budget=48,sizing=pollux", "names the stage sizing twice"),
        ("boa,eaco", "two of the stage powering"),
        ("tiresias:preempt=true", "unknown option 'preempt' of tiresias"),
        ("las:queues=99999", "0 to 100"),
        ("boa:budget=nan", "expected a number"),
        ("eaco:utilisation=inf", "expected a number"),
    ],
)
def test_a_wrong_name_gets_a_hint(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.build(spec)


def test_third_parties_add_policies_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "fairlead.policy.ordering.las:Las", "fairlead.ordering")
    monkeypatch.setattr(registry, "entry_points", lambda group, **_: [point] if group == "fairlead.ordering" else [])
    assert isinstance(registry.build("ordering=mine:queues=4").ordering, Las)
    wrong = EntryPoint("mine", "fairlead.policy.placing.packed:Packed", "fairlead.ordering")
    monkeypatch.setattr(registry, "entry_points", lambda group, **_: [wrong] if group == "fairlead.ordering" else [])
    with pytest.raises(InputError, match="is no Ordering"):
        registry.build("ordering=mine")


def test_every_policy_has_a_page_that_says_when_not_to_use_it() -> None:
    for entries in registry.stages().values():
        for entry in entries:
            assert entry.summary
            assert "When not to use it" in entry.doc, entry.name
            assert all(help for _, help in entry.options.values())
