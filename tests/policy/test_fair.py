"""Fair share: GPU-hours by weight, whatever the sizes; a guarantee; groups; parts of shared GPUs."""

from __future__ import annotations

import random

import polars as pl
import pytest

from fairlead.errors import InputError
from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy import registry
from fairlead.policy.usage import Usage, parts_held
from fairlead.policy.view import JobState, View
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace

DAY_S = 86400.0
Sizes = dict[tuple[str, str], tuple[int, float]]
"""By group and user: GPUs and seconds of each of their jobs."""


def endless(sizes: Sizes, gpus: int) -> Trace:
    """Everybody has more waiting than a day holds."""
    rows = []
    for (group, user), (width, lasts_s) in sizes.items():
        rows += [(group, user, width, lasts_s)] * (int(1.2 * DAY_S * gpus / (width * lasts_s)) + 50)
    return at_once(rows)


def at_once(rows: list[tuple[str, str, int, float]]) -> Trace:
    """Jobs by group, user, GPUs and seconds, all there at the beginning."""
    frame = pl.DataFrame(rows, schema=["group", "user", "gpus", "duration_s"], orient="row")
    numbered = frame.with_row_index("job_id").with_columns(pl.col("job_id").cast(pl.String), submit_s=pl.lit(0.0))
    return Trace.from_columns(numbered)


def gpu_hours(sizes: Sizes, spec: str, shape: str = "8x8") -> dict[str, float]:
    """What each user has held after a day."""
    cluster = parse_shape(shape)
    return held(endless(sizes, cluster.gpus), spec, shape)


def held(trace: Trace, spec: str, shape: str = "8x8") -> dict[str, float]:
    """GPU-hours of each user after a day."""
    run = Simulation(trace, parse_shape(shape), registry.build(spec))
    run.advance(DAY_S)
    usage = run.view.usage
    assert usage is not None
    return {owner[1]: usage.total_gpu_s(owner, DAY_S) / 3600.0 for owner in usage.owners()}


@pytest.mark.parametrize(
    "ann_bob",
    [
        ((1, 3600.0), (1, 3600.0)),
        ((1, 600.0), (8, 18000.0)),
        ((64, 1800.0), (1, 900.0)),
        ((1, 900.0), (64, 1800.0)),
        ((3, 5000.0), (5, 1234.0)),
    ],
)
def test_weights_of_two_to_one_give_two_to_one_whatever_the_sizes(
    ann_bob: tuple[tuple[int, float], tuple[int, float]],
) -> None:
    ann, bob = ann_bob
    had = gpu_hours({("", "ann"): ann, ("", "bob"): bob}, "ordering=fair:weights=ann=2")
    assert had["ann"] / had["bob"] == pytest.approx(2.0, rel=0.02)
    assert sum(had.values()) > 0.97 * 64 * 24


@pytest.mark.parametrize("seed", range(8))
def test_weights_of_two_to_one_give_two_to_one_whatever_the_mix_of_sizes(seed: int) -> None:
    # A single job is at most 1 % of the day's GPU-hours: nothing is preempted, so the last ones make a difference.
    rows = mixed(seed, (1, 4, 8, 16), (600.0, 1800.0, 3600.0))
    had = held(at_once(rows), "ordering=fair:weights=ann=2")
    assert had["ann"] / had["bob"] == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("seed", [0, 1, 2, 5, 33, 44, 48, 56])
def test_with_preemption_so_they_do_for_jobs_as_wide_as_the_cluster_and_hours_long(seed: int) -> None:
    rows = mixed(seed, (1, 4, 8, 16, 64), (1800.0, 7200.0, 36000.0))
    had = held(at_once(rows), "ordering=fair:weights=ann=2:preempt=true")
    assert had["ann"] / had["bob"] == pytest.approx(2.0, rel=0.02)


def test_a_job_that_passed_a_wider_one_makes_room_at_once_also_after_a_restart() -> None:
    stack = registry.build("ordering=fair:preempt=true:slice_s=1000:guarantee_s=0")
    view = View(parse_shape("1x2"))
    for number, (user, width) in enumerate((("ann", 1), ("bob", 2), ("ann", 1))):
        view.arrive(JobState(Job(number, str(number), 0.0, width, user=user)))
        decided(stack, view)
    assert sorted(view.running) == [0, 2], "ann's second goes ahead of bob's, which does not fit"
    again = registry.build("ordering=fair:preempt=true:slice_s=1000:guarantee_s=0")
    again.ordering.recall(stack.ordering.knowledge(), view)
    view.now_s = 10.0
    view.end(view.running[0])
    assert again.decide(view).evict == [2]
    assert stack.decide(view).evict == [2]


def test_who_is_ahead_is_looked_at_a_slice_after_a_start_on_an_empty_cluster() -> None:
    # The job that this decision starts is not among the running ones yet: it has to be counted all the same.
    stack = registry.build("ordering=fair:preempt=true:slice_s=300")
    view = View(parse_shape("1x2"))
    for number, user in enumerate(("ann", "bob")):
        view.arrive(JobState(Job(number, str(number), 0.0, 2, user=user)))
    assert stack.decide(view).wake_s == 300.0


def mixed(seed: int, widest: tuple[int, ...], longest_s: tuple[float, ...]) -> list[tuple[str, str, int, float]]:
    """More jobs of two users than a day holds; how wide and long they are at most is drawn for each user."""
    rng, rows = random.Random(seed), []
    for user in ("ann", "bob"):
        most, most_s, had_s = rng.choice(widest), rng.choice(longest_s), 0.0
        while had_s < 1.2 * DAY_S * 64:
            width, lasts_s = rng.randint(1, most), rng.uniform(300.0, most_s)
            rows.append(("", user, width, lasts_s))
            had_s += width * lasts_s
    return rows


def test_groups_share_first_and_their_users_inside() -> None:
    small = (1, 1000.0)
    users: Sizes = {("a.x", "ann"): small, ("a.x", "bob"): small, ("a.y", "cy"): small, ("b", "dan"): small}
    had = gpu_hours(users, "ordering=fair:weights=@b=2/bob=3")
    whole = 64 * 24
    assert had["dan"] == pytest.approx(whole * 2 / 3, rel=0.02)
    assert had["cy"] == pytest.approx(whole / 6, rel=0.02)
    assert had["ann"] == pytest.approx(whole / 24, rel=0.05)
    assert had["bob"] == pytest.approx(whole / 8, rel=0.02)


def test_members_may_be_said_in_the_policy() -> None:
    small = (1, 1000.0)
    users: Sizes = {("", "ann"): small, ("", "bob"): small, ("", "cy"): small}
    had = gpu_hours(users, "ordering=fair:members=ann=lab/bob=lab", "2x8")
    assert had["cy"] == pytest.approx(had["ann"] + had["bob"], rel=0.02)


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy"])
@pytest.mark.parametrize("wide", ["ann", "bob"])
def test_a_wide_job_starts_within_its_guarantee_under_a_stream_of_narrow_ones(backfill: str, wide: str) -> None:
    # One user's stream keeps every GPU busy for ever; the wide job is another user's, or comes behind in the same.
    stream = [(60.0 * i, 1, 1800.0, "ann") for i in range(400) for _ in range(3)]
    rows = sorted([*stream, (7200.0, 64, 600.0, wide)])
    frame = pl.DataFrame(rows, schema=["submit_s", "gpus", "duration_s", "user"], orient="row").with_row_index("job_id")
    trace = Trace.from_columns(frame.with_columns(pl.col("job_id").cast(pl.String)))
    spec = f"ordering=fair:guarantee_s=7200:backfill={backfill}"
    jobs = Simulation(trace, parse_shape("8x8"), registry.build(spec)).run().jobs
    start_s = jobs.filter(pl.col("gpus") == 64)["first_start_s"][0]
    ahead = jobs.filter((pl.col("user") == wide) & (pl.col("submit_s") <= 7200.0) & (pl.col("gpus") == 1))
    first_s = max(7200.0, ahead["first_start_s"].max() or 0.0)  # of its user's
    assert start_s - first_s <= 7200.0


def test_a_greedy_stream_starves_a_wide_job_without_the_guarantee() -> None:
    stream = [(60.0 * i, 1, 1800.0, "ann") for i in range(600) for _ in range(3)]
    rows = sorted([*stream, (7200.0, 64, 600.0, "bob")])
    frame = pl.DataFrame(rows, schema=["submit_s", "gpus", "duration_s", "user"], orient="row").with_row_index("job_id")
    trace = Trace.from_columns(frame.with_columns(pl.col("job_id").cast(pl.String)))
    spec = "ordering=fair:guarantee_s=0:backfill=greedy"
    jobs = Simulation(trace, parse_shape("8x8"), registry.build(spec)).run().jobs
    assert jobs.filter(pl.col("gpus") == 64)["wait_s"][0] > 20_000.0


def test_priority_counts_inside_a_user_only() -> None:
    rows = [(0.0, 1, 100.0, "ann", 0), (1.0, 1, 100.0, "ann", 0), (2.0, 1, 100.0, "ann", 5), (3.0, 1, 100.0, "bob", 0)]
    frame = pl.DataFrame(rows, schema=["submit_s", "gpus", "duration_s", "user", "priority"], orient="row")
    trace = Trace.from_columns(frame.with_row_index("job_id").with_columns(pl.col("job_id").cast(pl.String)))
    jobs = Simulation(trace, parse_shape("1x1"), registry.build("ordering=fair:inside=priority")).run().jobs
    starts = jobs.sort("first_start_s")["job_id"].to_list()
    assert starts == ["0", "3", "2", "1"]


def test_a_user_who_had_less_preempts_one_who_had_more_after_a_slice() -> None:
    rows = [(0.0, 4, 10_000.0, "ann"), (600.0, 4, 1000.0, "bob")]
    frame = pl.DataFrame(rows, schema=["submit_s", "gpus", "duration_s", "user"], orient="row").with_row_index("job_id")
    trace = Trace.from_columns(frame.with_columns(pl.col("job_id").cast(pl.String)))
    spec = "ordering=fair:preempt=true:slice_s=1800"
    jobs = Simulation(trace, parse_shape("1x4"), registry.build(spec)).run().jobs
    assert jobs["first_start_s"].to_list() == [0.0, 1800.0]
    assert jobs["finish_s"][1] == 2800.0


def test_usage_loses_half_of_its_value_with_every_half_life() -> None:
    # Ann had the GPU for an hour, a day before; bob for ten minutes, just now.
    for half_life_s, first in ((1e9, "bob"), (7200.0, "ann")):
        stack = registry.build(f"ordering=fair:half_life_s={half_life_s:g}:backfill=greedy:ahead_s=0.001")
        view = View(parse_shape("1x1"))
        times = [("ann", 0.0, 3600.0), ("bob", 86400.0, 87000.0)]
        for number, (user, start_s, end_s) in enumerate(times):
            state = JobState(Job(number, str(number), start_s, 1, user=user))
            view.now_s = start_s
            view.arrive(state)
            decided(stack, view)
            view.now_s = end_s
            view.end(state)
            decided(stack, view)
        for number, user in enumerate(("ann", "bob"), start=2):
            view.arrive(JobState(Job(number, str(number), view.now_s, 1, user=user)))
        (place,) = decided(stack, view)
        assert view.running[place].job.user == first


def decided(stack: object, view: View) -> list[int]:
    plan = stack.decide(view)  # type: ignore[attr-defined]
    view.decided()
    for place in plan.place:
        view.start(view.waiting[place.job_id], place.gpus)
    return [place.job_id for place in plan.place]


def test_the_parts_of_a_shared_gpu_add_up_to_it() -> None:
    states = [JobState(Job(i, str(i), 0.0, 1, user=f"u{i}")) for i in range(3)]
    assert [part for _, part in parts_held(states)] == [1 / 3] * 3
    states[1].sm_share = 0.4
    assert {s.job.id: part for s, part in parts_held(states)} == pytest.approx({0: 0.3, 1: 0.4, 2: 0.3})
    states[2].sm_share = 0.9
    assert sum(part for _, part in parts_held(states)) == pytest.approx(1.0)
    view, usage = View(parse_shape("1x2")), Usage()
    usage = view.count_usage()
    for state, gpus in ((states[0], (0,)), (states[1], (0, 1))):
        state.sm_share = 1.0
        view.arrive(state)
        view.start(state, gpus, shared=True)
    view.now_s = 100.0
    assert usage.total_gpu_s(("", "u0"), 100.0) == pytest.approx(50.0)
    assert usage.total_gpu_s(("", "u1"), 100.0) == pytest.approx(150.0)
    view.stop(states[0])
    view.now_s = 200.0
    assert usage.total_gpu_s(("", "u1"), 200.0) == pytest.approx(350.0)
    assert usage.held_gpus == {("", "u1"): pytest.approx(2.0)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("weights=ann", "expected NAME=VALUE"),
        ("weights=ann=0", "a number above 0"),
        ("weights=ann=much", "a number above 0"),
        ("half_life_s=0", "half_life_s and ahead_s above 0"),
        ("inside=lifo", "found 'lifo'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        registry.build(f"ordering=fair:{options}")
