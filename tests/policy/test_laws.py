"""Plans that no driver may carry out."""

from __future__ import annotations

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy.laws import LawBrokenError, check
from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import JobState, View


@pytest.fixture
def view() -> View:
    """Jobs 0 (two GPUs, running on 0 and 1), 1 (one GPU, waiting), 2 (a service sharing GPU 2), 3 (a service)."""
    view = View(parse_shape("2x2:T4"))
    jobs = [
        Job(0, "a", 0.0, 2, min_gpus=2, max_gpus=2),
        Job(1, "b", 0.0, 1, memory_mib=9000.0),
        Job(2, "s", 0.0, 1, kind="service", memory_mib=9000.0),
        Job(3, "t", 0.0, 1, kind="service"),
    ]
    states = [JobState(j) for j in jobs]
    for state in states:
        view.arrive(state)
    view.start(states[0], (0, 1))
    view.start(states[2], (2,), shared=True)
    view.decided()
    return view


def test_a_fair_plan_passes(view: View) -> None:
    check(view, Plan())
    check(view, Plan(place=[Place(1, (3,))]))
    check(view, Plan(evict=[0], place=[Place(1, (0,)), Place(3, (1,))]))
    # A move may use GPUs that the plan itself frees.
    check(view, Plan(place=[Place(0, (1, 3)), Place(1, (0,))]))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(evict=[1]), "does not run"),
        (Plan(evict=[9]), "does not run"),
        (Plan(place=[Place(9, (3,))]), "not in the system"),
        (Plan(place=[Place(1, (3,)), Place(1, (3,))]), "decides twice"),
        (Plan(evict=[0], place=[Place(0, (0, 1))]), "decides twice"),
        (Plan(place=[Place(1, (0,))]), "not free and not shared"),
        (Plan(place=[Place(1, (0,), shared=True)]), "not free and not shared"),
        (Plan(place=[Place(1, (2,))]), "not free and not shared"),
        (Plan(place=[Place(0, (0,))]), "gets 1 GPUs, it runs on 2 to 2"),
        (Plan(place=[Place(1, (3, 3))]), "gets 2 GPUs"),
        (Plan(place=[Place(0, (3, 0))]), "ascending"),
        (Plan(place=[Place(0, (3, 4))]), "of those that exist"),
        (Plan(place=[Place(3, (2,), shared=True)]), "already has a service"),
        (Plan(place=[Place(1, (2,), shared=True)]), "18000 MiB wanted of 15360"),
        (Plan(place=[Place(1, (3,)), Place(3, (3,))]), "not free and not shared"),
    ],
)
def test_a_plan_that_breaks_a_law_is_refused(view: View, plan: Plan, why: str) -> None:
    with pytest.raises(LawBrokenError, match=why):
        check(view, plan)


def test_a_node_that_is_down_takes_nobody(view: View) -> None:
    view.stop(view.running[2])
    view.node_down(1)
    with pytest.raises(LawBrokenError, match="node that is down"):
        check(view, Plan(place=[Place(1, (3,))]))


def test_a_drained_gpu_takes_nobody_but_keeps_whom_it_has(view: View) -> None:
    view.drain(3)
    view.drain(0)
    with pytest.raises(LawBrokenError, match="drained"):
        check(view, Plan(place=[Place(1, (3,))]))
    view.end(view.running[0])
    assert set(view.free) == {1}
    assert view.up_gpus == 2
