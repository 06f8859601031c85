"""A controller that is killed and comes back: what stacks save, and that they go on from it."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import fields
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.model.cluster import Rental, parse_shape
from fairlead.model.interference import Interference
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.model.service import Burst
from fairlead.model.training import Training
from fairlead.policy import laws, registry
from fairlead.policy.plan import Plan
from fairlead.policy.sources import Fleet
from fairlead.policy.stack import Stack
from fairlead.policy.view import JobState, View
from fairlead.sim import conformance
from fairlead.sim.failures import Failures
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace
from tests.conftest import make_trace
from tests.policy.test_conformance import every_spec
from tests.policy.test_muxflow import with_bursts
from tests.sim.toys import TABLE, rented, toy_app

APPLICATIONS = {"slim": 0.1, "light": 0.3, "heavy": 0.45}
"""By how busy they keep a GPU."""

# -- the same run, however often it is restarted ----------------------------------------------------------------------


def crowd(seed: int, jobs: int = 40) -> Trace:
    """Light jobs of three applications with short epochs, half of them with little time to spare."""
    rng = random.Random(seed)
    rows = sorted(
        (float(rng.randrange(2000)), rng.choice((1, 2, 4)), float(rng.randrange(100, 3000))) for _ in range(jobs)
    )
    names = [rng.choice(("slim", "light", "heavy")) for _ in rows]
    deadlines = [r[2] * rng.uniform(1.1, 4.0) + 300.0 if rng.random() < 0.5 else None for r in rows]
    trace = make_trace(rows, profile=names, deadline_s=deadlines)
    profiles = {
        n: Profile(n, activity_frac=a, epoch_s=60.0) for n, a in (("slim", 0.1), ("light", 0.3), ("heavy", 0.45))
    }
    object.__setattr__(trace, "profiles", profiles)
    return trace


def truth(seed: int) -> Interference:
    """What company really costs: sometimes nothing, sometimes far more than one would think."""
    rng, found = random.Random(seed), Interference()
    for pair in itertools.combinations_with_replacement(APPLICATIONS, 2):
        found.record(list(pair), [rng.choice((0.4, 0.7, 0.95))] * 2, rng.uniform(0.3, 0.7))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "spec",
    [
        "sharing=eaco:floor=1.0",
        "ordering=fifo:backfill=greedy,sharing=eaco:floor=1.0:history=eaco,powering=sleep:after_s=60",
        "sharing=gandiva:look_s=50:worth=1.2,ordering=fifo:backfill=greedy",
        "sharing=gandiva:look_s=200,powering=sleep:after_s=100",
    ],
)
def test_trials_and_pairs_go_on_after_restarts(spec: str, seed: int) -> None:
    conformance.check_restarts(spec, crowd(seed), parse_shape("2x4"), interference=truth(seed))


@pytest.mark.parametrize("options", ["", ":matched=false", ":interval_s=300:keep=0.0", ":dynamic=false"])
def test_forecasts_shares_and_back_offs_go_on_after_restarts(options: str) -> None:
    trace = with_bursts(service_fleet(8, 4.0, start_h=9.0, seed=2), 2, Burst(3600.0, 5400.0, 5.0))
    conformance.check_restarts(f"ordering=fifo:backfill=greedy,sharing=muxflow{options}", trace, parse_shape("2x5:T4"))


def test_a_day_of_loads_is_remembered() -> None:
    trace = service_fleet(3, 30.0, load=0.2, seed=5)
    conformance.check_restarts("fifo-greedy,sharing=muxflow:interval_s=1800", trace, parse_shape("1x4:T4"))


def two_applications(*trainings: Training) -> Trace:
    rng = random.Random(7)
    rows = sorted((float(rng.randrange(3000)), 1, 100.0) for _ in range(16))
    names = [rng.choice(trainings).name for _ in rows]
    trace = make_trace(rows, profile=names, min_gpus=[1] * 16, max_gpus=[8] * 16)
    return trace.training({t.name: t for t in trainings}, 4)


@pytest.mark.parametrize(
    "spec",
    [
        "sizing=boa:budget=6:every_s=100,powering=rent",
        "sizing=boa:budget=6:every_s=100:known=true,powering=rent",
        "sizing=pollux:target=0.5,powering=rent",
        "sizing=pollux:known=true",
        "sizing=sia:interval_s=30",
        "sizing=optimus",
        "sizing=equal:interval_s=45,powering=sleep:after_s=30",
    ],
)
def test_curves_rates_and_wishes_go_on_after_restarts(spec: str) -> None:
    cluster = rented("4x4", boot_s=20.0, step_s=5.0) if "rent" in spec else parse_shape("2x4")
    conformance.check_restarts(spec, two_applications(toy_app(), TABLE), cluster)


# -- a restart as it really is: events have happened, and nobody tells ------------------------------------------------


class Killed(Stack):
    """A stack that is killed after events and before it could decide about them: the new one is told of no change."""

    def __init__(self, spec: str, round_s: float | None) -> None:
        made = registry.build(spec, round_s=round_s)
        super().__init__(made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s)
        self.args = (spec, round_s)
        self.now = made
        self.rng = random.Random(3)
        self.kills = 0

    def decide(self, view: View) -> Plan:
        if self.rng.randrange(4):
            return self.now.decide(view)
        saved = json.dumps(self.now.knowledge())
        told = self.now.decide(view)
        view.decided()
        self.now = registry.build(self.args[0], round_s=self.args[1])
        self.now.recall(json.loads(saved), view)
        plan = self.now.decide(view)
        laws.check(view, plan)
        assert started(plan, view) == started(told, view)
        self.kills += 1
        return plan


def started(plan: Plan, view: View) -> set[int]:
    return {place.job_id for place in plan.place if place.job_id in view.waiting}


@pytest.mark.parametrize("spec", every_spec())
def test_what_happened_before_a_restart_is_found_in_the_view(spec: str) -> None:
    trace, cluster = conformance._crowd(1), conformance._cluster(1)
    stack = Killed(spec, None)
    if stack.powering.rents:
        cluster = cluster.rented(Rental(boot_s=7.0, minimum_s=10.0, step_s=5.0))
    result = Simulation(trace, cluster, stack, World(failures=Failures(2.0, 0.1), locality=1.5, restart_s=2.0)).run()
    assert stack.kills > 10
    assert (result.jobs["finish_s"] > 0.0).all()


# -- what is saved ----------------------------------------------------------------------------------------------------


class Steady:
    """Everybody has an hour to go, in one epoch, and feels no company."""

    def remaining_s(self, state: JobState) -> float:
        return 3600.0

    left_s = remaining_s

    def done(self, state: JobState) -> int:
        return 0

    def next_end_s(self, state: JobState) -> float:
        return 3600.0

    def kept_speed(self, state: JobState) -> float:
        return 1.0

    def utilisation(self, gpu: int) -> float:
        return 0.5


def small_world(spec: str, jobs: int = 3) -> tuple[Stack, View]:
    """A stack that has decided about some jobs on two GPUs."""
    stack, view = registry.build(spec), View(parse_shape("1x2"), epochs=Steady())
    for number in range(jobs):
        view.arrive(JobState(Job(number, str(number), 0.0, 1)))
    for _ in range(2):
        plan = stack.decide(view)
        view.decided()
        for place in plan.place:
            view.start(view.waiting[place.job_id], place.gpus, shared=place.shared)
    return stack, view


def test_a_stack_that_has_learnt_nothing_saves_next_to_nothing() -> None:
    assert registry.build("fifo").knowledge() == {"stack": {"again": False}}


@pytest.mark.parametrize(
    ("spec", "saved", "named"),
    [
        ("fifo", {"stack": {"again": False}, "cooking": {}}, "unknown key 'cooking'"),
        ("fifo", {"stack": {"again": False}, "ordering": {"falls": []}}, "fifo has the unknown key 'falls'"),
        ("fifo", {"stack": {"again": False}, "ordering": 3}, "fifo is a int"),
        ("fifo", {}, "policies cannot be read: KeyError 'stack'"),
        ("las", {"stack": {"again": False}, "ordering": {"falls": [[1.0, 2]]}}, "las cannot be read"),
        ("random", {"stack": {"again": False}, "placing": {"draws": [3, [1, 2], None]}}, "random cannot be read"),
        ("boa", {"stack": {"again": False, "wants": [[0]]}}, "the stack cannot be read"),
        ("boa", {"stack": {"again": False, "wants": []}, "sizing": {"kinds": []}}, "boa cannot be read: KeyError"),
        ("eaco", {"stack": {"again": False}, "sharing": {"history": {"format": "x"}}}, "eaco: history: format is 'x'"),
        ("muxflow", {"stack": {"again": False}, "sharing": {"assigned": 1}}, "cannot be read"),
        ("sleep", {"stack": {"again": False}, "powering": {"idle": [["a", 1.0]]}}, "idle nodes cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(spec: str, saved: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=re.escape(named)):
        registry.build(spec).recall(saved, View(parse_shape("1x2")))


def test_what_is_saved_of_jobs_that_are_gone_is_dropped() -> None:
    stack, view = small_world("sharing=gandiva,ordering=fifo:backfill=greedy")
    assert [pair[0] for pair in stack.knowledge()["sharing"]["pairs"]] == [2]
    saved = stack.knowledge()
    view.end(view.running[2])
    view.decided()
    new = registry.build("sharing=gandiva,ordering=fifo:backfill=greedy")
    new.recall(saved, view)
    assert new.knowledge()["sharing"]["pairs"] == []


def test_a_history_is_kept_that_was_saved_when_eaco_saved_its_groups_too() -> None:
    stack, view = small_world("sharing=eaco")
    saved = stack.knowledge()
    saved["sharing"]["history"] = truth(1).to_dict()
    saved["sharing"]["groups"] = {"epoch": 0, "held": [[[0], 0.5]]}
    new = registry.build("sharing=eaco")
    new.recall(saved, view)
    assert new.knowledge()["sharing"]["history"] == truth(1).to_dict()
    assert "groups" not in new.knowledge()["sharing"]


def test_promises_of_gpus_that_are_not_there_any_more_are_dropped() -> None:
    trace = service_fleet(4, 1.0)
    stack = Killed("fifo-greedy,sharing=muxflow", None)
    Simulation(trace, parse_shape("1x4:T4"), stack).run()
    saved = stack.now.knowledge()
    saved["sharing"]["assigned"] = [[0, 3, 0.5]]
    saved["sharing"]["matching"] = {f.name: [3] for f in fields(Fleet)}
    new = registry.build("fifo-greedy,sharing=muxflow")
    new.recall(saved, small_world("fifo")[1])
    assert new.knowledge()["sharing"]["assigned"] == []
    assert new.knowledge()["sharing"]["matching"] is None


def test_an_ended_jobs_width_is_not_wished_for_after_a_restart() -> None:
    _, view = small_world("sizing=equal")
    saved = {"stack": {"again": False, "wants": [[0, 1], [99, 4]]}, "sizing": {"due_s": 50.0, "kinds": []}}
    new = registry.build("sizing=equal")
    new.recall(saved, view)
    assert new.knowledge()["stack"]["wants"] == [[0, 1]]


# -- withdrawn jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["fifo", "fifo-greedy", "las", "srtf", "eaco", "muxflow", "sharing=gandiva"])
def test_a_withdrawn_job_is_not_started_until_it_is_back(spec: str) -> None:
    stack = registry.build(spec)
    view = View(parse_shape("1x2"), Steady(), Steady())
    held, other = (JobState(Job(number, str(number), 0.0, 1)) for number in range(2))
    view.arrive(held)
    view.withdraw(held)
    view.arrive(other)
    assert started(stack.decide(view), view) == {1}
    view.decided()
    view.start(other, (0,))
    view.arrive(held)
    assert started(stack.decide(view), view) == {0}
    view.decided()


def boa_of(stack: Stack) -> Any:
    return json.loads(json.dumps(stack.knowledge()["sizing"]))


def decide(stack: Stack, view: View) -> None:
    view.now_s += 10.0
    plan = stack.decide(view)
    laws.check(view, plan)
    view.decided()
    for place in plan.place:
        state = view.waiting.get(place.job_id) or view.running[place.job_id]
        if state.gpus:
            view.stop(state)
        view.start(state, place.gpus)


def test_boa_counts_a_job_once_however_often_it_is_withdrawn() -> None:
    stack, view = registry.build("sizing=boa:budget=4"), View(parse_shape("2x4"), epochs=Steady())
    states = [JobState(Job(number, str(number), 0.0, 1, max_gpus=2)) for number in range(3)]
    for state in states:
        view.arrive(state)
    decide(stack, view)
    assert boa_of(stack)["arrivals"][0]["jobs"] == 3
    view.stop(states[0], returned=True)
    view.withdraw(states[0])
    decide(stack, view)
    assert boa_of(stack)["controller"]["away"] == [0]
    assert boa_of(stack)["controller"]["ended_gpu_s"] == pytest.approx(states[0].banked_gpu_s)
    assert boa_of(stack)["arrivals"][0]["ended"] == 0
    new = registry.build("sizing=boa:budget=4")
    new.recall(json.loads(json.dumps(stack.knowledge())), view)
    view.arrive(states[0])
    decide(new, view)
    found = boa_of(new)
    assert found["arrivals"][0]["jobs"] == 3
    assert found["controller"]["away"] == []
    assert found["controller"]["ended_gpu_s"] == pytest.approx(0.0)
    assert states[0].gpus  # it has a width again, and runs


def test_a_job_that_is_cancelled_while_withdrawn_is_settled_once() -> None:
    stack, view = registry.build("sizing=boa:budget=4"), View(parse_shape("2x4"), epochs=Steady())
    states = [JobState(Job(number, str(number), 0.0, 1)) for number in range(2)]
    for state in states:
        view.arrive(state)
    decide(stack, view)
    view.now_s += 30.0
    view.stop(states[0], returned=True)
    view.withdraw(states[0])
    decide(stack, view)
    view.end(states[0])
    decide(stack, view)
    found = boa_of(stack)
    assert found["controller"]["away"] == []
    assert found["controller"]["ended_gpu_s"] == pytest.approx(states[0].banked_gpu_s)
    assert found["arrivals"][0]["ended"] == 1
