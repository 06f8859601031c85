"""Predictions from snapshots, and what a change would do to them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.contention import Solo
from fairlead.model.interference import Interference
from fairlead.model.profile import profile_named
from fairlead.model.profile_json import profile_as_dict
from fairlead.model.service import DailyLoad, Service
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.model.variability import Variability
from fairlead.whatif import Comparison, ExtraJob, predict, whatif


def job(id: int, gpus: int = 1, **about: object) -> SnapshotJob:
    width = {"min_gpus": gpus, "max_gpus": gpus}
    fields: dict[str, Any] = {"user": "ann", **width, "submit_s": 10.0 + id, "left_s": 50.0, **about}
    if "placement" in about:
        fields = {"state": "running", "starts": 1, "since_s": 60.0, **fields}
    return SnapshotJob(id, f"j{id}", gpus=gpus, **fields)


def queue(**about: Any) -> Snapshot:
    """One runs on half of the GPUs, a wide one and a narrow one wait."""
    jobs = (job(1, 4, placement=(0, 1, 2, 3), left_s=100.0), job(2, 8, deadline_s=150.0), job(3, 2, deadline_s=250.0))
    return Snapshot(100.0, "fifo", about.pop("cluster", parse_shape("2x4")), jobs, **about)


def ends(found: Comparison) -> dict[str, tuple[float | None, float | None]]:
    before, after = ({job.id: job.end_s for job in side.jobs} for side in (found.as_is, found.what_if))
    return {change.name: (before.get(change.id), after.get(change.id)) for change in found.jobs}


def test_a_prediction_says_when_each_job_starts_and_ends() -> None:
    found = predict(queue())
    one, two, three = found.jobs
    assert [(j.start_s, j.end_s, j.wait_s, j.jct_s) for j in (one, two, three)] == [
        (60.0, 200.0, 0.0, 189.0),
        (200.0, 250.0, 100.0, 238.0),
        (250.0, 300.0, 150.0, 287.0),
    ]
    assert [j.state for j in found.jobs] == ["running", "waiting", "waiting"]
    assert [j.meets_deadline for j in found.jobs] == [None, False, False]
    assert found.summary["mean_jct_s"] == pytest.approx((189 + 238 + 287) / 3)
    assert found.summary["makespan_s"] == 200.0
    assert found.summary["missed_deadlines"] == 2
    assert found.summary["gpu_hours"] == pytest.approx((4 * 100 + 8 * 50 + 2 * 50) / 3600)
    assert found.summary["cost_usd"] == pytest.approx(8 * 2.5 * 200 / 3600)


def test_another_policy_is_compared_job_by_job() -> None:
    found = whatif(queue(), policy="fifo-greedy")
    # The narrow job no longer waits behind the wide one.
    assert ends(found) == {"j1": (200.0, 200.0), "j2": (250.0, 250.0), "j3": (300.0, 150.0)}
    third = found.jobs[2]
    assert (third.start_change_s, third.end_change_s) == (-150.0, -150.0)
    assert found.changed == ("policy fifo-greedy",)
    assert found.summary["missed_deadlines"] == (2, 1)
    assert found.summary["makespan_s"] == (200.0, 150.0)
    assert found.summary["mean_jct_s"] == (pytest.approx(238.0), pytest.approx(188.0))


def test_more_jobs_come_last_and_do_not_blur_the_mean_of_the_others() -> None:
    extra = [{"gpus": 4, "duration_s": 30}, ExtraJob(name="mine", gpus=8, duration_s=10.0, deadline_s=1.0)]
    found = whatif(queue(), jobs=extra)
    assert ends(found) == {
        "j1": (200.0, 200.0),
        "j2": (250.0, 250.0),
        "j3": (300.0, 300.0),
        "new-1": (None, 280.0),
        "mine": (None, 310.0),
    }
    assert found.changed == ("2 jobs more",)
    assert found.summary["mean_jct_s"] == (pytest.approx(238.0), pytest.approx(238.0))
    assert found.summary["missed_deadlines"] == (2, 2)
    assert found.jobs[4].what_if is not None
    assert found.jobs[4].what_if.meets_deadline is False
    assert found.jobs[4].end_change_s is None


def test_a_job_that_would_never_fit_is_told() -> None:
    found = whatif(queue(), jobs=[{"gpus": 9, "duration_s": 30}])
    assert found.jobs[3].what_if is not None
    assert (found.jobs[3].what_if.start_s, found.jobs[3].what_if.end_s) == (None, None)
    assert found.summary["never_end"] == (0, 1)
    assert any("wait for ever: new-1" in note for note in found.what_if.notes)
    assert ends(whatif(queue(), jobs=[{"gpus": 9, "duration_s": 30}], nodes=1))["new-1"] == (None, 230.0)


def test_more_nodes_are_like_the_last_one() -> None:
    scores = Variability({"A": [1.0] * 4 + [1.2] * 4})
    found = whatif(queue(cluster=parse_shape("1x4:T4+1x4:A100").with_variability(scores)), nodes=2)
    assert found.changed == ("2 nodes more",)
    assert found.what_if.cluster == "1 nodes x 4 T4 + 3 nodes x 4 A100, 16 GPUs"
    assert found.jobs[1].what_if is not None
    assert found.jobs[1].what_if.start_s == 100.0


def test_of_fewer_nodes_idle_ones_go_first_and_jobs_on_the_others_wait_again() -> None:
    assert ends(whatif(queue(), nodes=-1)) == {"j1": (200.0, 200.0), "j2": (250.0, None), "j3": (300.0, None)}
    narrow = replace(queue(), jobs=(job(1, placement=(4,), left_s=100.0, profile="slow"), job(2, placement=(0,))))
    slow = replace(narrow, profiles=({"name": "slow", "restart_s": 7.0},))
    both = whatif(slow, nodes=-1)
    # Both nodes are in use: the last goes, and its job starts again beside the other, with its work and a restart.
    assert ends(both) == {"j1": (200.0, 207.0), "j2": (150.0, 150.0)}
    with pytest.raises(InputError, match="nodes: -2 of 2 leaves none"):
        whatif(slow, nodes=-2)


def test_what_is_known_of_nodes_moves_with_their_numbers() -> None:
    scores = Variability({"A": [3.0] * 2 + [1.0] * 2 + [2.0] * 2 + [1.0] * 2}, (2,), {"A": (2,)})
    snapshot = Snapshot(
        100.0,
        "fifo,placing=pal-sticky",
        parse_shape("4x2").with_variability(scores),
        (job(1, placement=(4,)), job(2, placement=(1,)), job(3)),
        down=(3,),
        drained=(5, 2),
    )
    # Node 1 is idle and on: it goes, though the last one is down. Then only GPU 0 is left, the slowest.
    found = whatif(snapshot, nodes=-1)
    assert ends(found) == {"j1": (200.0, 200.0), "j2": (250.0, 250.0), "j3": (150.0, 250.0)}


def test_nodes_that_a_policy_rents_are_rented_when_they_are_wanted() -> None:
    cluster = parse_shape("1x4").rented(Rental(boot_s=20.0, minimum_s=0.0))
    jobs = (job(1, 4, placement=(0, 1, 2, 3), left_s=100.0), job(2, 4))
    found = whatif(Snapshot(100.0, "fifo,powering=rent", cluster, jobs), nodes=1)
    assert ends(found) == {"j1": (200.0, 200.0), "j2": (250.0, 170.0)}


def shared_pair(policy: str = "eaco") -> Snapshot:
    jobs = (
        job(1, placement=(0,), shared=True, profile="AlexNet", since_s=50.0),
        job(2, placement=(0,), shared=True, profile="ResNet-18"),
        job(3, placement=(1,), shared=True, profile="ResNet-18"),
    )
    return Snapshot(100.0, policy, parse_shape("1x2"), jobs)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "pal", "fifo,placing=packed-nonsticky"])
def test_jobs_that_share_are_parted_under_a_policy_that_does_not(policy: str) -> None:
    found = whatif(shared_pair(), policy=policy)
    # Three jobs of 50 s on two GPUs; the first was there longest.
    jobs = found.what_if.jobs
    assert jobs[0].end_s == 150.0
    assert sorted(job.end_s or 0.0 for job in jobs) == [150.0, 150.0, 200.0]


@pytest.mark.parametrize("policy", ["eaco", "sharing=gandiva", "sharing=fifo-packed", "muxflow"])
def test_jobs_that_run_alone_may_be_joined_under_a_policy_that_shares(policy: str) -> None:
    jobs = tuple(replace(j, shared=False, placement=(n,)) for n, j in enumerate(shared_pair().jobs[:2]))
    found = whatif(replace(shared_pair("fifo"), jobs=(*jobs, job(3, profile="AlexNet"))), policy=policy)
    assert all(change.what_if is not None and change.what_if.end_s is not None for change in found.jobs)


def test_what_was_measured_of_jobs_beside_each_other_counts() -> None:
    history = Interference()
    history.record(["AlexNet", "ResNet-18"], [0.5, 0.25])
    found = predict(replace(shared_pair(), history=history.to_dict(), jobs=shared_pair().jobs[:2]))
    # At a quarter of its speed until the other has ended at 200, then alone.
    assert [j.end_s for j in found.jobs] == [200.0, pytest.approx(225.0)]


def test_guesses_are_marked_and_held_jobs_are_left_out() -> None:
    jobs = (job(1, placement=(0,), left_s=None), job(2, state="held"), job(3, kind="service", left_s=None))
    found = predict(replace(queue(), jobs=jobs, is_fake=True))
    assert [(j.name, j.is_guess, j.end_s) for j in found.jobs] == [("j1", True, 3700.0), ("j3", False, None)]
    assert found.is_fake
    assert any("held jobs are left out: j2" in note for note in found.notes)
    assert any("run time unknown, guessed as 3600 s: j1" in note for note in found.notes)


def test_an_empty_queue_is_predicted_too() -> None:
    found = whatif(replace(queue(), jobs=()), jobs=[{"duration_s": 5}])
    assert found.as_is.jobs == ()
    assert found.summary["makespan_s"] == (None, 5.0)


def test_results_are_plain_json() -> None:
    found = whatif(queue(), policy="srtf", jobs=[{"duration_s": 5}], nodes=1)
    again = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert again["summary"]["makespan_s"] == {"as_is": 200.0, "what_if": 150.0}
    assert again["jobs"][2] == {"id": 3, "name": "j3", "start_change_s": -150.0, "end_change_s": -150.0}
    assert again["as_is"]["jobs"][0]["end_s"] == 200.0
    assert again["as_is"]["summary"]["never_end"] == 0
    assert json.loads(json.dumps(predict(queue()).as_json()))["policy"].startswith("sizing=fixed,ordering=fifo")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy": "nosuch"}, "nosuch"),
        ({"policy": "boa"}, "no rental terms"),
        ({"nodes": 10**9}, "nodes: found 1000000000"),
        ({"jobs": [{"gpus": 0, "duration_s": 5}]}, "gpus: .*found 0"),
        ({"jobs": [{"gpu": 1}]}, "job 1 to add: unknown field 'gpu'"),
        ({"jobs": [{"duration_s": "long"}]}, "job 1 to add: duration_s"),
        ({"jobs": [{"gpus": 4, "max_gpus": 2}]}, "max_gpus: found 2"),
        ({"jobs": [{"duration_s": -5}]}, "duration_s: .*found -5"),
    ],
)
def test_what_is_wrong_with_a_change_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        whatif(queue(), **change)


POLICIES = ("fifo", "fifo-easy", "srtf", "las", "pal", "eaco", "sharing=gandiva", "muxflow", "boa", "sizing=equal")


def any_snapshot(seed: int) -> Snapshot:
    """Jobs in all states on a small cluster, some GPUs shared, some nodes off."""
    rng = random.Random(seed)
    cluster: Cluster = parse_shape("4x2").rented(Rental(boot_s=5.0, minimum_s=10.0))
    asleep, down = ((3,), ()) if rng.random() < 0.5 else ((), (3,))
    jobs, free = [], [0, 1, 2, 3, 4, 5]
    for number in range(1, 13):
        gpus = rng.choice((1, 1, 2))
        about: dict[str, Any] = {"min_gpus": 1, "max_gpus": rng.choice((gpus, 4)), "left_s": rng.choice((None, 70.0))}
        about |= {"profile": rng.choice(("AlexNet", "BERT")), "priority": rng.randrange(2)}
        if len(free) >= gpus and rng.random() < 0.6:
            place, free = tuple(free[:gpus]), free[gpus:]
            is_shared = rng.random() < 0.5
            jobs.append(job(number, gpus, placement=place, shared=is_shared, **about))
            if is_shared and rng.random() < 0.5:
                jobs.append(job(number + 50, gpus, placement=place, shared=True, **about))
        else:
            jobs.append(job(number, gpus, state=rng.choice(("waiting", "waiting", "held")), **about))
    drained = (4,) if rng.random() < 0.3 else ()
    return Snapshot(100.0, "eaco", cluster, tuple(jobs), asleep=asleep, down=down, drained=drained)


@given(seed=st.integers(0, 10_000), policy=st.sampled_from(POLICIES), nodes=st.integers(-2, 2))
@settings(max_examples=80, deadline=None)
def test_any_snapshot_runs_on_under_any_policy(seed: int, policy: str, nodes: int) -> None:
    # The runs check the laws of every plan, jobs in = jobs out, GPU-seconds and joules.
    found = whatif(any_snapshot(seed), policy=policy, nodes=nodes, jobs=[{"duration_s": 40, "gpus": 2}])
    assert found.summary["never_end"] == (0, 0)


def served_cluster(*jobs: SnapshotJob) -> Snapshot:
    """A service runs on one of eight GPUs; these jobs too, or they wait."""
    service = job(1, placement=(0,), kind="service", left_s=None, profile="search")
    return Snapshot(100.0, "muxflow", parse_shape("1x8"), (service, *jobs), profiles=(SEARCH,))


SEARCH = profile_as_dict(
    replace(
        profile_named("generic"),
        name="search",
        service=Service(DailyLoad(0.3, 0.0), Solo(0.5, 0.5, 0.5, 0.0, 0.1, 0.005), 0.1),
    )
)


@pytest.mark.parametrize("policy", ["muxflow", "fifo", "eaco", "srtf,powering=sleep"])
def test_totals_count_up_to_a_horizon_that_no_service_and_no_job_that_never_starts_moves(policy: str) -> None:
    ends_soon, never = job(2, 2, placement=(1, 2), left_s=600.0), job(3, 16)
    snapshot = replace(served_cluster(ends_soon, never), policy=policy)
    found = predict(snapshot)
    told = found.summary
    assert (told["makespan_s"], told["horizon_s"]) == (600.0, 600.0)
    assert (told["never_start"], told["never_end"]) == (1, 1)
    assert any("j3" in note for note in found.notes)
    # Three GPUs are held for ten minutes, eight are paid for.
    assert told["gpu_hours"] == pytest.approx(3 * 600 / 3600)
    assert told["cost_usd"] == pytest.approx(8 * 2.5 * 600 / 3600)
    assert told["energy_j"] is not None
    assert 0.0 < told["energy_j"] < 600.0 * 10_000.0


def test_two_futures_are_counted_over_the_same_hours() -> None:
    snapshot = served_cluster(job(2, 2, placement=(1, 2), left_s=600.0))
    found = whatif(snapshot, jobs=[{"gpus": 4, "duration_s": 3600}, {"gpus": 16, "duration_s": 60}])
    assert found.summary["horizon_s"] == (3600.0, 3600.0)
    assert found.summary["makespan_s"] == (600.0, 3600.0)
    assert found.summary["never_start"] == (0, 1)
    before, after = found.summary["gpu_hours"]
    # The service for an hour and the job for ten minutes; then the new one beside them for an hour.
    assert before == pytest.approx(1 + 2 / 6)
    assert after == pytest.approx(1 + 2 / 6 + 4)
    assert found.summary["cost_usd"] == (pytest.approx(8 * 2.5), pytest.approx(8 * 2.5))


def test_where_no_job_ends_there_is_nothing_to_count() -> None:
    for snapshot in (served_cluster(), served_cluster(job(2, 16))):
        told = predict(snapshot).summary
        assert told["horizon_s"] == 0.0
        assert [told[key] for key in ("makespan_s", "gpu_hours", "energy_j", "cost_usd")] == [None] * 4


def test_a_service_that_waits_gets_the_gpus_of_the_last_job() -> None:
    service = job(2, 8, kind="service", left_s=None)
    found = predict(Snapshot(100.0, "fifo", parse_shape("1x8"), (job(1, 8, placement=tuple(range(8))), service)))
    assert [one.start_s for one in found.jobs] == [60.0, 150.0]
