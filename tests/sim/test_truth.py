"""What is true of the GPUs, what is believed of them, and what an operator takes away."""

from __future__ import annotations

from pathlib import Path

import pytest

import fairlead
from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.files import save_variability
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.view import View
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.truth import Drift, Watch, parse_drift
from fairlead.sim.world import World
from tests.conftest import make_trace

PLACINGS = ("packed-sticky", "packed-nonsticky", "spread", "random", "pm-first", "pal", "pal-sticky")


def run(
    jobs: list[tuple[float, int, float]],
    policy: str = "fifo",
    cluster: str | Cluster = "1x2",
    *,
    round_s: float | None = None,
    columns: dict[str, list[object]] | None = None,
    **options: object,
) -> Result:
    shape = parse_shape(cluster) if isinstance(cluster, str) else cluster
    stack = registry.build(policy, round_s=round_s)
    return Simulation(make_trace(jobs, **(columns or {})), shape, stack, World(**options)).run()  # type: ignore[arg-type]


def scored(shape: str, *scores: float) -> Cluster:
    return parse_shape(shape).with_variability(Variability({"A": list(scores)}))


# -- GPUs that grow slow ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "drift"),
    [
        ("5:2.0@3600", Drift(3600.0, 5, 2.0)),
        ("n1:1:1.5@0", Drift(0.0, 5, 1.5)),
        ("0:2e0@1e3", Drift(1000.0, 0, 2.0)),
        ("7:0.5@60", Drift(60.0, 7, 0.5)),
    ],
)
def test_a_drift_is_a_gpu_a_factor_and_a_moment(text: str, drift: Drift) -> None:
    assert parse_drift(text, parse_shape("2x4")) == drift


@pytest.mark.parametrize("text", ["", "5", "5:2.0", "5@3600", "5:x@60", "5:2@soon", "5:2@", "5:1.2.3@60"])
def test_what_is_no_drift_is_named_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_drift(text, parse_shape("2x4"))
    assert repr(text) in error.value.message
    assert "35:2.0@86400" in (error.value.hint or "")


@pytest.mark.parametrize("text", ["8:2@60", "n2:0:2@60", "n1:4:2@60", "n0:2@60"])
def test_a_drift_of_a_gpu_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no GPU"):
        parse_drift(text, parse_shape("2x4"))


@pytest.mark.parametrize("text", ["5:0@60", "5:-2@60", "5:2@-60", "5:1e999@60", "5:2@1e999"])
def test_a_drift_has_a_factor_above_0_and_a_finite_time_from_0(text: str) -> None:
    with pytest.raises(InputError, match="a factor above 0, a time from 0 on"):
        parse_drift(text, parse_shape("2x4"))


def test_a_drift_slows_a_running_job_from_that_moment() -> None:
    # 40 s at full speed, the 60 s that are left at half: 40 + 120. The other GPU's job notices nothing.
    result = run([(0, 1, 100), (0, 1, 100)], drifts=(Drift(40.0, 0, 2.0),))
    assert result.jobs["finish_s"].to_list() == pytest.approx([160, 100])


def test_the_gpu_that_grew_slow_gates_the_whole_job() -> None:
    assert run([(0, 2, 100)], drifts=(Drift(40.0, 1, 2.0),)).jobs["finish_s"].to_list() == pytest.approx([160])


def test_drifts_of_one_gpu_multiply() -> None:
    # 60 s left at 40; 30 s left at 100; these at a quarter of the speed.
    drifts = (Drift(100.0, 0, 2.0), Drift(40.0, 0, 2.0))
    assert run([(0, 1, 100)], cluster="1x1", drifts=drifts).jobs["finish_s"].to_list() == pytest.approx([220])


def test_a_drift_goes_on_top_of_the_score() -> None:
    # At score 1.25 a job of 100 s has 68 s left after 40 s; then each takes 2.5 s.
    result = run([(0, 1, 100)], cluster=scored("1x1", 1.25), drifts=(Drift(40.0, 0, 2.0),))
    assert result.jobs["finish_s"].to_list() == pytest.approx([40 + 68 * 2.5])


def test_a_drift_slows_every_class() -> None:
    jobs: list[tuple[float, int, float]] = [(0, 1, 100), (200, 1, 100)]
    result = run(jobs, cluster="1x1", drifts=(Drift(0.0, 0, 2.0),), columns={"profile": ["resnet50", "BERT"]})
    assert result.jobs["jct_s"].to_list() == pytest.approx([200, 200])


def test_in_rounds_a_drift_acts_from_the_next_round() -> None:
    # Slow from round 60 on, 40 s left by then: done at 140, gone at 150.
    result = run([(0, 1, 100)], cluster="1x1", round_s=30.0, drifts=(Drift(40.0, 0, 2.0),))
    assert result.jobs["finish_s"].to_list() == [150]


def test_a_run_leaves_the_profile_as_it_was() -> None:
    cluster = scored("1x2", 1.0, 1.0)
    first, second = (run([(0, 2, 100)], cluster=cluster, drifts=(Drift(40.0, 0, 2.0),)) for _ in range(2))
    assert first.jobs.equals(second.jobs)
    assert cluster.variability == Variability({"A": [1.0, 1.0]})


# -- scores that are wrong -------------------------------------------------------------------------------------------


def test_policies_go_by_the_believed_scores_and_jobs_by_the_true_ones() -> None:
    cluster, true = scored("1x3", 1.0, 1.5, 1.6), Variability({"A": [2.0, 1.0, 1.6]})
    believed = run([(0, 1, 100)], "placing=pal", cluster)
    deceived = run([(0, 1, 100)], "placing=pal", cluster, true_variability=true)
    informed = run([(0, 1, 100)], "placing=pal", cluster.with_variability(true))
    finished = [result.jobs["finish_s"].item() for result in (believed, deceived, informed)]
    assert finished == pytest.approx([100, 200, 100])


def test_true_scores_slow_jobs_where_nothing_is_believed() -> None:
    result = run([(0, 1, 100), (0, 1, 100)], true_variability=Variability({"A": [1.0, 2.0]}))
    assert result.jobs["finish_s"].to_list() == pytest.approx([100, 200])


@pytest.mark.parametrize("watch", ["job", "rank"])
def test_correction_makes_pal_leave_the_gpu_that_grew_slow(watch: Watch) -> None:
    # GPU 0 is the best, so each of these jobs, one at a time, is put there; at 100 s it becomes three times as slow.
    cluster = scored("4x4", 0.9, *[1.0] * 15)
    jobs: list[tuple[float, int, float]] = [(10_000.0 * i, 1, 1000) for i in range(4)]
    drifts = (Drift(100.0, 0, 3.0),)
    blind = run(jobs, "placing=pal", cluster, drifts=drifts)
    seeing = run(jobs, "placing=pal", cluster, drifts=drifts, correct_scores=watch)
    # The first 100 s do 100 / 0.9 s of work. Uncorrected, all else is at 2.7.
    assert blind.jobs["jct_s"].to_list() == pytest.approx([100 + (1000 - 100 / 0.9) * 2.7, 2700, 2700, 2700])
    # Corrected, the first job leaves after the minute that it takes to believe an iteration time.
    first_s = 160 + 1000 - 100 / 0.9 - 60 / 2.7
    assert seeing.jobs["jct_s"].to_list() == pytest.approx([first_s, 1000, 1000, 1000])
    assert seeing.summary["mean_jct_s"] < 0.5 * blind.summary["mean_jct_s"]
    assert seeing.jobs["moves"].to_list() == [1, 0, 0, 0]


def test_a_gpu_that_was_found_slow_is_named_to_the_operator() -> None:
    cluster = scored("4x4", 0.9, *[1.0] * 15)
    drifts = (Drift(100.0, 0, 3.0),)
    assert run([(0, 1, 1000)], "placing=pal", cluster, drifts=drifts).notes == ()
    (note,) = run([(0, 1, 1000)], "placing=pal", cluster, drifts=drifts, correct_scores="rank").notes
    assert "GPU 0 (n0:0)" in note
    assert "class A" in note


def test_rank_times_find_the_one_slow_gpu_of_a_wide_job() -> None:
    # GPU 6 is in the job with seven others; every rank tells its own time, so the others stay above suspicion.
    cluster = scored("4x4", *[1.0] * 16)
    jobs: list[tuple[float, int, float]] = [(0, 8, 1000), (0, 8, 1000)]
    drifts = (Drift(100.0, 6, 2.0),)
    (note,) = run(jobs, "placing=pal", cluster, drifts=drifts, correct_scores="rank").notes
    assert "GPU 6 (n1:2)" in note


def test_correction_changes_nothing_where_beliefs_are_true() -> None:
    cluster = scored("2x4", 1.0, 1.1, 0.9, 1.0, 1.0, 1.2, 1.0, 0.95)
    jobs: list[tuple[float, int, float]] = [(50.0 * i, 1 + i % 4, 300) for i in range(12)]
    plain = run(jobs, "placing=pal", cluster)
    assert run(jobs, "placing=pal", cluster, correct_scores="rank").jobs.equals(plain.jobs)


def test_there_is_nothing_to_correct_without_a_profile() -> None:
    with pytest.raises(InputError, match="there is none"):
        fairlead.simulate(make_trace([(0, 1, 10)]), "1x2", correct_scores="rank")


def test_a_watch_is_of_the_job_or_of_its_ranks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'gpu'"):
        fairlead.simulate(
            make_trace([(0, 1, 10)]),
            "1x2",
            variability=profile(tmp_path, [1.0, 1.0]),
            correct_scores="gpu",  # type: ignore[arg-type]
        )


def test_from_python_files_say_what_is_believed_and_what_is_true(tmp_path: Path) -> None:
    believed, true = profile(tmp_path, [1.0, 1.5]), profile(tmp_path, [2.0, 1.0], "true.json")
    jobs = make_trace([(0, 1, 100)])
    result = fairlead.simulate(jobs, "1x2", "placing=pal", variability=believed, true_variability=true)
    assert result.jobs["finish_s"].to_list() == pytest.approx([200])
    result = fairlead.simulate(jobs, "1x2", "placing=pal", variability=believed, slow=["n0:0:2.0@40"])
    assert result.jobs["finish_s"].to_list() == pytest.approx([160])


def profile(folder: Path, scores: list[float], name: str = "profile.json") -> Path:
    save_variability(Variability({"A": scores}), parse_shape(f"1x{len(scores)}"), folder / name)
    return folder / name


# -- drained GPUs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round_s", [None, 100.0])
@pytest.mark.parametrize("placing", PLACINGS)
def test_nobody_is_put_on_a_drained_gpu(placing: str, round_s: float | None) -> None:
    # Whoever ran there would take a hundred times as long. Policies don't know: to them it is the best.
    cluster, true = scored("2x2", 0.5, 1.0, 1.0, 1.0), Variability({"A": [100.0, 1.0, 1.0, 1.0]})
    jobs: list[tuple[float, int, float]] = [(0, 3, 100), (0, 1, 100), (0, 2, 200), (50, 1, 100), (120, 2, 100)]
    result = run(jobs, f"placing={placing}", cluster, round_s=round_s, true_variability=true, drained=(0,))
    assert (result.jobs["jct_s"] - result.jobs["wait_s"]).to_list() == pytest.approx([100, 100, 200, 100, 100])
    assert result.timeline["busy_gpus"].max() == 3


def test_a_drained_gpu_is_not_among_those_that_take_jobs() -> None:
    view = View(parse_shape("2x2"))
    view.drain(1)
    view.drain(1)
    assert (view.up_gpus, view.free.count) == (3, 3)
    view.node_down(0)
    assert (view.up_gpus, view.free.count) == (2, 2)
    view.node_up(0)
    assert (view.up_gpus, view.free.count) == (3, 3)


def test_a_job_wider_than_what_is_left_is_named_before_the_run() -> None:
    jobs = make_trace([(0, 1, 10), (0, 4, 10)])
    with pytest.raises(InputError, match=r"j1 \(4 GPUs\)"):
        fairlead.simulate(jobs, "2x2", drain=["n0:1"])
    with pytest.raises(InputError, match=r"j1 \(4 GPUs\)"):
        fairlead.compare(["fifo", "srtf"], jobs, "2x2", workers=1, drain=["1"])


def test_the_same_gpu_may_be_drained_twice() -> None:
    result = fairlead.simulate(make_trace([(0, 3, 10)]), "2x2", drain=["n0:1", "1"])
    assert result.jobs["finish_s"].to_list() == [10]


def test_a_gpu_to_drain_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="no GPU 'n0:2'"):
        fairlead.simulate(make_trace([(0, 1, 10)]), "2x2", drain=["n0:2"])


# -- what spanning nodes costs ---------------------------------------------------------------------------------------


def test_the_locality_penalty_may_be_given_per_class() -> None:
    jobs = make_trace([(0, 3, 100), (500, 3, 100)], profile=["resnet50", "BERT"])
    result = fairlead.simulate(jobs, "2x2", locality={"A": 1.5})
    assert result.jobs["jct_s"].to_list() == pytest.approx([150, 100])
    result = fairlead.simulate(jobs, "2x2", locality=1.5)
    assert result.jobs["jct_s"].to_list() == pytest.approx([150, 150])


def test_a_penalty_below_1_is_refused_in_any_class() -> None:
    with pytest.raises(InputError, match=r"locality is 0\.5"):
        fairlead.simulate(make_trace([(0, 3, 100)]), "2x2", locality={"A": 1.5, "B": 0.5})
