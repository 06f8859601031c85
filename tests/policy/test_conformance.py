"""Every registered policy, in every stage, on events and in rounds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fairlead.errors import InputError
from fairlead.policy import registry
from fairlead.policy.pool import Pool
from fairlead.policy.queue import Key
from fairlead.policy.stages import Ordering, Sharing
from fairlead.policy.view import JobState, View
from fairlead.sim import conformance

EXTRA_OPTIONS = [
    "ordering=fifo:backfill=greedy",
    "ordering=fifo:backfill=easy",
    "ordering=las:queues=0",
    "ordering=las:queues=3:thresholds=200/2000",
    "ordering=priority:preempt=false",
    "ordering=las:backfill=strict",
    "ordering=las:queues=3:thresholds=200/2000:within=running",
    "ordering=sjf:backfill=easy,placing=consolidated",
    "ordering=srtf,placing=consolidated,powering=sleep:after_s=10",
    "ordering=fifo:backfill=greedy,placing=pal-sticky",
    "ordering=srtf,sharing=eaco:jobs=4,placing=pal",
    "ordering=las,sharing=eaco,powering=sleep:after_s=20",
    "ordering=fifo:backfill=greedy,sharing=gandiva,placing=spread",
    "powering=sleep:after_s=10:reserve=1,ordering=fifo:backfill=greedy",
    "sizing=boa:budget=3,powering=rent",
    "sizing=pollux:target=0.5,powering=rent:linger_s=30",
    "sizing=equal,powering=sleep:after_s=10",
    "ordering=fair:weights=ann=2/@lab=3:guarantee_s=100:backfill=greedy",
    "ordering=fair:preempt=true:slice_s=30:guarantee_s=200:inside=priority",
    "ordering=fair:members=ann=lab.vision:backfill=none:half_life_s=500",
    "ordering=deadline:preempt=false",
    "ordering=deadline:admission=false,sharing=eaco",
    "ordering=las,sharing=gandiva,sizing=sia",
    "ordering=srtf,sizing=pollux",
    "ordering=fifo:backfill=easy,sizing=boa:budget=6,powering=rent",
    "ordering=fair:preempt=true:slice_s=30:guarantee_s=200,sizing=equal",
    "ordering=fair:backfill=greedy:guarantee_s=200,sizing=boa:budget=3,powering=rent",
    "ordering=fair:guarantee_s=200,sizing=sia,placing=pal",
    "ordering=fair:preempt=true:slice_s=30,sharing=eaco",
    "ordering=fair:guarantee_s=200,sharing=gandiva",
    "ordering=fair,sharing=muxflow,sizing=boa:budget=6,powering=rent,placing=pal",
]


def every_spec() -> list[str]:
    named = [f"{stage}={e.name}" for stage, entries in registry.stages().items() for e in entries]
    unsticky = [f"placing={e.name}-nonsticky,ordering=srtf" for e in registry.stages()["placing"]]
    # Whatever is a stage's default names the same stack, which is checked once.
    whole = {registry.build(spec).spec: spec for spec in (*named, *unsticky, *EXTRA_OPTIONS, *registry.presets())}
    return list(whole.values())


@pytest.mark.parametrize("round_s", [None, 25.0], ids=["events", "rounds"])
@pytest.mark.parametrize("spec", every_spec())
def test_every_registered_policy_conforms(spec: str, round_s: float | None) -> None:
    conformance.check(spec, round_s=round_s)


MOST_REFUSED = 60


def test_every_stack_is_built_or_refused_in_a_sentence_and_few_are() -> None:
    stacks, refused = registry.every_stack(), []
    assert len(stacks) >= 8064
    for spec in stacks:
        try:
            assert registry.build(spec).spec == spec
        except InputError as error:
            refused.append(error.message)
    assert len(refused) <= MOST_REFUSED, refused
    assert all(reason and "\n" not in reason for reason in refused)


def test_what_contradicts_itself_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="sizing says how many nodes to have, but nodes that sleep are woken for jobs"):
        registry.build("sizing=pollux:target=0.5,powering=sleep")


def test_every_regime_is_compared_with_the_plain_walk() -> None:
    """`check` compares each of its stacks with one without indexes; these are the ways to admit that are among them."""
    stacks = [registry.build(spec, round_s=round_s) for spec in every_spec() for round_s in (None, 25.0)]
    found = {(type(s.regime).__name__, s.sizing.elastic, s.ordering.lanes) for s in stacks}
    fixed = {name for name, elastic, _ in found if not elastic}
    assert fixed == {"InOrder", "Easy", "Displacing", "Rounds", "OneByOne", "AtOnce"}
    assert {name for name, elastic, _ in found if elastic} == fixed - {"Rounds"}
    assert {name for name, _, lanes in found if lanes} == fixed


STACKS = int(os.environ.get("FAIRLEAD_STACKS", "300"))
SEED = int(os.environ.get("FAIRLEAD_STACKS_SEED", "14"))
"""Another one runs others, by hand."""
SAMPLE = random.Random(SEED).sample(registry.every_stack(), STACKS)
PARTS = 60


@pytest.mark.parametrize("part", range(PARTS))
def test_stacks_drawn_at_random_run_a_crowd_of_everything_to_its_end(part: int) -> None:
    for number in range(part, STACKS, PARTS):
        conformance.check_mix(SAMPLE[number], round_s=(None, 60.0)[number // PARTS % 2], seed=SEED + number)


@pytest.mark.parametrize("spec", random.Random(15).sample(registry.every_stack(), 24))
def test_stacks_drawn_at_random_conform(spec: str) -> None:
    conformance.check(spec, round_s=(None, 25.0)[len(spec) % 2], traces=2)


def test_a_policy_that_asks_again_at_once_for_ever_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Restless(Ordering):
        def waiting_key(self, state: JobState, view: View) -> Key:
            return (state.job.id,)

        def wake_s(self, view: View) -> float | None:
            return 0.0

    monkeypatch.setitem(registry.BUILT_IN["ordering"], "restless", "tests.policy.test_conformance:Restless")
    monkeypatch.setitem(globals(), "Restless", Restless)
    with pytest.raises(conformance.ConformanceError, match="again and again"):
        conformance.check_mix("ordering=restless")


def test_a_policy_that_undoes_what_it_did_for_ever_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Fickle(Sharing):
        """Whoever has run for a second must leave, before the restart is over."""

        shares: ClassVar[bool] = True

        def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool]:
            return (pool,) if pool.count >= width else ()

        def review(self, view: View) -> tuple[list[JobState], bool]:
            return [s for s in view.running.values() if view.now_s >= s.since_s + 1.0], False

        def wake_s(self, view: View) -> float | None:
            return view.now_s + 1.0

    monkeypatch.setitem(registry.BUILT_IN["sharing"], "fickle", "tests.policy.test_conformance:Fickle")
    monkeypatch.setitem(globals(), "Fickle", Fickle)
    with pytest.raises(conformance.ConformanceError, match="does not come to an end"):
        conformance.check_mix("sharing=fickle", jobs=10)


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
