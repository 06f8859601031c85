"""Jobs on the fewest nodes that hold them, or nowhere."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy import registry
from fairlead.policy.placing.consolidated import Consolidated
from fairlead.policy.plan import GPUS_SCATTERED
from fairlead.policy.view import JobState, View
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from tests.conftest import make_trace
from tests.policy.test_explain import World


def holds(width: int, free: list[int], usable: list[int]) -> bool:
    """Whether some set of the fewest nodes holds a job, all but one of them empty and taken whole: all sets tried."""
    nodes = range(len(free))
    fewest = next(
        k for k in range(1, len(free) + 1)
        if any(sum(usable[n] for n in some) >= width for some in itertools.combinations(nodes, k))
    )  # fmt: skip
    for some in itertools.combinations(nodes, fewest):
        for last in some:
            others = [n for n in some if n != last]
            rest = width - sum(usable[n] for n in others)
            if all(free[n] == usable[n] > 0 for n in others) and 0 < rest <= free[last]:
                return True
    return False


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_set_is_found_where_trying_all_sets_finds_one(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(["4x4", "1x8+3x4", "2x8+2x2+1x1", "3x3"]))
    cluster = parse_shape(shape)
    view = View(cluster)
    for gpu in data.draw(st.sets(st.integers(0, cluster.gpus - 1), max_size=3)):
        view.drain(gpu)
    taken = data.draw(st.sets(st.sampled_from(sorted(view.free)), max_size=view.free.count))
    view.free.take(tuple(sorted(taken)))
    sizes = [
        cluster.nodes[n].gpus - sum(cluster.node_of[g] == n for g in view.drained) for n in range(len(cluster.nodes))
    ]
    width = data.draw(st.integers(1, sum(sizes)))
    found = Consolidated().pick(JobState(Job(0, "a", 0.0, width)), width, view.free, view)
    assert (found is not None) == holds(width, view.free.counts, sizes)
    if found is not None:
        assert len(set(found)) == width
        assert all(g in view.free for g in found)
        by_node = [sum(cluster.node_of[g] == n for g in found) for n in range(len(sizes))]
        assert sum(0 < part < size for part, size in zip(by_node, sizes, strict=True)) <= 1


def run(jobs: list[tuple[float, int, float]], spec: str, shape: str = "2x4", **columns: list[object]) -> Result:
    return Simulation(make_trace(jobs, **columns), parse_shape(shape), registry.build(spec)).run()


# Two long and two short jobs of two GPUs fill two nodes of four; when the short ones are gone, each has two free.
SCATTERED = [(0, 2, 100), (0, 2, 10), (0, 2, 100), (0, 2, 10)]


def test_a_job_waits_for_one_node_though_enough_gpus_are_free() -> None:
    assert run([*SCATTERED, (10, 4, 5)], "fifo").jobs["wait_s"][4] == 0
    assert run([*SCATTERED, (10, 4, 5)], "fifo,placing=consolidated").jobs["first_start_s"][4] == 100


def test_a_job_ahead_in_order_gets_its_node_and_whoever_must_leave_moves() -> None:
    result = run([*SCATTERED, (10, 4, 5)], "priority,placing=consolidated", priority=[1, 1, 1, 1, 9])
    assert result.jobs["first_start_s"][4] == 10
    assert (result.summary["moves"], result.summary["preemptions"]) == (1, 0)


def test_a_job_that_finds_no_place_does_not_keep_those_behind_from_theirs() -> None:
    jobs = [*SCATTERED, (10, 4, 5), (10, 2, 5)]
    result = run(jobs, "priority,placing=consolidated", priority=[5, 5, 5, 5, 3, 1])
    assert result.jobs["first_start_s"].to_list()[4:] == [100, 10]
    assert result.summary["preemptions"] == 0


def test_a_node_wakes_for_a_job_whose_gpus_are_scattered() -> None:
    # The third node sleeps; the two others have two free GPUs each, and will for long.
    jobs = [(submit_s, width, 10 * lasts_s) for submit_s, width, lasts_s in SCATTERED]
    result = run([*jobs, (200, 4, 5)], "fifo,placing=consolidated,powering=sleep:after_s=0", "3x4:V100")
    assert result.jobs["first_start_s"][4] == 200 + parse_shape("3x4:V100").nodes[2].wake_s


def test_it_is_told_that_free_gpus_are_scattered() -> None:
    world = World("fifo,placing=consolidated", "2x4")
    for gpus in (2, 2, 2, 2, 4):
        world.submit(gpus)
    world.decide()
    for done in (1, 3):
        world.view.end(world.view.running[done])
    plan = world.decide()
    assert plan.waits == {4: GPUS_SCATTERED}
