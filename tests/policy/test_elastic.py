"""Wishes carried out: who grows, shrinks, waits and moves, and that nobody is ever lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.job import Job
from fairlead.policy import laws, registry
from fairlead.policy.plan import Plan
from fairlead.policy.powering.rent import Rent
from fairlead.policy.powering.sleep import Sleep
from fairlead.policy.stages import Powering
from fairlead.policy.view import JobState, View
from fairlead.sim.failures import Failures
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World as SimWorld
from tests.conftest import make_trace
from tests.sim.test_renting import Witnessed, check_bill, random_trace
from tests.sim.toys import Script, Whims, rented, stack_of


class World:
    """A view that is driven by hand."""

    def __init__(self, shape: str | Cluster, jobs: int, powering: Powering | None = None, **script: object) -> None:
        self.view = View(parse_shape(shape) if isinstance(shape, str) else shape)
        self.sizing = Script(**script)  # type: ignore[arg-type]
        self.stack = stack_of(self.sizing, powering)
        if powering is not None and powering.rents:
            for node in range(len(self.view.cluster.nodes)):
                self.view.sleep(node)
        self.states = [JobState(Job(i, str(i), 0.0, 1, max_gpus=16)) for i in range(jobs)]
        for state in self.states:
            self.view.arrive(state)

    def decide(self, widths: dict[int, int] | None = None) -> Plan:
        """One decision, some seconds later; the plan is checked and applied."""
        view = self.view
        view.now_s += 10.0
        if widths is not None:
            self.sizing.lines.append((view.now_s, widths))
        before = list(view.free)
        plan = self.stack.decide(view)
        assert list(view.free) == before, "a decision left the view changed"
        laws.check(view, plan)
        view.decided()
        for job_id in (*plan.evict, *(p.job_id for p in plan.place if p.job_id in view.running)):
            view.stop(view.running[job_id])
        for place in plan.place:
            view.start(view.waiting[place.job_id], place.gpus)
        for node in plan.sleep:
            view.sleep(node)
        for node in plan.wake:
            view.wake(node)
        return plan

    def widths(self) -> list[int]:
        return [len(s.gpus) for s in self.states]


def test_jobs_start_grow_shrink_and_wait_as_wished() -> None:
    world = World("2x4", 3)
    world.decide({0: 4, 1: 2})
    assert world.widths() == [4, 2, 0]  # nothing was said of the third
    assert world.decide() == Plan()  # and wishes hold
    world.decide({1: 4})
    assert world.widths() == [4, 4, 0]
    plan = world.decide({0: 2, 2: 2})
    assert world.widths() == [2, 4, 2]
    assert not plan.evict
    plan = world.decide({1: 0})
    assert plan.evict == [1]
    assert world.widths() == [2, 0, 2]
    world.decide({1: 3})
    assert world.widths() == [2, 3, 2]


def test_what_is_as_wished_is_left_alone() -> None:
    world = World("2x4", 3)
    world.decide({0: 3, 1: 1, 2: 2})
    where = [s.gpus for s in world.states]
    assert world.decide({0: 3, 1: 1, 2: 4}).place[0].job_id == 2
    assert [s.gpus for s in world.states[:2]] == where[:2]


def test_when_all_fits_the_widest_is_placed_first_on_whole_nodes() -> None:
    world = World("2x4", 3)
    plan = world.decide({0: 1, 1: 1, 2: 4})
    assert [p.job_id for p in plan.place] == [2, 0, 1]
    assert len({world.view.cluster.node_of[g] for g in world.states[2].gpus}) == 1


def test_a_job_that_waits_comes_before_one_that_should_grow() -> None:
    world = World("1x4", 2)
    world.decide({0: 2})
    plan = world.decide({0: 4, 1: 1})
    assert world.widths() == [2, 1]
    # It grows once it can have all of it.
    assert world.decide() == Plan()
    world.view.end(world.states[1])
    world.decide()
    assert world.widths()[0] == 4
    assert not plan.waits


def test_waiting_jobs_go_in_the_order_of_the_queue_and_are_told_why_they_wait() -> None:
    world = World("1x4", 3)
    plan = world.decide({0: 3, 1: 3, 2: 1})
    assert world.widths() == [3, 0, 1]
    assert plan.waits == {1: "no-free-gpu"}
    world.view.end(world.states[0])
    world.decide()
    assert world.widths()[1:] == [3, 1]


def test_a_part_at_once_where_sizing_agrees_then_all_of_it() -> None:
    world = World("1x4", 2, part=True)
    world.decide({0: 3, 1: 3})
    assert world.widths() == [3, 1]
    world.view.end(world.states[0])
    world.decide()
    assert world.widths()[1] == 3
    stubborn = World("1x4", 2)
    stubborn.decide({0: 3, 1: 3})
    assert stubborn.widths() == [3, 0]


def test_growing_jobs_take_a_part_only_where_no_more_nodes_can_come() -> None:
    world = World("1x4", 2, part=True)
    world.decide({0: 1, 1: 1})
    world.decide({0: 4})
    assert world.widths() == [3, 1]
    world = World("2x4", 2, Sleep(after_s=0.0), part=True)
    world.view.sleep(1)
    world.decide({0: 1, 1: 1})
    plan = world.decide({0: 6})
    assert plan.wake == [1]
    assert world.widths() == [1, 1]
    world.view.awake(1)
    world.decide()
    assert world.widths() == [6, 1]


def test_a_job_whose_node_failed_is_placed_again() -> None:
    world = World("2x4", 2)
    world.decide({0: 4, 1: 2})
    world.view.stop(world.states[0], returned=True)
    world.view.node_down(0)
    world.decide()
    assert world.widths() == [0, 2]
    world.view.node_up(0)
    world.decide()
    assert world.widths() == [4, 2]


def test_jobs_that_find_no_place_on_the_nodes_that_stay_are_wanted_on() -> None:
    world = World(rented("3x4"), 3, Rent(), kept=[(0.0, 3), (25.0, 1), (45.0, 2)])
    world.decide({0: 2, 1: 2, 2: 2})
    for node in sorted(world.view.waking):
        world.view.awake(node)
    world.decide()  # 20 s
    assert world.widths() == [2, 2, 2]
    plan = world.decide()  # 30 s
    assert plan.evict == [2]
    assert len(plan.sleep) == 2
    assert len(world.decide().wake) == 0  # 40 s
    plan = world.decide()  # 50 s
    for node in plan.wake:
        world.view.awake(node)
    world.decide()
    assert world.widths() == [2, 2, 2]


def test_a_job_is_moved_whole_off_a_node_that_leaves() -> None:
    world = World(rented("3x4"), 2, Rent(), kept=[(0.0, 3), (25.0, 1)])
    world.decide({0: 3, 1: 3})
    for node in sorted(world.view.waking):
        world.view.awake(node)
    world.decide()
    assert {world.view.cluster.node_of[g] for s in world.states for g in s.gpus} == {0, 1}
    world.view.end(world.states[0])
    plan = world.decide()
    assert not plan.evict
    assert len(plan.sleep) == 2
    assert len(world.states[1].gpus) == 3
    assert len(world.view.asleep) == 2


def test_a_drained_gpu_under_a_job_does_not_cost_it_its_place() -> None:
    # Four GPUs, one of them drained while a job is on it: the job wants one more, of which there are none.
    world = World("1x4", 1)
    world.decide({0: 3})
    world.view.drain(world.states[0].gpus[0])
    plan = world.decide({0: 4})
    assert not plan.evict
    assert world.widths() == [3]


def test_what_is_missing_is_what_nodes_are_rented_for() -> None:
    world = World(rented("4x4"), 2, Rent())
    assert len(world.decide({0: 4, 1: 4}).wake) == 2
    assert world.decide().wake == []  # they are on their way
    for node in sorted(world.view.waking):
        world.view.awake(node)
    world.decide()
    assert world.widths() == [4, 4]
    assert len(world.decide({0: 8}).wake) == 1
    # A narrower wish sends the rest back.
    for node in sorted(world.view.waking):
        world.view.awake(node)
    world.decide()
    assert world.widths() == [8, 4]
    assert len(world.decide({0: 4}).sleep) == 1


@given(
    seed=st.integers(0, 100_000),
    power=st.sampled_from(["", "rent", "rent-nodes", "sleep"]),
    mtbf_h=st.sampled_from([None, 0.1]),
    restart_s=st.sampled_from([0.0, 12.0]),
    shape=st.sampled_from(["4x4", "2x2+2x4", "1x16"]),
)
@settings(max_examples=80, deadline=None)
def test_whatever_sizing_wishes_every_job_ends(
    seed: int, power: str, mtbf_h: float | None, restart_s: float, shape: str
) -> None:
    rng = random.Random(seed)
    cluster = rented(shape, rng.choice((0.0, 25.0)), rng.choice((0.0, 60.0)), rng.choice((1.0, 300.0)))
    powering: Powering | None = None
    if power:
        powering = Sleep(after_s=rng.choice((0.0, 50.0))) if power == "sleep" else Rent(rng.choice((0.0, 30.0)))
    sizing = Whims(seed=seed, partial=rng.choice((0.0, 0.5, 1.0)), resizes_nodes=power == "rent-nodes")
    simulation = Witnessed if power.startswith("rent") else Simulation
    world = SimWorld(restart_s=restart_s, failures=Failures(mtbf_h, 0.02) if mtbf_h else None, seed=seed)
    run = simulation(random_trace(rng), cluster, stack_of(sizing, powering), world)
    result = run.run()  # checks the laws of every plan, jobs in = jobs out, GPU-seconds and joules
    assert (result.jobs["jct_s"] > 0.0).all()
    if isinstance(run, Witnessed):
        check_bill(cluster, result, run.rentals)


def test_a_law_for_nodes_named_twice() -> None:
    view = View(rented("2x4"))
    view.sleep(1)
    with pytest.raises(laws.LawBrokenError, match="twice"):
        laws.check(view, Plan(wake=[1, 1]))
    with pytest.raises(laws.LawBrokenError, match="twice"):
        laws.check(view, Plan(sleep=[0, 0]))


def test_nodes_that_a_job_waits_for_stay_awake_until_the_others_have_woken() -> None:
    # From 100 s on one node is idle; the others sleep, and wake for the second job, which wants all three.
    trace = make_trace([(0, 4, 100), (105, 12, 50)], min_gpus=[4, 12], max_gpus=[4, 12])
    for policy in ("sizing=equal:interval_s=5,powering=sleep:after_s=10", "fifo,powering=sleep:after_s=10"):
        result = Simulation(trace, parse_shape("3x4"), registry.build(policy)).run()
        assert result.jobs["wait_s"][1] == pytest.approx(parse_shape("3x4").nodes[0].wake_s, abs=5.0)
