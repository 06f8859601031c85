"""The sizings to compare with: Pollux, Sia, Optimus, equal and static widths, on cases small enough to try them all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.model.profile import Power, Profile
from fairlead.model.training import FixedBatch
from fairlead.policy.sizing.equal import Equal
from fairlead.policy.sizing.goodput import Interval, restart_factor
from fairlead.policy.sizing.optimus import Optimus
from fairlead.policy.sizing.pollux import Pollux
from fairlead.policy.sizing.sia import Sia
from fairlead.policy.sizing.static import Static
from fairlead.policy.view import JobState, View
from tests.sim.toys import rented, toy_app


class Told:
    """What jobs say of themselves, and what the oracle knows."""

    def __init__(self, remaining_s: dict[int, float] | None = None, epoch: int = 0) -> None:
        self._remaining_s = remaining_s or {}
        self._epoch = epoch

    def done(self, state: JobState) -> int:
        return self._epoch

    def remaining_s(self, state: JobState) -> float:
        return self._remaining_s[state.job.id]


def view_of(shape: str, told: Told | None = None) -> View:
    told = told or Told()
    view = View(parse_shape(shape), oracle=told, epochs=told)  # type: ignore[arg-type]
    view.now_s = 1000.0
    return view


def add(view: View, number: int, power: float, gpus: Sequence[int] = (), **spec: object) -> JobState:
    about = {"submit_s": 0.0, "gpus": 1, "min_gpus": 1, "max_gpus": 16, **spec}
    profile = Profile(f"p{number}", speedup=Power(power), restart_s=30.0)
    state = JobState(Job(number, str(number), profile=profile, **about))  # type: ignore[arg-type]
    view.arrive(state)
    if gpus:
        view.start(state, tuple(gpus))
    return state


def random_view(rng: random.Random, jobs: int) -> tuple[View, list[JobState], list[float]]:
    view, powers, free = view_of("2x3"), [rng.uniform(0.2, 1.0) for _ in range(jobs)], list(range(6))
    states = []
    for i, power in enumerate(powers):
        gpus = tuple(free.pop(0) for _ in range(min(len(free), rng.choice((0, 0, 1, 2)))))
        least = rng.choice((1, 1, 2))
        states.append(add(view, i, power, gpus, submit_s=rng.uniform(0, 999), min_gpus=min(least, max(len(gpus), 1))))
        states[-1].starts += rng.randrange(3) if gpus else 0
    return view, states, powers


def kept(state: JobState, width: int, now_s: float) -> float:
    """What a restart leaves of a speed."""
    return 1.0 if width == len(state.gpus) else restart_factor(state, 30.0, now_s)


@pytest.mark.parametrize("seed", range(25))
def test_pollux_takes_the_best_power_mean_of_all_allocations(seed: int) -> None:
    view, states, powers = random_view(random.Random(seed), 3)
    chosen = Pollux().allot(view)

    def cost(i: int, k: int) -> float:
        if k and not states[i].job.min_gpus <= k:
            return float("inf")
        fair = 2  # six GPUs for three jobs
        return 1 / (kept(states[i], k, 1000.0) * (k / fair) ** powers[i] + 1e-3) if k else 1e3

    # Widths within a node, and whole nodes.
    options = [c for c in itertools.product((0, 1, 2, 3, 6), repeat=3) if sum(c) <= 6]
    best = min(sum(cost(i, k) for i, k in enumerate(c)) for c in options)
    assert sum(cost(i, chosen[i]) for i in range(3)) == pytest.approx(best)
    assert sum(chosen.values()) <= 6


@pytest.mark.parametrize("seed", range(25))
def test_sia_takes_the_best_assignment_and_nobody_more_than_doubles(seed: int) -> None:
    view, states, powers = random_view(random.Random(seed), 3)
    chosen = Sia().allot(view)

    def cost(i: int, k: int) -> float:
        state = states[i]
        least, have = state.job.min_gpus, len(state.gpus)
        if k and not least <= k <= max(1, least, 2 * have):
            return float("inf")
        return (kept(state, k, 1000.0) * (k / least) ** powers[i] + 1e-3) ** -0.5 if k else 1e-3**-0.5

    options = [c for c in itertools.product((0, 1, 2, 3, 6), repeat=3) if sum(c) <= 6]
    best = min(sum(cost(i, k) for i, k in enumerate(c)) for c in options)
    assert sum(cost(i, chosen[i]) for i in range(3)) == pytest.approx(best)


def test_restarts_count_by_age() -> None:
    view = view_of("1x4")
    state = add(view, 0, 0.5, (0,))
    assert restart_factor(state, 30.0, 1000.0) == pytest.approx(1000 / 1030)
    state.starts = 3
    assert restart_factor(state, 30.0, 1000.0) == pytest.approx((1000 - 60) / 1030)
    assert restart_factor(state, 30.0, 40.0) == 0.0
    assert restart_factor(state, 0.0, 0.0) == 1.0


@pytest.mark.parametrize("seed", range(25))
def test_optimus_is_the_best_of_all_allocations_where_gains_shrink(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {i: rng.uniform(10, 1000) for i in range(3)}
    powers = [rng.uniform(0.2, 1.0) for _ in range(3)]
    view = view_of("1x6", Told(sizes))
    for i, power in enumerate(powers):
        add(view, i, power)
    chosen = Optimus().allot(view)
    options = (c for c in itertools.product(range(1, 7), repeat=3) if sum(c) <= 6)
    best = min(sum(sizes[i] / k ** powers[i] for i, k in enumerate(c)) for c in options)
    assert sum(sizes[i] / chosen[i] ** powers[i] for i in range(3)) == pytest.approx(best)


def test_optimus_counts_what_is_left_at_the_speed_of_one_gpu() -> None:
    # Both have 100 s left where they are; the one on four GPUs has more work.
    view = view_of("1x8", Told({0: 100.0, 1: 100.0}))
    add(view, 0, 1.0, (0, 1, 2, 3))
    add(view, 1, 1.0, (4,))
    chosen = Optimus().allot(view)
    assert chosen[0] > chosen[1]
    assert sum(chosen.values()) == 8


def test_optimus_takes_the_penalty_for_spanning_nodes_out_of_what_is_left() -> None:
    # On two nodes at half the speed: 100 s left there are 200 s on one GPU and 50 s on the four of a node.
    view = view_of("2x4", Told({0: 100.0}))
    state = add(view, 0, 1.0, (0, 1, 4, 5))
    profile = Profile("p0", speedup=Power(1.0), locality=2.0)
    state.job = replace(state.job, profile=profile)
    sizing = Optimus()
    sizing.allot(view)
    assert dict(zip(sizing._widths, sizing._left_s(state, view), strict=True)) == {
        1: 200,
        2: 100,
        3: 200 / 3,
        4: 50,
        8: 50,
    }


def test_optimus_gives_everybody_one_first_and_the_least_to_those_who_cannot_do_with_one() -> None:
    view = view_of("1x4", Told({0: 1e6, 1: 1.0, 2: 1.0}))
    add(view, 0, 1.0)
    add(view, 1, 1.0, min_gpus=2)
    add(view, 2, 1.0)
    assert Optimus().allot(view) == {0: 1, 1: 2, 2: 1}
    view = view_of("1x4", Told({0: 1e6, 1: 1.0}))
    add(view, 0, 1.0, max_gpus=2)
    add(view, 1, 0.0)
    assert Optimus().allot(view) == {0: 2, 1: 1}  # who gains nothing from more gets no more


def test_optimus_knows_the_curves_of_jobs_that_keep_their_batch() -> None:
    app = toy_app()
    profile = Profile("toy", training=app)
    sizing, view = Optimus(known=True), view_of("1x8")
    state = JobState(Job(0, "0", 0.0, 1, profile=profile, max_gpus=8, batch=64))
    view.arrive(state)
    sizing.allot(view)
    row = sizing._curves.row(state, 1, (1, 2, 4, 8), 8)
    assert row == pytest.approx([FixedBatch(app, 64).goodput_at(1, k, 1) for k in (1, 2, 4, 8)])


@pytest.mark.parametrize(
    ("jobs", "shape", "widths"),
    [
        ([{}, {}], "2x4", [4, 4]),
        ([{}, {}, {}], "2x4", [2, 3, 3]),
        ([{"max_gpus": 1}, {}], "2x4", [1, 4]),  # seven do not pack well
        ([{"min_gpus": 6}, {}], "2x4", [6, 2]),
        ([{}] * 10, "2x4", [1] * 8 + [0] * 2),
        ([{"min_gpus": 4}, {"min_gpus": 8}, {}], "2x4", [4, 0, 4]),
    ],
)
def test_equal_shares(jobs: list[dict[str, object]], shape: str, widths: list[int]) -> None:
    view = view_of(shape)
    for i, spec in enumerate(jobs):
        add(view, i, 0.5, **spec)
    assert list(Equal().allot(view).values()) == widths


def test_static_widths_are_the_nearest_that_a_job_can_have() -> None:
    view = view_of("2x4")
    states = [add(view, 0, 1.0), add(view, 1, 1.0, min_gpus=6), add(view, 2, 1.0, max_gpus=2)]
    assert [Static(4).width(s, view) for s in states] == [4, 6, 2]
    assert [Static(100).width(s, view) for s in states] == [8, 8, 2]
    with pytest.raises(ValueError, match="at least 1"):
        Static(0)


@pytest.mark.parametrize("sizing", [Pollux(), Sia(), Optimus(), Equal()], ids=lambda s: type(s).__name__)
def test_they_are_asked_once_an_interval_and_share_out_nodes_that_sleep(sizing: Interval) -> None:
    view = view_of("2x4", Told({0: 100.0, 1: 100.0}))
    view.sleep(1)
    add(view, 0, 1.0)
    assert 0 < sizing.allot(view)[0] <= 8
    assert sizing.wake_s(view) == 1020.0
    add(view, 1, 1.0)
    assert sizing.allot(view) == {}
    view.now_s = 1020.0
    assert set(sizing.allot(view)) == {0, 1}
    assert sizing._gpus(view) == 8
    empty = view_of("1x4")
    assert sizing.wake_s(empty) is None


def test_pollux_resizes_the_cluster_to_its_target_on_nodes_of_any_size() -> None:
    told = Told()
    for shape in ("4x4", "1x4+1x8+2x2"):
        view = View(rented(shape), oracle=told, epochs=told)  # type: ignore[arg-type]
        view.now_s = 1000.0
        for node in range(4):
            view.sleep(node)
        for i in range(3):
            add(view, i, 0.5)
        sizing = Pollux(target=0.5)
        assert sizing.nodes(view) == 1
        sizing.allot(view)
        assert 1 <= sizing.nodes(view) <= 4  # type: ignore[operator]
    # Speed grows with the root of the GPUs: at four GPUs each, speedups are 2, half a speedup a GPU.
    view = View(rented("4x4"), oracle=told, epochs=told)  # type: ignore[arg-type]
    view.now_s = 1000.0
    for node in range(4):
        view.sleep(node)
    for i in range(3):
        add(view, i, 0.5)
    sizing = Pollux(target=0.5)
    sizing.allot(view)
    assert sizing.nodes(view) == 3


def test_pollux_autoscaling_counts_jobs_that_need_more_than_one_gpu() -> None:
    told = Told()
    sizes = []
    for least in (1, 2):
        view = View(rented("4x4"), oracle=told, epochs=told)  # type: ignore[arg-type]
        view.now_s = 1000.0
        for node in range(4):
            view.sleep(node)
        for i in range(3):
            add(view, i, 0.5, min_gpus=least)
        sizing = Pollux(target=0.5)
        sizing.allot(view)
        sizes.append(sizing.nodes(view))
    assert sizes == [3, 3]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Pollux, {"target": 1.0}),
        (Pollux, {"p": 0.0}),
        (Sia, {"p": 0.5}),
        (Equal, {"interval_s": 0.0}),
        (Sia, {"widest": 0}),
    ],
)
def test_options_that_make_no_sense_are_refused(make: type[Interval], options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="="):
        make(**options)  # type: ignore[arg-type]
