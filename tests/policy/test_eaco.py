"""EaCO's trials, undo, thresholds and history; its baselines; sleeping nodes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.model.interference import EMPTY, Interference, built_in
from fairlead.model.profile import Profile
from fairlead.policy import registry
from fairlead.policy.sharing.eaco import Eaco
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from tests.conftest import make_trace

LIGHT = Profile("light", activity_frac=0.3, epoch_s=100.0)
BOLD = "sharing=eaco:floor=1.0"
"""Takes it that n jobs on a GPU each keep at least an n-th of their speed, so that it dares to try more."""
HEAVY = Profile("heavy", activity_frac=0.45, epoch_s=100.0)


def table(kept: float, names: tuple[str, ...] = ("light", "light")) -> Interference:
    truth = Interference()
    truth.record(list(names), [kept] * len(names))
    return truth


def run(
    jobs: list[tuple[float, int, float]],
    policy: str = "sharing=eaco",
    shape: str = "2x8",
    truth: Interference = EMPTY,
    profiles: tuple[Profile, ...] = (LIGHT, HEAVY),
    **columns: list[object],
) -> Result:
    columns.setdefault("profile", ["light"] * len(jobs))
    trace = make_trace(jobs, **columns)
    object.__setattr__(trace, "profiles", {p.name: p for p in profiles})
    return Simulation(trace, parse_shape(shape), registry.build(policy), World(interference=truth)).run()


def test_a_job_joins_a_gpu_that_has_room_before_it_takes_an_empty_one() -> None:
    result = run([(0, 8, 1000), (10, 8, 1000)])
    assert result.jobs["finish_s"].to_list() == [1000, 1010]
    assert result.summary["gpu_busy_frac"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("sharing", ["eaco", "gandiva", "fifo-packed"])
def test_nobody_joins_a_service_whose_latency_nothing_watches_over(sharing: str) -> None:
    kinds = ["service", "training", "training", "service"]
    result = run([(0, 1, 1000), (10, 1, 500), (20, 1, 500), (30, 1, 100)], f"sharing={sharing}", "1x2", kind=kinds)
    assert result.jobs["wait_s"].to_list()[0] == 0
    assert result.jobs["finish_s"][1] >= 510, "one training has the other GPU"
    assert result.jobs["finish_s"][3] > 600, "the second service waits for a GPU of its own"


def test_the_utilisation_threshold_counts_the_new_job() -> None:
    apart = run([(0, 8, 1000), (10, 8, 1000)], "sharing=eaco:utilisation=0.5")
    assert apart.summary["gpu_busy_frac"] > 0.9
    # 0.3 + 0.3 fit under 0.8, a third does not.
    three = run([(0, 8, 1000), (200, 8, 1000), (400, 8, 1000)])
    assert three.jobs["wait_s"].to_list() == [0, 0, 0]
    assert three.summary["gpu_busy_frac"] > 0.7


def test_peak_memory_decides_who_fits() -> None:
    memory = [20_000.0, 12_000.0]
    assert run([(0, 8, 1000), (10, 8, 1000)], memory_mib=memory).summary["gpu_busy_frac"] > 0.9
    roomy = run([(0, 8, 1000), (10, 8, 1000)], "sharing=eaco:memory=1.0", memory_mib=memory)
    assert roomy.summary["gpu_busy_frac"] < 0.6


def test_nobody_joins_a_set_that_is_on_trial() -> None:
    # The second joins at 10; the third, at 20, finds the set on trial until the second has done its epoch at 110.
    tiny = Profile("light", activity_frac=0.1, epoch_s=100.0)
    result = run([(0, 8, 1000), (10, 8, 1000), (20, 8, 1000)], shape="1x8", profiles=(tiny,))
    assert result.jobs["first_start_s"].to_list() == [0, 10, 110]


def test_a_deadline_that_would_be_missed_keeps_a_job_away() -> None:
    known = "sharing=eaco"
    truth = table(0.5)
    # Known beforehand (the pair is in the history): the first job has 1,000 s of work and 1,500 s of time.
    stack = registry.build(known)
    assert isinstance(stack.sharing, Eaco)
    stack.sharing.learn_from(truth)
    trace = make_trace([(0, 8, 1000), (10, 8, 1000)], profile=["light"] * 2, deadline_s=[1500.0, None])
    object.__setattr__(trace, "profiles", {"light": LIGHT})
    result = Simulation(trace, parse_shape("2x8"), stack, World(interference=truth)).run()
    assert result.jobs["jct_s"].to_list() == [1000, 1000]
    assert result.summary["preemptions"] == 0


def test_a_bad_surprise_is_undone_at_an_epochs_end_and_no_work_is_lost() -> None:
    # The prior expects no loss; in truth both run at half speed. The joiner leaves at the end of its first epoch.
    result = run([(0, 8, 1000), (10, 8, 1000)], BOLD, truth=table(0.5), deadline_s=[1150.0, None])
    joiner = result.jobs.row(1, named=True)
    assert joiner["preemptions"] == 1
    # 100 s of work took 200 s beside the other; the rest runs alone on the other node, at once.
    assert joiner["finish_s"] == pytest.approx(10 + 200 + 900)
    first = result.jobs.row(0, named=True)
    assert first["finish_s"] == pytest.approx(10 + 200 + 1000 - 10 - 100)
    assert not first["late"]


def test_a_set_never_seen_is_tried_only_with_time_to_spare() -> None:
    # A trial that goes wrong may cost the first job ten of the joiner's epochs, 1,000 s: it has 80.
    wary = run([(0, 8, 1000), (10, 8, 1000)], deadline_s=[1080.0, None])
    assert wary.summary["gpu_busy_frac"] > 0.9
    # With that very set in the history nothing has to be spared.
    known = registry.build("sharing=eaco")
    known.sharing.learn_from(table(0.95))
    trace = make_trace([(0, 8, 1000), (10, 8, 1000)], profile=["light"] * 2, deadline_s=[1080.0, None])
    object.__setattr__(trace, "profiles", {"light": LIGHT})
    bold = Simulation(trace, parse_shape("2x8"), known, World(interference=table(0.95))).run()
    assert bold.summary["gpu_busy_frac"] < 0.6
    assert bold.summary["late_jobs"] == 0


def test_who_is_late_anyway_does_not_keep_gpus_for_itself() -> None:
    result = run([(0, 8, 1000), (10, 8, 1000)], shape="1x8", deadline_s=[500.0, None])
    assert result.jobs["wait_s"].to_list() == [0, 0]


def test_baselines_wait_for_a_sleeping_node_rather_than_pair() -> None:
    for sharing in ("fifo-packed", "gandiva"):
        result = run([(0, 8, 5000), (1000, 8, 100)], f"sharing={sharing},powering=sleep", "2x8")
        assert result.jobs["first_start_s"].to_list() == [0, 1120]


def test_a_rejected_set_is_not_tried_again() -> None:
    # One node only: after the undo the joiner waits for the first to end rather than join it again.
    result = run([(0, 8, 1000), (10, 8, 300)], BOLD, "1x8", table(0.5), deadline_s=[1150.0, None])
    assert result.jobs["preemptions"].to_list() == [0, 1]
    assert result.jobs["finish_s"].to_list() == [1100, 1300]


def test_what_was_measured_goes_into_the_history() -> None:
    result = run([(0, 8, 1000), (10, 8, 1000)], truth=table(0.9))
    assert result.history is not None
    (learnt,) = result.history["sets"]
    assert (learnt["names"], learnt["speeds"]) == (["light", "light"], [0.9, 0.9])


@pytest.mark.parametrize(("measured", "starts_s"), [(0.75, 1000.0), (0.4, 110.0), (None, 1000.0)])
def test_what_a_trial_has_measured_counts_for_the_next_who_would_join_that_very_set(
    measured: float | None, starts_s: float
) -> None:
    # Two of 0.3 on one node, on trial until 110 s; a third has looked at them before. By their sum, 0.6, one of 0.3
    # does not fit under 0.8; where they turn out to leave the GPUs idler than that, it does.
    truth = Interference()
    truth.record(["light", "light"], [1.0, 1.0], measured)
    jobs = [(0.0, 8, 1000.0), (10.0, 8, 1000.0), (20.0, 8, 100.0)]
    assert run(jobs, shape="1x8", truth=truth).jobs["first_start_s"][2] == starts_s


def test_a_set_that_was_measured_fuller_than_its_sum_takes_nobody_beyond_the_threshold() -> None:
    truth = Interference()
    truth.record(["light", "light"], [1.0, 1.0], 0.75)
    slim = Profile("slim", activity_frac=0.1, epoch_s=100.0)
    jobs = [(0.0, 8, 1000.0), (10.0, 8, 1000.0), (20.0, 8, 100.0)]
    models = ["light", "light", "slim"]
    alone = run(jobs, shape="1x8", truth=truth, profiles=(LIGHT, slim), profile=models)
    assert alone.jobs["first_start_s"][2] == 1000.0
    # The same set elsewhere was measured by the first one's trial, not by one of its own.
    twice = [(0.0, 8, 2000.0), (10.0, 8, 2000.0), (20.0, 8, 2000.0), (30.0, 8, 2000.0), (300.0, 8, 100.0)]
    models = ["light"] * 4 + ["slim"]
    both = run(twice, shape="2x8", truth=truth, profiles=(LIGHT, slim), profile=models)
    assert both.jobs["first_start_s"][4] == 2000.0


def test_urgent_jobs_get_gpus_to_themselves_at_once() -> None:
    result = run([(0, 8, 1000), (10, 8, 1000), (20, 8, 100)], priority=[0, 1, 0])
    # The urgent one takes the second node; the third joins the first, not the urgent one.
    assert result.jobs["finish_s"].to_list() == [1000, 1010, 120]
    assert result.summary["gpu_busy_frac"] > 0.9


def test_a_narrow_job_joins_part_of_a_wide_ones_gpus() -> None:
    result = run([(0, 8, 1000), (10, 2, 500), (150, 4, 500)], shape="1x8")
    assert result.jobs["wait_s"].to_list() == [0, 0, 0]


def test_a_wide_job_joins_several_narrow_ones_on_a_node() -> None:
    narrow = [(0.0, 2, 1000.0)] * 4
    tiny = Profile("light", activity_frac=0.1, epoch_s=100.0)
    result = run([*narrow, (10.0, 8, 500.0), (20.0, 1, 300.0)], shape="1x8", profiles=(tiny,))
    assert result.jobs["wait_s"].to_list()[:5] == [0] * 5
    # Everyone there is on trial until the wide job and its company have done an epoch.
    assert result.jobs["first_start_s"][5] == 110
    # Four different companies at once teach nothing of any set; the last pair of three does.
    assert result.history is not None
    assert [len(learnt["names"]) for learnt in result.history["sets"]] == [3]


def test_fifo_packed_pairs_only_under_pressure_and_only_what_pays() -> None:
    both = [(0.0, 8, 1000.0), (10.0, 8, 1000.0)]
    assert run(both, "sharing=fifo-packed").summary["gpu_busy_frac"] > 0.9
    assert run(both, "sharing=fifo-packed", "1x8").jobs["wait_s"].to_list() == [0, 0]
    assert run(both, "sharing=fifo-packed:worth=2.5", "1x8").jobs["wait_s"].to_list() == [0, 990]
    # Nobody is third.
    third = run([*both, (20.0, 8, 1000.0)], "sharing=fifo-packed", "1x8")
    assert third.jobs["wait_s"][2] == pytest.approx(980)


def test_gandiva_dissolves_a_pair_that_does_not_pay() -> None:
    both = [(0.0, 8, 1000.0), (10.0, 8, 1000.0)]
    stays = run(both, "sharing=gandiva", "1x8", truth=table(0.9))
    assert stays.summary["preemptions"] == 0
    leaves = run(both, "sharing=gandiva", "1x8", truth=table(0.4))
    assert leaves.jobs["preemptions"].to_list() == [0, 1]


def test_idle_nodes_sleep_and_wake_with_their_latency() -> None:
    # Node 1 sleeps at 300. The second job, at 1,000, needs it: it runs 120 s later.
    result = run([(0, 8, 5000), (1000, 8, 100)], "fifo,powering=sleep", "2x8")
    assert result.jobs["first_start_s"].to_list() == [0, 1120]
    always = run([(0, 8, 5000), (1000, 8, 100)], "fifo", "2x8")
    assert result.summary["energy_j"] < always.summary["energy_j"]
    assert result.summary["node_sleeps"] == 2


def test_a_reserve_stays_awake() -> None:
    result = run([(0, 8, 5000), (1000, 8, 100)], "fifo,powering=sleep:reserve=1", "3x8")
    assert result.jobs["first_start_s"].to_list() == [0, 1000]


def test_a_sleeping_node_draws_its_sleep_power() -> None:
    result = run([(0, 8, 10_300)], "fifo,powering=sleep", "2x8:V100")
    busy_w = 200 + 8 * (20 + 201.3 * 0.3**0.48)
    idle_w, sleep_w = 200 + 8 * 42, 15
    assert result.summary["energy_j"] == pytest.approx(10_300 * busy_w + 300 * idle_w + 10_000 * sleep_w)


models = st.sampled_from(["AlexNet", "ResNet-18", "ResNet-50", "VGG-16", "light", "heavy"])
workloads = st.lists(
    st.tuples(
        st.integers(0, 3000), st.sampled_from([1, 2, 4, 8]), st.integers(50, 5000), models,
        st.sampled_from([None, 1.2, 2.0, 10.0]), st.integers(0, 1),
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


@given(
    jobs=workloads,
    sharing=st.sampled_from(["eaco", "eaco:jobs=4:utilisation=1.2", "fifo-packed", "gandiva"]),
    ordering=st.sampled_from(["fifo", "fifo:backfill=greedy", "srtf", "las", "priority"]),
    placing=st.sampled_from(["packed", "spread", "pal"]),
    powering=st.sampled_from(["always-on", "sleep:after_s=100"]),
)
@settings(max_examples=120, deadline=None)
def test_joules_of_jobs_and_idle_add_up_to_the_meter_however_gpus_are_shared(
    jobs: list[tuple[int, int, int, str, float | None, int]], sharing: str, ordering: str, placing: str, powering: str
) -> None:
    jobs = sorted(jobs, key=lambda j: j[0])
    result = run(
        [(j[0], j[1], j[2]) for j in jobs],
        f"ordering={ordering},placing={placing},sharing={sharing},powering={powering}",
        "3x8",
        built_in("eaco"),
        profile=[j[3] for j in jobs],
        deadline_s=[None if j[4] is None else j[2] * j[4] for j in jobs],
        priority=[j[5] for j in jobs],
    )
    summary = result.summary
    # Every job is measured and all have ended, so their energies and the idle energy are all there is.
    total = float(result.jobs["energy_j"].sum()) + summary["idle_energy_j"]
    assert total == pytest.approx(summary["energy_j"], rel=1e-9)
    integrated = sum((e - s) * w for s, e, w in result.timeline.select("start_s", "end_s", "power_w").iter_rows())
    assert integrated == pytest.approx(summary["energy_j"], rel=1e-9)


@given(jobs=workloads)
@settings(max_examples=60, deadline=None)
def test_no_deadline_is_missed_because_of_a_final_co_location(
    jobs: list[tuple[int, int, int, str, float | None, int]],
) -> None:
    jobs = sorted(jobs, key=lambda j: j[0])
    result = run(
        [(j[0], j[1], j[2]) for j in jobs],
        "sharing=eaco:history=eaco",
        "25x8",
        built_in("eaco"),
        profiles=(LIGHT, HEAVY),
        profile=[j[3] for j in jobs],
        deadline_s=[None if j[4] is None else j[2] * j[4] for j in jobs],
    )
    assert result.summary["late_jobs"] == 0


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 3000), st.sampled_from([2, 8]), st.integers(50, 5000), st.sampled_from(["light", "heavy"]),
            st.sampled_from([None, 1.2, 2.0, 10.0]),
        ),
        min_size=1,
        max_size=20,
    ),
    kept=st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_company_makes_nobody_late_however_bad_it_turns_out(
    jobs: list[tuple[int, int, int, str, float | None]], kept: list[float]
) -> None:
    # The history is empty and the prior expects the best; in truth sets keep anything from their fair share to all, a
    # third neighbour never helps.
    truth = Interference()
    pairs: dict[tuple[str, ...], float] = {}
    for members, luck in zip(itertools.combinations_with_replacement(["heavy", "light"], 2), kept, strict=False):
        pairs[members] = 0.5 + 0.5 * luck
        truth.record(list(members), [pairs[members]] * 2)
    for members, luck in zip(itertools.combinations_with_replacement(["heavy", "light"], 3), kept[3:], strict=True):
        most = min(pairs[pair] for pair in itertools.combinations(members, 2))
        truth.record(list(members), [1 / 3 + (most - 1 / 3) * luck] * 3)
    jobs = sorted(jobs, key=lambda j: j[0])
    result = run(
        [(j[0], j[1], j[2]) for j in jobs],
        f"{BOLD}:utilisation=1.5",
        "20x8",
        truth,
        profile=[j[3] for j in jobs],
        deadline_s=[None if j[4] is None else j[2] * j[4] for j in jobs],
    )
    assert result.summary["late_jobs"] == 0
