"""Jobs with epochs: closed forms, cases by hand, and an independent integration of random widths."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from fairlead.errors import InputError, RunError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.training import FixedBatch, GoodputTable, Training, packed_nodes, whole_job_s
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.view import View
from fairlead.sim.failures import Failures
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.work import Work
from fairlead.sim.world import World
from tests.conftest import make_trace
from tests.sim.toys import TABLE, Planned, Script, elastic_trace, stack_of, toy_app


def run_script(
    training: Training,
    lines: list[tuple[float, dict[int, int]]],
    *,
    jobs: int = 1,
    restart_s: float = 0.0,
    cluster: Cluster | str = "2x4",
    planned: list[tuple[float, int, bool]] | None = None,
) -> Result:
    shape = parse_shape(cluster) if isinstance(cluster, str) else cluster
    trace = elastic_trace(training, [(0.0, 1, 1.0)] * jobs)
    failures = Failures(1e9) if planned else None
    simulation = Simulation(trace, shape, stack_of(Script(lines=lines)), World(restart_s=restart_s, failures=failures))
    if planned:
        simulation._incidents.failures = Planned(planned)  # type: ignore[assignment]
    return simulation.run()


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8])
def test_a_job_on_a_fixed_width_ends_at_the_closed_form(width: int) -> None:
    app = toy_app()
    result = run_script(app, [(0.0, {0: width})])
    expected = whole_job_s(app, width, packed_nodes(width, 4))
    assert result.jobs["finish_s"][0] == pytest.approx(expected, rel=1e-12)
    assert result.jobs["gpu_s"][0] == pytest.approx(width * expected, rel=1e-12)
    assert result.summary["resizes"] == 0
    # Durations are those on the GPUs asked for.
    assert result.jobs["duration_s"][0] == pytest.approx(whole_job_s(app, 1, 1), rel=1e-12)


def test_rigid_jobs_train_by_goodput_too_and_keep_their_batch_unless_sizing_adapts_it() -> None:
    app = toy_app()
    trace = make_trace([(0.0, 4, 1.0)], profile=["toy"], batch=[64]).training({"toy": app}, 4)
    fixed = Simulation(trace, parse_shape("2x4"), registry.build("fifo")).run()
    assert fixed.jobs["jct_s"][0] == pytest.approx(whole_job_s(FixedBatch(app, 64), 4, 1), rel=1e-12)
    adapted = Simulation(trace, parse_shape("2x4"), registry.build("fifo,sizing=static:width_gpus=4")).run()
    assert adapted.jobs["jct_s"][0] == pytest.approx(whole_job_s(app, 4, 1), rel=1e-12)
    too_wide = make_trace([(0.0, 8, 1.0)], profile=["toy"], batch=[33]).training({"toy": app}, 4)
    with pytest.raises(InputError, match="asks for 8 GPUs"):
        Simulation(too_wide, parse_shape("2x4"), registry.build("fifo")).run()


def test_a_width_that_changes_in_the_middle_of_an_epoch_by_hand() -> None:
    # 30 s on one GPU do 3000 of 6000 samples; then two GPUs, after 10 s of restart, do the other 3000 at 150/s in 20 s
    # and the second epoch at 100/s in 60 s.
    result = run_script(TABLE, [(0.0, {0: 1}), (30.0, {0: 2})], restart_s=10.0)
    assert result.jobs["finish_s"].to_list() == pytest.approx([30 + 10 + 20 + 60])
    assert result.jobs["gpu_s"].to_list() == pytest.approx([30 + 2 * 90])
    assert result.jobs["resizes"].to_list() == [1]


def test_a_change_during_a_restart_begins_the_restart_again() -> None:
    # At 30 to two GPUs, at 36 to four: 10 s of restart from then on, 3000 samples at 200/s, 6000 at 150/s.
    result = run_script(TABLE, [(0.0, {0: 1}), (30.0, {0: 2}), (36.0, {0: 4})], restart_s=10.0)
    assert result.jobs["finish_s"].to_list() == pytest.approx([36 + 10 + 15 + 40])
    assert result.jobs["gpu_s"].to_list() == pytest.approx([30 + 2 * 6 + 4 * 65])


def test_a_job_that_waits_in_between_keeps_its_progress() -> None:
    result = run_script(TABLE, [(0.0, {0: 2}), (10.0, {0: 0}), (25.0, {0: 2})], restart_s=5.0)
    assert result.jobs["finish_s"].to_list() == pytest.approx([10 + 15 + 5 + 30 + 60])
    assert result.jobs["wait_s"].to_list() == pytest.approx([15])


def test_a_node_that_fails_in_an_epoch_costs_no_more_than_the_epoch() -> None:
    # One GPU: the first epoch ends at 60; at 90 the node fails, 30 s into the second. No checkpoint since the start
    # (they are half an hour apart), but the epoch's start is one. It starts at once on the other node.
    result = run_script(TABLE, [(0.0, {0: 1})], restart_s=10.0, planned=[(90.0, 0, True), (95.0, 0, False)])
    assert result.jobs["finish_s"].to_list() == pytest.approx([90 + 10 + 120])
    assert result.jobs["failures"].to_list() == [1]
    # In a restart there is nothing to lose.
    lines = [(0.0, {0: 1}), (30.0, {0: 2})]
    result = run_script(TABLE, lines, restart_s=10.0, planned=[(35.0, 0, True), (1e5, 0, False)])
    assert result.jobs["finish_s"].to_list() == pytest.approx([35 + 10 + 20 + 60])


@dataclass
class Asked(Script):
    """Writes down what the oracle and the epochs say of the only job whenever it is asked."""

    heard: list[tuple[float, int, float, float]] = field(default_factory=list)
    needs_oracle: ClassVar[bool] = True

    def allot(self, view: View) -> Mapping[int, int]:
        assert view.oracle is not None
        assert view.epochs is not None
        for state in (*view.running.values(), *view.waiting.values()):
            remaining_s, end_s = view.oracle.remaining_s(state), view.epochs.next_end_s(state) if state.gpus else -1.0
            self.heard.append((view.now_s, view.epochs.done(state), remaining_s, end_s))
        return super().allot(view)


def hear(cluster: Cluster, lines: list[tuple[float, dict[int, int]]], restart_s: float) -> list[tuple[float, ...]]:
    sizing = Asked(lines=lines)
    Simulation(elastic_trace(TABLE, [(0.0, 1, 1.0)]), cluster, stack_of(sizing), World(restart_s=restart_s)).run()
    return list(sizing.heard)


def test_the_oracle_knows_the_time_left_on_the_present_gpus() -> None:
    lines = [(0.0, {0: 1}), (30.0, {0: 2}), (35.0, {}), (55.0, {})]
    heard = hear(parse_shape("2x4"), lines, 10.0)
    assert [(at, epoch) for at, epoch, *_ in heard] == [(0, 0), (30, 0), (35, 0), (55, 0), (60, 1)]
    assert [left for *_, left, _ in heard] == pytest.approx([180, 150, 85, 65, 60])
    assert [end for *_, end in heard] == pytest.approx([-1, 60, 60, 60, 120])


def test_the_oracle_knows_slow_gpus() -> None:
    slow = parse_shape("1x4").with_variability(Variability({"A": [2.0] * 4}))
    heard = hear(slow, [(0.0, {0: 2}), (10.0, {})], 0.0)
    # 40 s and 60 s on two median GPUs.
    assert heard[1][2] == pytest.approx(200 - 10)


def integrate(training: Training, changes: list[tuple[float, int]], restart_s: float) -> tuple[float, float]:
    """(end, GPU-seconds) of a job alone that has these widths from these moments on; counted in samples."""
    epoch, left = 0, training.samples[0]
    gpu_s, started = 0.0, False
    for (from_s, width), (until_s, _) in zip(changes, [*changes[1:], (float("inf"), 0)], strict=True):
        if not width:
            continue
        now_s = from_s + (restart_s if started else 0.0)
        started = True
        while now_s < until_s:
            speed = training.goodput_at(epoch, width, packed_nodes(width, 4))
            if now_s + left / speed > until_s:
                left -= (until_s - now_s) * speed
                break
            now_s += left / speed
            epoch += 1
            if epoch == len(training.samples):
                return now_s, gpu_s + width * (now_s - from_s)
            left = training.samples[epoch]
        gpu_s += width * (until_s - from_s)
    raise AssertionError("the job never ends")


@pytest.mark.parametrize("seed", range(40))
def test_random_widths_agree_with_an_independent_integration(seed: int) -> None:
    rng = random.Random(seed)
    training = rng.choice((toy_app(samples=[rng.uniform(500, 5000) for _ in range(6)]), TABLE))
    restart_s = rng.choice((0.0, 7.0, 45.0))
    moment_s, width, changes = 0.0, 0, []
    for _ in range(rng.randrange(1, 12)):
        width = rng.choice([k for k in range(9) if k != width])
        changes.append((moment_s, width))
        moment_s += rng.uniform(1.0, 60.0)
    if not width:
        changes.append((moment_s, 3))
    result = run_script(training, [(at, {0: k}) for at, k in changes], restart_s=restart_s)
    end_s, gpu_s = integrate(training, changes, restart_s)
    assert result.jobs["finish_s"][0] == pytest.approx(end_s, rel=1e-9)
    assert result.jobs["gpu_s"][0] == pytest.approx(gpu_s, rel=1e-9)
    assert result.summary["gpu_hours"] * 3600 == pytest.approx(gpu_s, rel=1e-9)


def test_work_is_counted_in_seconds_on_the_gpus_asked_for() -> None:
    work = Work(TABLE, gpus=2, gpus_per_node=4)
    assert work.duration_s == 100.0
    assert work.left_s == [100.0, 60.0, 0.0]
    assert [work.speed(e, k, 1) for e in (0, 1) for k in (1, 2, 4)] == pytest.approx([2 / 3, 1, 4 / 3, 0.5, 1, 1.5])
    assert work.run_s(80.0, 0, 4, 1) == pytest.approx(15 + 40)
    assert work.run_s(30.0, 1, 4, 1) == pytest.approx(20)
    unfed = GoodputTable("t", (10.0,), (1, 2), ((1.0, 0.0),))
    assert Work(unfed, 1, 4).run_s(5.0, 0, 2, 1) == float("inf")
    with pytest.raises(InputError, match="does not feed so many"):
        Work(unfed, 2, 4)


def test_a_job_that_its_gpus_starve_is_named() -> None:
    unfed = GoodputTable("t", (10.0,), (1, 2), ((1.0, 0.0),))
    with pytest.raises(RunError, match="1 jobs run without progress: j0"):
        run_script(unfed, [(0.0, {0: 2})])
