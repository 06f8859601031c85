"""Jobs that ask for a part of a GPU: who is beside whom, and what they hold."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, GpuModel, Node, parse_shape
from fairlead.model.job import Job
from fairlead.policy import laws, registry
from fairlead.policy.laws import LawBrokenError
from fairlead.policy.parts import WHOLE, Parts, ask_of
from fairlead.policy.placing.fgd import Fgd
from fairlead.policy.placing.rooms import Room
from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import JobState, View
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace
from tests.conftest import make_trace

MODEL = GpuModel("toy", 16_000.0, 10.0, 100.0, 1.0)
POLICIES = (
    "fifo", "fifo:backfill=greedy", "fifo:backfill=easy", "fifo,placing=best-fit", "fifo,placing=fgd",
    "fifo,placing=random", "srtf", "las", "tiresias", "priority,placing=fgd", "fair", "eaco", "gandiva",
    "fifo,placing=random:by=node", "fifo,placing=consolidated", "fifo,powering=sleep:after_s=20",
)  # fmt: skip


def parts_trace(rows: list[tuple[float, float, float]], **columns: object) -> Trace:
    """Of (submit_s, GPUs or a part of one, duration_s)."""
    jobs = [(at_s, max(1, int(gpus)), lasts_s) for at_s, gpus, lasts_s in rows]
    return make_trace(jobs, gpu_frac=[min(gpus, 1.0) for _, gpus, _ in rows], **columns)  # type: ignore[arg-type]


def run(policy: str, trace: Trace, cluster: Cluster | str = "1x2", round_s: float | None = None) -> Result:
    shape = parse_shape(cluster) if isinstance(cluster, str) else cluster
    return Simulation(trace, shape, registry.build(policy, round_s=round_s)).run()


def test_jobs_that_ask_for_parts_share_a_gpu_up_to_the_whole() -> None:
    trace = parts_trace([(0, 0.3, 100), (0, 0.7, 100), (0, 0.5, 100), (0, 0.5, 100), (0, 0.1, 100)])
    found = run("fifo", trace)
    assert found.jobs["first_start_s"].to_list() == [0.0, 0.0, 0.0, 0.0, 100.0]
    assert found.summary["gpu_hours"] == pytest.approx(2.1 * 100 / 3600)
    assert found.jobs["gpu_s"].to_list() == pytest.approx([30.0, 70.0, 50.0, 50.0, 10.0])


def test_each_runs_at_its_own_speed_whoever_is_beside_it() -> None:
    found = run("fifo", parts_trace([(0, 0.5, 100), (20, 0.5, 100)], profile=["BERT", "vgg19"]), "1x1")
    assert found.jobs["jct_s"].to_list() == [100.0, 100.0]


def test_a_job_that_asks_for_a_whole_gpu_is_never_beside_one_that_holds_a_part() -> None:
    found = run("fifo", parts_trace([(0, 0.1, 100), (0, 1, 50)]), "1x1")
    assert found.jobs["first_start_s"].to_list() == [0.0, 100.0]


def test_memory_counts_as_the_fraction_does_and_who_does_not_say_has_as_large_a_part() -> None:
    stated = parts_trace([(0, 0.3, 100), (0, 0.3, 100)], memory_mib=[20_000.0, 20_000.0])
    assert run("fifo", stated, "1x1:V100").jobs["first_start_s"].to_list() == [0.0, 100.0]
    beside = parts_trace([(0, 0.2, 100), (0, 0.5, 100)], memory_mib=[20_000.0, 0.0])  # 16,384 of 32,768 MiB
    assert run("fifo", beside, "1x1:V100").jobs["first_start_s"].to_list() == [0.0, 100.0]


def test_power_is_split_by_the_part_held_and_adds_up() -> None:
    found = run("fifo", parts_trace([(0, 0.25, 100), (0, 0.75, 100)]), "1x1")
    small, large = found.jobs["energy_j"].to_list()
    assert large == pytest.approx(3 * small)  # that all adds up is checked by the run itself


def test_users_are_held_to_the_parts_that_they_hold() -> None:
    rows = [(0.0, 0.5, 1000.0)] * 2 + [(1.0, 1.0, 1000.0)] + [(2.0, 0.5, 10.0), (3.0, 1.0, 10.0)]
    users = ["ann", "ann", "bob", "ann", "bob"]
    cluster = Cluster((Node("n0", 2, MODEL),))
    view = View(cluster)
    usage = view.count_usage()
    for i, (_, gpus, _) in enumerate(rows[:3]):
        state = JobState(Job(i, str(i), 0.0, 1, gpu_frac=gpus, user=users[i]))
        view.arrive(state)
        view.start(state, (0 if gpus < 1 else 1,), shared=gpus < 1, sm_share=gpus)
    assert usage.held_gpus == {("", "ann"): pytest.approx(1.0), ("", "bob"): pytest.approx(1.0)}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("round_s", [None, 30.0], ids=["events", "rounds"])
def test_crowds_of_parts_end_and_hold_what_they_asked_for(policy: str, round_s: float | None) -> None:
    rng = random.Random(policy)
    rows = sorted(
        (float(rng.randrange(300)), rng.choice((0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 2.0)), float(rng.randrange(10, 200)))
        for _ in range(60)
    )
    trace = parts_trace(rows, priority=[rng.randrange(3) for _ in rows], user=[rng.choice("abc") for _ in rows])
    found = run(policy, trace, "2x2", round_s)  # the driver refuses every plan that breaks a law
    assert found.jobs["finish_s"].null_count() == 0
    if round_s is None and not found.summary["preemptions"]:
        # Who shares by sharing's own rules may be slowed down, and holds its GPUs for longer.
        asked_s = sum(gpus * lasts_s for _, gpus, lasts_s in rows if gpus < 1.0)
        parts = found.jobs.filter(trace.frame["gpu_frac"] < 1.0)
        assert parts["gpu_s"].sum() == pytest.approx(asked_s)


@pytest.mark.parametrize("ordering", ["srtf", "priority", "las:queues=2:thresholds=100"])
def test_who_is_ahead_displaces_as_few_as_it_needs(ordering: str) -> None:
    """A GPU is full with two halves; one that asks for a half comes and is ahead: one of the two stays."""
    trace = parts_trace([(0, 0.5, 1000), (0, 0.5, 1000), (500, 0.5, 10)], priority=[0, 0, 1])
    found = run(ordering, trace, "1x1")
    assert sorted(found.jobs["preemptions"].to_list()) == [0, 0, 1]
    assert found.jobs["first_start_s"][2] == 500.0


def test_a_strict_order_waits_for_its_head_and_a_greedy_one_does_not() -> None:
    trace = parts_trace([(0, 0.6, 100), (1, 0.6, 100), (2, 0.4, 100)])
    assert run("fifo", trace, "1x1").jobs["first_start_s"].to_list() == [0.0, 100.0, 100.0]
    assert run("fifo:backfill=greedy", trace, "1x1").jobs["first_start_s"].to_list() == [0.0, 100.0, 2.0]


@pytest.mark.parametrize("policy", ["sizing=pollux", "sizing=boa:budget=2", "fifo,placing=packed:sticky=false"])
def test_stacks_that_cannot_say_so_in_a_sentence(policy: str) -> None:
    with pytest.raises(InputError, match=r"1 jobs ask for a part of a GPU, and the policy is .*can't where jobs ask"):
        run(policy, parts_trace([(0, 0.5, 100)]))


def test_whole_gpus_alone_are_decided_as_if_there_were_no_parts() -> None:
    rng = random.Random(3)
    rows = sorted((float(rng.randrange(500)), float(rng.choice((1, 1, 2, 4))), 60.0) for _ in range(40))
    late = [*rows, (9000.0, 0.5, 10.0)]  # comes when all others are gone
    for policy in ("fifo", "srtf", "las", "fifo:backfill=easy"):
        whole, with_part = run(policy, parts_trace(rows), "2x2"), run(policy, parts_trace(late), "2x2")
        assert with_part.jobs["finish_s"].to_list()[:-1] == whole.jobs["finish_s"].to_list()


# -- laws ------------------------------------------------------------


def placed(*parts: float) -> tuple[View, Plan]:
    view, plan = View(Cluster((Node("n0", 1, MODEL),))), Plan()
    for i, part in enumerate(parts):
        view.arrive(JobState(Job(i, str(i), 0.0, 1, gpu_frac=part)))
        plan.place.append(Place(i, (0,), True, part))
    return view, plan


def test_parts_up_to_one_are_lawful_and_more_are_not() -> None:
    laws.check(*placed(0.3, 0.3, 0.4))
    laws.check(*placed(*[0.1] * 10))
    with pytest.raises(LawBrokenError, match=r"asked for 0\.5 \+ 0\.3 \+ 0\.3 times over"):
        laws.check(*placed(0.3, 0.3, 0.5))
    with pytest.raises(LawBrokenError, match="times over"):
        laws.check(*placed(0.3, 1.0))


def test_two_services_that_hold_parts_may_be_on_one_gpu() -> None:
    view, plan = View(Cluster((Node("n0", 1, MODEL),))), Plan()
    for i in range(2):
        view.arrive(JobState(Job(i, str(i), 0.0, 1, gpu_frac=0.5, kind="service")))
        plan.place.append(Place(i, (0,), True, 0.5))
    laws.check(view, plan)


# -- hosts ------------------------------------------------------------


def hosted(cpus: float, gpus: int = 2, nodes: int = 1) -> Cluster:
    return Cluster(tuple(Node(f"n{i}", gpus, MODEL, cpus=cpus) for i in range(nodes)))


def test_cpus_are_counted_where_the_cluster_states_them_and_nowhere_else() -> None:
    trace = parts_trace([(0, 1, 100), (0, 1, 100)], cpus=[6.0, 6.0])
    assert run("fifo", trace, hosted(8.0)).jobs["first_start_s"].to_list() == [0.0, 100.0]
    assert run("fifo", trace, "1x2").jobs["first_start_s"].to_list() == [0.0, 0.0]


def test_a_job_over_nodes_has_its_cpus_where_it_has_its_gpus() -> None:
    trace = parts_trace([(0, 4, 100), (0, 1, 50)], cpus=[16.0, 1.0])
    assert run("fifo", trace, hosted(8.0, nodes=2)).jobs["first_start_s"].to_list() == [0.0, 100.0]


def test_a_job_that_no_host_can_ever_hold_is_named_before_the_run() -> None:
    with pytest.raises(InputError, match="job j0 can never fit: it asks for 9 CPUs"):
        run("fifo", parts_trace([(0, 1, 100)], cpus=[9.0]), hosted(8.0))


# -- placing ------------------------------------------------------------


def where(policy: str, rows: list[tuple[float, float, float]], cluster: Cluster | str) -> dict[int, tuple[int, ...]]:
    seen: dict[int, tuple[int, ...]] = {}
    shape = parse_shape(cluster) if isinstance(cluster, str) else cluster
    simulation = Simulation(parts_trace(rows), shape, registry.build(policy))
    simulation.advance(max(at_s for at_s, _, _ in rows))
    for job_id, state in simulation.view.running.items():
        seen[job_id] = state.gpus
    return seen


def test_best_fit_takes_the_fullest_gpu_of_the_node_of_which_least_is_left() -> None:
    rows = [(0.0, 0.6, 9.0), (1.0, 0.5, 9.0), (2.0, 0.4, 9.0), (3.0, 2.0, 9.0)]
    assert where("fifo,placing=best-fit", rows, "2x2") == {0: (0,), 1: (1,), 2: (0,), 3: (2, 3)}


def test_fgd_keeps_whole_gpus_whole_where_jobs_ask_for_whole_ones() -> None:
    """Halves come as often as wholes: a second half costs nothing beside the first, and a whole GPU elsewhere."""
    rows = [(0.0, 1.0, 99.0), (1.0, 0.5, 99.0), (2.0, 1.0, 99.0), (3.0, 0.5, 99.0)]
    found = where("fifo,placing=fgd", rows, "2x2")
    assert found[1] == found[3]


def useless_parts(lefts: tuple[int, ...], cpus: int, kinds: dict[tuple[int, int, int, int], int]) -> float:
    """The measure as the paper says it, kind by kind and GPU by GPU."""
    total = sum(kinds.values())
    found = 0.0
    for (gpus, part, for_each, _), count in kinds.items():
        can = gpus > 0 and sum(left >= part for left in lefts) >= gpus and cpus >= max(1, gpus) * for_each
        found += count / total * sum(left for left in lefts if not can or left < part)
    return found


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_fragmentation_is_what_the_paper_says(data: st.DataObject) -> None:
    part = st.sampled_from([WHOLE, 100_000, 300_000, 500_000])
    kind = st.tuples(st.sampled_from([0, 1, 2, 4]), part, st.sampled_from([0, 1000, 4000]), st.just(0))
    kinds = data.draw(st.dictionaries(kind, st.integers(1, 9), min_size=1, max_size=6))
    lefts = tuple(sorted(data.draw(st.lists(st.sampled_from([WHOLE, 900_000, 400_000, 50_000]), max_size=8))))
    cpus = data.draw(st.integers(1, 20)) * 1000
    fgd = Fgd()
    for one, count in kinds.items():
        for _ in range(count):
            fgd.count(one)
    fgd.renew()
    assert fgd.fragmentation(Room(lefts, cpus, 0)) == pytest.approx(useless_parts(lefts, cpus, kinds), abs=1e-3)


def test_fgd_goes_on_counting_where_it_was_saved() -> None:
    stack = registry.build("fifo,placing=fgd")
    placing = stack.placing
    placing.learn([JobState(Job(i, str(i), 0.0, 1, gpu_frac=0.25)) for i in range(5)])
    again = registry.build("fifo,placing=fgd").placing
    again.recall(placing.knowledge(), View(parse_shape("1x1")))
    assert again.knowledge() == placing.knowledge()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_taken_and_given_back_leaves_nothing_behind(data: st.DataObject) -> None:
    parts = Parts(hosted(64.0, gpus=4))
    held: list[tuple[Job, int]] = []
    before = (list(parts.cpus), dict(parts.left))
    for number in range(data.draw(st.integers(1, 25))):
        job = Job(number, "", 0.0, 1, gpu_frac=data.draw(st.sampled_from([0.1, 0.333, 0.6])), cpus=1.3)
        gpus = [g for g in range(4) if parts.holds(g, ask_of(job))]
        if gpus and data.draw(st.booleans()):
            gpu = data.draw(st.sampled_from(gpus))
            parts.take(job, (gpu,))
            held.append((job, gpu))
        elif held:
            job, gpu = held.pop(data.draw(st.integers(0, len(held) - 1)))
            parts.give(job, (gpu,))
        assert all(0 <= left <= WHOLE for left in parts.left.values())
    for job, gpu in held:
        parts.give(job, (gpu,))
    assert (list(parts.cpus), dict(parts.left)) == before


def test_openb_holds_as_many_gpu_hours_as_describe_says(written_openb: Trace) -> None:
    from fairlead.traces.describe import describe

    found = run("fifo", written_openb, "2x2")
    assert found.summary["gpu_hours"] == pytest.approx(describe(written_openb)["gpu_hours"])


@pytest.fixture
def written_openb(tmp_path: object) -> Trace:
    from pathlib import Path

    from fairlead.traces.load import load

    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    head += "creation_time,deletion_time,scheduled_time\n"
    rows = "".join(
        f"pod-{i},{2000 * (i % 3)},4096,{gpus},{milli},,{'LS' if i % 2 else 'BE'},Succeeded,{i},{i + 90},{i}\n"
        for i, (gpus, milli) in enumerate([(1, 460), (1, 1000), (2, 1000), (1, 100), (1, 540), (0, 0), (1, 810)])
    )
    path = Path(str(tmp_path)) / "pods.csv"
    path.write_text(head + rows)
    trace = load(path)
    assert pl.Series(trace.frame["cpus"]).to_list() == [0.0, 2.0, 4.0, 0.0, 2.0, 0.0]
    return trace
