"""Simulations that begin in the middle."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.interference import built_in
from fairlead.model.profile import profile_named
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace
from tests.conftest import make_trace

DERIVED = (
    "fifo",
    "fifo-greedy",
    "fifo-easy",
    "srtf",
    "las",
    "tiresias",
    "priority",
    "fifo,placing=packed",
    "srtf,placing=spread",
    "fifo-greedy,placing=packed-nonsticky",
    "pal",
    "las,placing=pal",
)
"""Stacks whose state follows from the view alone."""


def crowd(seed: int, jobs: int = 30, restart_s: float = 0.0, locality: float = 1.3) -> Trace:
    """More than a cluster of 12 GPUs holds; no two moments are equal, so that rounding decides nothing."""
    rng = random.Random(seed)
    rows = sorted(
        (rng.uniform(0.0, 4000.0), rng.choice((1, 1, 2, 4, 6)), rng.uniform(50.0, 3000.0)) for _ in range(jobs)
    )
    models = [rng.choice(("resnet50", "BERT", "PointNet", "ResNet-50")) for _ in rows]
    trace = make_trace(rows, profile=models, priority=[rng.randrange(3) for _ in rows])
    profiles = {name: profile_named(name).with_options(locality=locality, restart_s=restart_s) for name in models}
    return replace(trace, profiles=profiles)


def scored(seed: int) -> Cluster:
    rng = random.Random(seed)
    return parse_shape("3x4").with_variability(
        Variability({name: [rng.uniform(0.9, 1.5) for _ in range(12)] for name in "ABD"})
    )


def paused(simulation: Simulation, at_s: float) -> Snapshot:
    """Its snapshot there, as somebody else reads it."""
    simulation.advance(at_s)
    return Snapshot.from_dict(json.loads(json.dumps(simulation.snapshot().to_dict())))


def later_than(trace: Trace, at_s: float) -> Trace:
    return replace(trace, frame=trace.frame.filter(trace.frame["submit_s"] > at_s))


def ends(result: Result) -> dict[str, float]:
    return dict(zip(result.jobs["job_id"], result.jobs["finish_s"], strict=True))


@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(DERIVED),
    at=st.floats(0.0, 0.95),
    restart_s=st.sampled_from([0.0, 40.0]),
)
@settings(max_examples=80, deadline=None)
def test_a_run_that_is_cut_and_taken_up_again_ends_as_if_it_had_not_been(
    seed: int, policy: str, at: float, restart_s: float
) -> None:
    # SRTF takes a waiting job's time at nominal speed, a running one's at its own: where these differ, asking it once
    # more changes its mind. So it gets equal GPUs.
    equal = "srtf" in policy
    trace = crowd(seed, restart_s=0.0 if equal else restart_s, locality=1.0 if equal else 1.3)
    cluster = parse_shape("3x4") if equal else scored(seed)

    def fresh() -> Simulation:
        return Simulation(trace, cluster, registry.build(policy))

    whole = fresh().run()
    at_s = at * whole.summary["makespan_s"]
    snapshot = paused(fresh(), at_s)
    rest = Simulation.from_snapshot(snapshot, registry.build(snapshot.policy), later=later_than(trace, at_s)).run()
    expected = ends(whole)
    assert ends(rest) == pytest.approx({name: expected[name] for name in ends(rest)}, abs=1e-6)
    assert {name for name, end_s in expected.items() if end_s > at_s} == set(ends(rest))
    starts = dict(zip(whole.jobs["job_id"], whole.jobs["first_start_s"], strict=True))
    waited = {job.name for job in snapshot.jobs if job.state == "waiting" and job.starts}
    for name, start_s in rest.jobs.select("job_id", "first_start_s").rows():
        assert start_s >= at_s if name in waited else start_s == pytest.approx(starts[name], abs=1e-6)


def test_a_simulation_that_was_advanced_runs_on_to_the_same_end() -> None:
    simulation, whole = (Simulation(crowd(1), scored(1), registry.build("srtf")) for _ in range(2))
    for at_s in (0.0, 10.5, 10.5, 2000.0):
        simulation.advance(at_s)
    assert simulation.run().jobs.equals(whole.run().jobs)


@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(["eaco", "sharing=gandiva", "sharing=fifo-packed", "boa", "sizing=equal", "las:queues=0"]),
    at=st.floats(0.0, 0.9),
)
@settings(max_examples=25, deadline=None)
def test_policies_with_a_memory_run_on_within_the_laws(seed: int, policy: str, at: float) -> None:
    trace = crowd(seed, 15)
    cluster = parse_shape("3x4")
    if policy == "boa":
        cluster = cluster.rented(Rental(boot_s=7.0, minimum_s=10.0))
    table = built_in("eaco")
    world = World(interference=table)
    first = Simulation(trace, cluster, registry.build(policy), world)
    at_s = at * Simulation(trace, cluster, registry.build(policy), world).run().summary["makespan_s"]
    snapshot = paused(first, at_s)
    stack = registry.build(policy)
    rest = Simulation.from_snapshot(snapshot, stack, later=later_than(trace, at_s), interference=table).run()
    assert rest.jobs["finish_s"].null_count() == 0
    assert (rest.jobs["finish_s"] > at_s).all()


def test_services_run_on_and_keep_no_run_alive() -> None:
    trace = service_fleet(6, 3.0, load=0.5, seed=3)
    cluster = parse_shape("2x4:T4")
    snapshot = paused(Simulation(trace, cluster, registry.build("muxflow")), 1800.0)
    assert snapshot.profiles
    for left_s in (None, 1e7):
        jobs = tuple(replace(j, left_s=left_s) if j.kind == "service" else j for j in snapshot.jobs)
        endless = replace(snapshot, jobs=jobs)
        result = Simulation.from_snapshot(endless, registry.build("muxflow")).run()
        services = result.jobs.filter(result.jobs["kind"] == "service")
        assert services["finish_s"].null_count() == services.height == 6
        assert services["first_start_s"].null_count() == 0
        assert result.jobs["finish_s"].null_count() == 6
        assert result.summary["makespan_s"] < 1e6


def snapshot_of(jobs: list[SnapshotJob], shape: str = "2x4", **about: object) -> Snapshot:
    return Snapshot(100.0, "fifo", parse_shape(shape), tuple(jobs), **about)  # type: ignore[arg-type]


def job(id: int, gpus: int = 1, **about: object) -> SnapshotJob:
    width = {"min_gpus": gpus, "max_gpus": gpus}
    given_: dict[str, object] = {"user": "ann", **width, "submit_s": 10.0 + id, "left_s": 50.0, **about}
    if "placement" in about:
        given_ = {"state": "running", "starts": 1, "since_s": 60.0, **given_}
    return SnapshotJob(id, f"j{id}", gpus=gpus, **given_)  # type: ignore[arg-type]


def onward(snapshot: Snapshot, policy: str = "fifo") -> Result:
    return Simulation.from_snapshot(snapshot, registry.build(policy)).run()


def test_running_jobs_run_on_and_waiting_ones_follow_in_order() -> None:
    jobs = [job(7, 8), job(3, 4, placement=(0, 1, 2, 3), left_s=30.0), job(9, 1), job(8, 1, state="held")]
    result = onward(snapshot_of(jobs))
    assert result.jobs["job_id"].to_list() == ["j3", "j7", "j9"]
    assert result.jobs["first_start_s"].to_list() == [60.0, 130.0, 180.0]
    assert result.jobs["finish_s"].to_list() == [130.0, 180.0, 230.0]
    assert result.jobs["gpu_s"].to_list() == [4 * 70.0, 8 * 50.0, 50.0]
    assert result.summary["makespan_s"] == 130.0
    assert result.summary["gpu_hours"] == pytest.approx((4 * 30 + 8 * 50 + 50) / 3600)
    assert result.summary["cost_usd"] == pytest.approx(8 * 2.5 * 130 / 3600)
    assert any("held jobs are left out: j8" in note for note in result.notes)


def test_a_restart_that_is_under_way_is_paid_to_its_end() -> None:
    profile = {"name": "slow", "restart_s": 90.0}
    resumed = job(1, placement=(0,), profile="slow", starts=2)
    first = job(2, placement=(1,), profile="slow", starts=1)
    result = onward(snapshot_of([resumed, first], profiles=(profile,)))
    assert result.jobs["finish_s"].to_list() == [60.0 + 90.0 + 50.0, 150.0]


def test_unknown_run_times_are_guessed_from_jobs_alike_else_an_hour() -> None:
    jobs = [
        job(1, placement=(0,), profile="BERT", left_s=100.0),
        job(2, placement=(1,), profile="BERT", left_s=300.0),
        job(3, placement=(2,), profile="BERT", left_s=None),
        job(4, placement=(3,), profile="BERT", left_s=None, user="bob"),
        job(5, placement=(4,), profile="GPT2", left_s=None),
        job(6, placement=(5,), profile="GPT2", left_s=None, user="eve"),
    ]
    result = onward(snapshot_of(jobs))
    assert result.jobs["finish_s"].to_list() == [200.0, 400.0, 300.0, 300.0, 300.0, 3700.0]
    said = " | ".join(result.notes)
    assert "same profile and user: j3" in said
    assert "same profile: j4" in said
    assert "same user: j5" in said
    assert "guessed as 3600 s: j6" in said


def test_jobs_that_never_start_are_told_and_the_others_predicted() -> None:
    result = onward(snapshot_of([job(1, placement=(0,)), job(2, 6), job(3)], down=(1,)))
    assert result.jobs["finish_s"].to_list() == [150.0, None, None]
    assert result.jobs["first_start_s"].to_list() == [60.0, None, None]
    assert any("2 jobs wait for ever: j2, j3" in note for note in result.notes)


def test_an_endless_service_does_not_hide_that_others_never_start() -> None:
    jobs = [job(1, placement=(0,), kind="service", left_s=None), job(2, 8)]
    result = onward(snapshot_of(jobs))
    assert result.jobs["finish_s"].to_list() == [None, None]
    fleet = service_fleet(2, 3.0, load=0.0, seed=3)
    hosted = paused(Simulation(fleet, parse_shape("1x2:T4"), registry.build("muxflow")), 60.0)
    services = [replace(j, left_s=None) for j in hosted.jobs]
    waiting = job(9, 2, submit_s=5.0)
    stuck = Simulation.from_snapshot(replace(hosted, jobs=(*services, waiting)), registry.build("muxflow")).run()
    assert stuck.jobs["finish_s"].null_count() == 3


@pytest.mark.parametrize("policy", ["sharing=time-sharing", "muxflow"])
def test_nobody_joins_a_service_on_a_drained_gpu(policy: str) -> None:
    fleet = service_fleet(2, 3.0, load=0.0, seed=3)
    hosted = paused(Simulation(fleet, parse_shape("1x2:T4"), registry.build(policy)), 60.0)
    waiting = (job(8, submit_s=5.0, profile="BERT"), job(9, submit_s=6.0, profile="BERT"))
    drained = replace(hosted, jobs=(*hosted.jobs, *waiting), drained=(0,))
    result = Simulation.from_snapshot(drained, registry.build(policy)).run()
    starts = result.jobs.filter(result.jobs["kind"] == "training")["first_start_s"].to_list()
    assert starts[0] < starts[1]


def test_nodes_that_sleep_wake_or_are_drained_stay_so() -> None:
    jobs = [job(1, 4, placement=(0, 1, 2, 3)), job(2, 4), job(3, 1)]
    # Node 1 is there at 115; of node 0 GPU 0 takes nobody any more, so four GPUs are never free there.
    woken = onward(snapshot_of(jobs, waking=((1, 115.0),), drained=(0,)))
    assert woken.jobs["first_start_s"].to_list() == [60.0, 115.0, 150.0]
    # Nobody wakes it under always-on, so it is woken at the start: it takes 120 s.
    assert onward(snapshot_of(jobs, asleep=(1,))).jobs["first_start_s"].to_list() == [60.0, 150.0, 200.0]
    asleep = onward(snapshot_of([job(1, 8)], asleep=(1,)), "fifo,powering=sleep")
    assert asleep.jobs["first_start_s"].to_list() == [220.0]


def test_rented_nodes_are_billed_from_when_they_were_rented() -> None:
    cluster = parse_shape("2x4").rented(Rental(boot_s=10.0, minimum_s=100.0, step_s=1.0))
    policy = "fifo,powering=rent"
    snapshot = Snapshot(100.0, policy, cluster, (job(1, 4, placement=(0, 1, 2, 3), left_s=20.0),), asleep=(1,))
    # Rented at 60 and needed until 120: the least that is billed is until 160, of which 60 s are from now on.
    result = onward(replace(snapshot, rented=((0, 60.0),)), policy)
    assert result.summary["gpu_hours_paid"] == pytest.approx(4 * 60 / 3600)
    assert onward(snapshot, policy).summary["gpu_hours_paid"] == pytest.approx(4 * 100 / 3600)
    two = replace(snapshot, jobs=(*snapshot.jobs, job(2, 4)))
    assert onward(two, policy).jobs["first_start_s"].to_list() == [60.0, 110.0]


def test_a_policy_that_rents_needs_terms() -> None:
    with pytest.raises(InputError, match="no rental terms"):
        onward(snapshot_of([job(1)]), "boa")


def test_an_empty_system_is_done_at_once() -> None:
    result = onward(snapshot_of([]))
    assert result.jobs.height == 0
    assert result.summary["energy_j"] == 0.0


def test_jobs_to_come_cannot_have_come_before() -> None:
    with pytest.raises(InputError, match="submitted before the snapshot's moment, 100 s"):
        Simulation.from_snapshot(snapshot_of([]), registry.build("fifo"), later=make_trace([(99.0, 1, 5.0)]))
