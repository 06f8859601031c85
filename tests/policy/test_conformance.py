"""Every registered policy, in every stage, on events and in rounds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fairlead.policy import registry
from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering
from fairlead.policy.view import JobState, View
from fairlead.sim import conformance

EXTRA_OPTIONS = [
    "ordering=fifo:backfill=greedy",
    "ordering=fifo:backfill=easy",
    "ordering=las:queues=0",
    "ordering=las:queues=3:thresholds=200/2000",
    "ordering=priority:preempt=false",
    "ordering=srtf,sharing=eaco:jobs=4,placing=pal",
    "ordering=las,sharing=eaco,powering=sleep:after_s=20",
    "ordering=fifo:backfill=greedy,sharing=gandiva,placing=spread",
    "powering=sleep:after_s=10:reserve=1,ordering=fifo:backfill=greedy",
    "sizing=boa:budget=3,powering=rent",
    "sizing=pollux:target=0.5,powering=rent:linger_s=30",
    "sizing=equal,powering=sleep:after_s=10",
]


def every_spec() -> list[str]:
    named = [f"{stage}={e.name}" for stage, entries in registry.stages().items() for e in entries]
    unsticky = [f"placing={e.name}-nonsticky,ordering=srtf" for e in registry.stages()["placing"]]
    return [*named, *unsticky, *EXTRA_OPTIONS, *registry.presets()]


@pytest.mark.parametrize("round_s", [None, 25.0], ids=["events", "rounds"])
@pytest.mark.parametrize("spec", every_spec())
def test_every_registered_policy_conforms(spec: str, round_s: float | None) -> None:
    on_events = (
        "easy",
        "eaco",
        "fifo-packed",
        "gandiva",
        "muxflow",
        "sharing=time",
        "priority-time",
        "online-only",
        "boa",
        "pollux",
        "sia",
        "optimus",
        "equal",
    )
    if round_s is not None and any(word in spec for word in on_events):
        pytest.skip("EASY, sharings and elastic sizings decide on events only")
    conformance.check(spec, round_s=round_s)


def test_a_policy_that_reads_the_future_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Cheat(Ordering):
        def waiting_key(self, state: JobState, view: View) -> Key:
            return (state.duration_s, state.job.id)  # type: ignore[attr-defined]

    monkeypatch.setitem(registry.BUILT_IN["ordering"], "cheat", "tests.policy.test_conformance:Cheat")
    monkeypatch.setitem(globals(), "Cheat", Cheat)
    with pytest.raises(conformance.ConformanceError, match="reads the future"):
        conformance.check("ordering=cheat")


def test_a_policy_that_looks_at_names_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Nepotist(Ordering):
        def waiting_key(self, state: JobState, view: View) -> Key:
            return (state.job.name != "3", state.job.id)

    monkeypatch.setitem(registry.BUILT_IN["ordering"], "nepotist", "tests.policy.test_conformance:Nepotist")
    monkeypatch.setitem(globals(), "Nepotist", Nepotist)
    with pytest.raises(conformance.ConformanceError, match="renamed"):
        conformance.check("ordering=nepotist", traces=6)
