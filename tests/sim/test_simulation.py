"""What happens to jobs in the simulated world."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError, RunError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.profile import Profile
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.failures import Failures
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from tests.conftest import make_trace


def run(
    jobs: list[tuple[float, int, float]],
    policy: str = "fifo",
    cluster: str | Cluster = "2x4",
    columns: dict[str, list[object]] | None = None,
    **options: object,
) -> Result:
    shape = parse_shape(cluster) if isinstance(cluster, str) else cluster
    return Simulation(make_trace(jobs, **(columns or {})), shape, registry.build(policy), World(**options)).run()  # type: ignore[arg-type]


def test_a_job_alone_takes_its_duration() -> None:
    result = run([(5, 3, 100)])
    assert result.jobs["finish_s"].to_list() == [105]
    assert result.summary["gpu_hours"] == pytest.approx(300 / 3600)
    assert result.summary["makespan_s"] == 105


def test_spanning_nodes_costs_the_locality_penalty() -> None:
    assert run([(0, 4, 100), (0, 5, 100)], locality=1.5, cluster="4x4").jobs["jct_s"].to_list() == [100, 150]
    assert run([(0, 5, 100)]).jobs["jct_s"].to_list() == [100]


def test_the_slowest_gpu_gates_the_job() -> None:
    cluster = parse_shape("1x4").with_variability(Variability({"A": [1.0, 1.0, 2.0, 1.0]}))
    assert run([(0, 2, 100), (0, 2, 100)], cluster=cluster).jobs["jct_s"].to_list() == [100, 200]


def test_a_preempted_job_pays_the_restart_and_keeps_its_progress() -> None:
    # The short job takes the GPUs at 10; the long one comes back at 20, restarts for 7 and has 90 left.
    result = run([(0, 8, 100), (10, 8, 10)], "srtf", restart_s=7.0)
    assert result.jobs["finish_s"].to_list() == [117, 20]
    assert result.jobs["preemptions"].to_list() == [1, 0]
    assert result.jobs["wait_s"].to_list() == [10, 0]


def test_a_move_pays_the_restart_too() -> None:
    # Not sticky: when the first job leaves, packing puts the third where the first was.
    result = run([(0, 4, 10), (0, 4, 50), (0, 3, 50)], "fifo,placing=packed-nonsticky", "3x4", restart_s=5.0)
    assert result.summary["moves"] == 2
    assert result.jobs["finish_s"].to_list() == [10, 55, 55]


def test_las_lets_a_newcomer_pass_who_has_had_much_service() -> None:
    # 8 GPUs x 450 s reach the threshold of 3,600 GPU-seconds at 450, where the first job falls behind the second.
    result = run([(0, 8, 1000), (100, 8, 50)], "las")
    assert result.jobs["finish_s"].to_list() == [1050, 500]
    assert result.summary["preemptions"] == 1


def test_undiscretised_las_looks_at_service_itself() -> None:
    assert run([(0, 8, 1000), (100, 8, 50)], "las:queues=0").jobs["finish_s"].to_list() == [1050, 150]


def test_priority_preempts_unless_told_not_to() -> None:
    jobs, columns = [(0, 8, 100), (10, 8, 10)], {"priority": [0, 1]}
    assert run(jobs, "priority", columns=columns).jobs["finish_s"].to_list() == [110, 20]
    assert run(jobs, "priority:preempt=false", columns=columns).jobs["finish_s"].to_list() == [100, 110]


def test_a_failed_node_costs_the_work_since_the_last_checkpoint() -> None:
    jobs = [(0.0, 2, 40_000.0) for _ in range(20)]
    calm = run(jobs, cluster="4x4")
    stormy = run(jobs, cluster="4x4", failures=Failures(mtbf_h=10.0, repair_h=0.5), seed=3)
    assert stormy.summary["node_failures"] > 0
    assert stormy.jobs["failures"].sum() > 0
    assert stormy.summary["gpu_hours"] > calm.summary["gpu_hours"]
    assert stormy.summary["jobs"] == 20


def test_failures_follow_the_seed() -> None:
    jobs = [(0.0, 2, 40_000.0) for _ in range(20)]
    failures = Failures(mtbf_h=10.0)
    first, again, other = (run(jobs, cluster="4x4", failures=failures, seed=s) for s in (1, 1, 2))
    assert first.jobs.equals(again.jobs)
    assert not first.jobs.equals(other.jobs)


def test_jobs_that_can_never_fit_are_named_before_the_run() -> None:
    with pytest.raises(InputError, match=r"2 jobs can never fit.*j1 \(9 GPUs\), j2 \(100 GPUs\)"):
        run([(0, 1, 5), (0, 9, 5), (0, 100, 5)])
    with pytest.raises(InputError, match=r"j0 \(1 GPUs of 1e\+06 MiB, of which there are 0\)"):
        run([(0, 1, 5)], columns={"memory_mib": [1e6]})


def test_a_policy_that_never_starts_a_job_fails_the_run() -> None:
    class Idle(Stack):
        def decide(self, view: View) -> Plan:
            return Plan()

    base = registry.build("fifo")
    idle = Idle(base.sizing, base.ordering, base.sharing, base.placing)
    with pytest.raises(RunError, match="2 jobs wait for ever: j0, j1"):
        Simulation(make_trace([(0, 1, 1), (0, 1, 1)]), parse_shape("1x1"), idle).run()


def test_memory_decides_where_gpus_differ() -> None:
    result = run([(0, 1, 10), (0, 1, 10)], cluster="1x1:T4+1x1:A100", columns={"memory_mib": [40_000.0, 40_000.0]})
    assert result.jobs["finish_s"].to_list() == [10, 20]


def test_energy_of_an_idle_and_a_busy_node_is_the_power_equation() -> None:
    result = run([(0, 8, 3600)], cluster="2x8:V100")
    # Base of two nodes, one node's idle GPUs, and eight GPUs at half activity.
    watts = 2 * 200 + 8 * 42 + 8 * (20 + (221.3 - 20) * 0.5**0.48)
    assert result.summary["energy_j"] == pytest.approx(watts * 3600)
    assert result.summary["cost_usd"] == pytest.approx(16 * 2.5)
    assert result.summary["gpu_busy_frac"] == pytest.approx(0.5)
    assert result.summary["gpu_activity_frac"] == pytest.approx(0.25)


def test_fairness_is_jct_over_the_time_on_a_fair_share() -> None:
    # Two equal jobs want the whole cluster: a fair share is half of it, twice the time.
    result = run([(0, 8, 100), (0, 8, 100)])
    assert result.jobs["fairness"].to_list() == pytest.approx([100 / 200, 200 / 150], rel=0.01)


def test_late_jobs_are_counted() -> None:
    result = run([(0, 8, 100), (0, 8, 100)], columns={"deadline_s": [100.0, 150.0]})
    assert result.jobs["late"].to_list() == [False, True]
    assert result.summary["late_jobs"] == 1


def test_profiles_of_the_trace_carry_their_penalties() -> None:
    trace = make_trace([(0, 8, 100)], profile=["x"])
    object.__setattr__(trace, "profiles", {"x": Profile("x", locality=1.25)})
    assert Simulation(trace, parse_shape("2x4"), registry.build("fifo")).run().summary["mean_jct_s"] == 125


ALL = ["fifo", "fifo:backfill=greedy", "fifo:backfill=easy", "srtf", "las", "las:queues=0", "priority"]


def _ms(seconds: float) -> float:
    return round(seconds, 3)


workloads = st.lists(
    st.tuples(st.floats(0, 500).map(_ms), st.integers(1, 12), st.floats(0.5, 400).map(_ms)), min_size=1, max_size=20
)


@given(
    jobs=workloads,
    policy=st.sampled_from(ALL),
    placing=st.sampled_from(["packed", "packed-nonsticky", "spread", "random-nonsticky"]),
    round_s=st.sampled_from([None, 30.0]),
    mtbf_h=st.sampled_from([None, 0.2]),
    restart_s=st.sampled_from([0.0, 3.0]),
)
@settings(max_examples=150, deadline=None)
def test_every_run_obeys_the_laws_and_conserves_work(
    jobs: list[tuple[float, int, float]],
    policy: str,
    placing: str,
    round_s: float | None,
    mtbf_h: float | None,
    restart_s: float,
) -> None:
    # The run itself checks the laws of every plan, jobs in = jobs out, GPU-seconds and joules.
    if round_s is not None and "easy" in policy:
        return
    stack = registry.build(f"{policy},placing={placing}", round_s=round_s)
    failures = Failures(mtbf_h, 0.05) if mtbf_h else None
    result = Simulation(
        make_trace(sorted(jobs)), parse_shape("3x4"), stack, World(failures=failures, restart_s=restart_s, locality=1.3)
    ).run()
    frame = result.jobs
    assert (frame["jct_s"] >= frame["duration_s"] - 1e-6).all()
    assert (frame["wait_s"] >= -1e-6).all()
    assert (frame["first_start_s"] >= frame["submit_s"]).all()
    if not mtbf_h and not restart_s:
        assert (frame["gpu_s"] >= frame["gpus"] * frame["duration_s"] - 1e-6).all()


@given(jobs=workloads)
@settings(max_examples=30, deadline=None)
def test_more_gpus_never_make_strict_fifo_slower_when_gpus_are_equal(jobs: list[tuple[float, int, float]]) -> None:
    small, large = run(sorted(jobs), cluster="3x4"), run(sorted(jobs), cluster="4x4")
    assert large.summary["mean_jct_s"] <= small.summary["mean_jct_s"] + 1e-6
