"""Drained GPUs of nodes that are off are none to wait for, and none to wake a node for."""

from __future__ import annotations

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy import registry
from fairlead.policy.plan import Plan
from fairlead.policy.powering.rent import Rent
from fairlead.policy.sharing.pairs import can_wake
from fairlead.policy.sizing.pollux import Pollux
from fairlead.policy.view import JobState, View
from fairlead.sim import world
from fairlead.sim.simulation import Simulation
from tests.conftest import make_trace
from tests.policy.test_elastic import World
from tests.sim.toys import rented


def asleep(shape: str, drained: tuple[int, ...], *nodes: int, rental: bool = False) -> View:
    """A cluster with some GPUs drained, before or after their nodes went to sleep, and a free GPU nowhere else."""
    view = View(rented(shape) if rental else parse_shape(shape))
    for gpu in drained[::2]:
        view.drain(gpu)
    for node in nodes:
        view.sleep(node)
    for gpu in drained[1::2]:
        view.drain(gpu)
    view.decided()
    return view


def wait(view: View, number: int, gpus: int) -> JobState:
    state = JobState(Job(number, str(number), view.now_s, gpus))
    view.arrive(state)
    return state


NODE_1 = (4, 5, 6, 7)


def test_gpus_that_take_jobs_are_counted_by_node() -> None:
    view = asleep("3x4", (*NODE_1, 8), 1, 2)
    assert view.usable_gpus(view.asleep) == 3
    assert view.usable_gpus((0, 1)) == 4
    assert view.drained_nodes() == {1}
    view.undrain(5)
    assert view.usable_gpus((1,)) == 1
    assert view.drained_nodes() == set()


@pytest.mark.parametrize("powering", ["sleep", "rent"])
@pytest.mark.parametrize(
    ("drained", "wanted", "woken"),
    [
        ((), 4, [0]),
        ((0, 1, 2, 3), 4, [1]),  # all of a node
        ((0, 1, 2), 4, [0, 1]),  # a part of it
        ((0, 4, 8), 9, [0, 1, 2]),
        ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 1, []),
    ],
)
def test_nodes_are_woken_for_gpus_that_take_jobs(
    powering: str, drained: tuple[int, ...], wanted: int, woken: list[int]
) -> None:
    view = asleep("3x4", drained, 0, 1, 2, rental=powering == "rent")
    wait(view, 0, wanted)
    stack = registry.build(f"fifo,powering={powering}")
    assert stack.decide(view).wake == woken


@pytest.mark.parametrize("powering", ["sleep", "rent"])
def test_drained_gpus_of_a_node_that_is_waking_are_none_on_the_way(powering: str) -> None:
    view = asleep("2x4", (0, 1, 2), 0, 1, rental=powering == "rent")
    view.wake(0)
    wait(view, 0, 2)
    stack = registry.build(f"fifo,powering={powering}")
    stack.explains = True
    plan = stack.decide(view)
    assert plan.wake == [1]
    assert plan.waits == {0: "node-booting"}
    view.decided()
    view.wake(1)
    view.drain(3)
    assert stack.decide(view).waits == {0: "node-booting"}
    view.decided()
    view.drain(5)
    view.drain(6)
    view.drain(7)
    assert stack.decide(view).waits == {0: "no-free-gpu"}, "one GPU is to come and the job wants two"


def test_a_sleeping_node_is_woken_when_its_gpus_are_put_back_to_use() -> None:
    view = asleep("1x4", (0, 1, 2, 3), 0)
    wait(view, 0, 1)
    stack = registry.build("fifo,powering=sleep")
    assert stack.decide(view).wake == []
    view.decided()
    view.undrain(2)
    assert stack.decide(view).wake == [0]


@pytest.mark.parametrize("policy", ["fifo", "las", "sizing=equal", "sizing=pollux", "sharing=eaco", "sharing=gandiva"])
@pytest.mark.parametrize("drained", [NODE_1, (4, 5, 6), (0, 1, 4, 5, 8)])
def test_jobs_that_fit_what_is_not_drained_run_though_nodes_sleep(policy: str, drained: tuple[int, ...]) -> None:
    # Everything is asleep when the second job comes, which wants all that is left.
    left = 12 - len(drained)
    trace = make_trace([(0, 1, 100), (5000, left, 100)], min_gpus=[1, left])
    stack = registry.build(f"{policy},powering=sleep:after_s=60")
    result = Simulation(trace, parse_shape("3x4"), stack, world.World(drained=drained)).run()
    assert result.jobs["wait_s"][1] <= 120 + 60, "one wake-up, and the interval of a sizing"


def test_a_job_does_not_wait_for_drained_gpus_rather_than_pair() -> None:
    view = asleep("2x4", NODE_1, 1)
    assert not can_wake(4, 0, view)
    view.undrain(6)
    assert not can_wake(4, 0, view)
    assert can_wake(1, 0, view)


def test_rounds_let_no_more_jobs_in_than_gpus_can_come() -> None:
    # Eight GPUs take jobs: the second in line can't have its six beside the first's four, and the third is behind it.
    view = asleep("3x4", NODE_1, 1, 2)
    for number, gpus in enumerate((4, 6, 2)):
        wait(view, number, gpus)
    stack = registry.build("fifo,powering=sleep", round_s=60.0)
    plan = stack.decide(view)
    assert [place.job_id for place in plan.place] == [0]
    assert list(plan.waits) == []
    assert plan.wake == [2]


def test_an_interval_shares_out_the_gpus_of_sleeping_nodes_that_take_jobs() -> None:
    view = asleep("3x4", (*NODE_1, 8), 1, 2)
    assert Pollux()._gpus(view) == 7


def test_a_job_grows_by_a_part_where_only_drained_gpus_sleep() -> None:
    world = World("2x4", 2, part=True)
    world.view.sleep(1)
    for gpu in NODE_1:
        world.view.drain(gpu)
    world.decide({0: 1, 1: 1})
    world.decide({0: 6})
    assert world.widths() == [3, 1]


def switched(world: World) -> Plan:
    """One decision, after which what was rented has booted."""
    plan = world.decide()
    for node in sorted(world.view.waking):
        world.view.awake(node)
    return plan


def test_where_sizing_names_a_number_of_nodes_a_drained_one_is_replaced_and_given_back() -> None:
    world = World(rented("3x4"), 1, Rent(), kept=[(0.0, 1), (45.0, 0)])
    assert switched(world).wake == [0]  # 10 s
    for gpu in range(4):
        world.view.drain(gpu)
    plan = switched(world)  # 20 s
    assert plan.wake == [1]
    assert plan.sleep == [0]
    plan = world.decide({0: 4})  # 30 s
    assert plan.wake == plan.sleep == []
    assert world.states[0].gpus == NODE_1
    world.view.end(world.states[0])
    world.decide()
    assert world.decide().sleep == [1]  # 50 s
    assert world.view.asleep == {0, 1, 2}


def test_a_drained_node_is_not_paid_for_while_others_are_wanted() -> None:
    world = World(rented("3x4"), 2, Rent())
    world.decide({0: 4})
    world.view.awake(0)
    for gpu in range(4):
        world.view.drain(gpu)
    plan = world.decide({1: 4})
    assert plan.sleep == [0]
    assert plan.wake == [1, 2]


def test_the_node_with_the_fewest_jobs_is_given_up_however_many_gpus_are_drained() -> None:
    world = World(rented("2x4"), 1, Rent(), kept=[(0.0, 2), (25.0, 1)])
    switched(world)  # 10 s
    world.decide({0: 2})  # 20 s
    (node,) = {world.view.cluster.node_of[g] for g in world.states[0].gpus}
    other = 1 - node
    for gpu in range(4 * other, 4 * other + 3):
        world.view.drain(gpu)
    plan = world.decide()  # 30 s
    assert plan.sleep == [other]
    assert plan.evict == plan.place == []
