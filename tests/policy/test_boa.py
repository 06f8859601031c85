"""BOA in the simulator: its promise, its budget, and what it does where it knows little."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.files import read_text
from fairlead.model.job import Job
from fairlead.model.profile import Profile, Table
from fairlead.policy import registry
from fairlead.policy.sizing.budget import JobType, solve
from fairlead.policy.sizing.price_control import BudgetController
from fairlead.policy.view import JobState, View
from fairlead.sim.failures import Failures
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.trace import Trace
from tests.sim.toys import Planned, elastic_trace, rented, toy_app

WIDTHS = (1.0, 2.0, 4.0, 8.0)
TYPES = (
    JobType("a", 0.01, 200.0, None, WIDTHS, (1.0, 1.9, 3.4, 5.5)),
    JobType("b", 0.005, 450.0, None, WIDTHS, (1.0, 1.7, 2.8, 4.0)),
)


def write_types(path: Path, types: Sequence[JobType], off: float = 1.0) -> Path:
    """The types as a file, with rates and sizes that are wrong by a factor each."""
    text = ""
    for t in types:
        text += f'[[type]]\nname = "{t.name}"\narrival_rate_per_s = {t.arrival_rate_per_s * off}\n'
        text += f"mean_size_s = {t.mean_size_s * off}\nwidths = {list(t.widths)}\nspeedups = {list(t.speedups)}\n"
    path.write_text(text)
    return path


def poisson_trace(types: Sequence[JobType], jobs: int, seed: int, restart_s: float = 0.0) -> Trace:
    """Poisson arrivals of each type, exponential sizes, curves as declared."""
    rng = np.random.default_rng(seed)
    rate = sum(t.arrival_rate_per_s for t in types)
    submit = np.cumsum(rng.exponential(1 / rate, jobs))
    which = rng.choice(len(types), jobs, p=[t.arrival_rate_per_s / rate for t in types])
    sizes = rng.exponential(np.array([t.mean_size_s for t in types])[which])
    frame = pl.DataFrame(
        {
            "job_id": [str(i) for i in range(jobs)],
            "submit_s": submit,
            "gpus": np.ones(jobs, int),
            "duration_s": sizes,
            "profile": [types[i].name for i in which],
            "min_gpus": np.ones(jobs, int),
            "max_gpus": np.full(jobs, int(max(types[0].widths))),
        }
    )
    profiles = {t.name: Profile(t.name, speedup=Table(t.widths, t.speedups), restart_s=restart_s) for t in types}
    return Trace.from_columns(frame, profiles=profiles)


def run(trace: Trace, cluster: Cluster, options: str, **about: object) -> Result:
    stack = registry.build(f"fifo,sizing=boa:{options},powering=rent", read=read_text)
    return Simulation(trace, cluster, stack, World(**about)).run()  # type: ignore[arg-type]


def gpus_in_use(result: Result) -> tuple[float, float]:
    """Mean and variance over time of the GPUs that jobs hold, from the middle of the run."""
    jobs = result.jobs
    start, end = jobs["first_start_s"].to_numpy(), jobs["finish_s"].to_numpy()
    width = jobs["gpu_s"].to_numpy() / (end - start)
    moments = np.concatenate((start, end))
    order = np.argsort(moments)
    steps = np.concatenate((width, -width))[order]
    moments, held = moments[order], np.cumsum(steps)
    spans = np.diff(moments)
    middle = (moments[:-1] > 5_000.0) & (moments[1:] < start.max())
    spans, held = spans[middle], held[:-1][middle]
    mean = float((spans * held).sum() / spans.sum())
    return mean, float((spans * (held - mean) ** 2).sum() / spans.sum())


def test_the_promise_is_met_through_the_sizing_itself(tmp_path: Path) -> None:
    # Nodes of one GPU, there at once and paid by the millisecond: what is held is what is paid. The widths are those of
    # `usual_widths` on such nodes.
    widths = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
    types = [replace(t, widths=widths, speedups=tuple(map(Table(t.widths, t.speedups), widths))) for t in TYPES]
    budget = 5.6
    found = solve(types, budget)
    assert any(len(parts) == 2 for parts in found.parts)  # one type is mixed
    trace = poisson_trace(types, 30_000, seed=3)
    file = write_types(tmp_path / "types.toml", types)
    options = f"budget={budget}:types={file}:trust_jobs=1e9:horizon_s=1e9:widest=8"
    result = run(trace, rented("80x1", step_s=2.0**-10), options)
    mean, variance = gpus_in_use(result)
    assert result.summary["mean_wait_s"] == pytest.approx(0.0, abs=1e-6)
    assert result.summary["mean_jct_s"] == pytest.approx(found.mean_jct_s(), rel=0.02)
    assert mean == pytest.approx(found.gpus_mean, rel=0.02)
    assert variance == pytest.approx(found.gpus_std**2, rel=0.02)
    assert result.summary["gpu_hours_paid"] == pytest.approx(result.summary["gpu_hours"], rel=1e-3)


def paid_on_average(result: Result) -> float:
    """GPUs paid for between the first and the last arrival."""
    first, last = result.jobs["submit_s"].min(), result.jobs["submit_s"].max()
    t = result.timeline.filter((pl.col("start_s") >= first) & (pl.col("end_s") <= last))
    spans = t["end_s"] - t["start_s"]
    return float((t["paid_gpus"] * spans).sum() / spans.sum())


@pytest.mark.parametrize("off", [1.0, 2.0, 0.5])
def test_the_budget_is_kept_over_a_long_run_with_right_and_wrong_estimates(off: float, tmp_path: Path) -> None:
    # Boot, billing and restarts on; a node has four GPUs.
    trace = poisson_trace(TYPES, 8_000, seed=5, restart_s=20.0)
    file = write_types(tmp_path / "types.toml", TYPES, off)
    budget = 10.0
    options = f"budget={budget}:types={file}:trust_jobs=500"
    result = run(trace, rented("30x4", boot_s=60.0, minimum_s=60.0), options)
    assert paid_on_average(result) == pytest.approx(budget, rel=0.02)


def test_more_budget_is_not_slower_in_the_simulator_either(tmp_path: Path) -> None:
    # Coarse: the same 1,500 jobs under each budget, boot and restarts on; chance may cost 3 %.
    trace = poisson_trace(TYPES, 1_500, seed=7, restart_s=20.0)
    file = write_types(tmp_path / "types.toml", TYPES)
    budgets = (7.0, 8.0, 10.0, 13.0)
    jct_s = [run(trace, rented("30x4", 30.0, 60.0), f"budget={b}:types={file}").summary["mean_jct_s"] for b in budgets]
    for less, more in itertools.pairwise(jct_s):
        assert more <= less * 1.03
    assert jct_s[-1] < 0.8 * jct_s[0]


def test_a_budget_that_is_too_small_runs_at_the_most_efficient_widths_and_says_so(tmp_path: Path) -> None:
    # The second is most efficient on two GPUs.
    types = [TYPES[0], replace(TYPES[1], speedups=(1.0, 2.2, 2.8, 4.0))]
    trace = poisson_trace(types, 300, seed=1)
    file = write_types(tmp_path / "types.toml", types)
    result = run(trace, rented("60x1"), f"budget=1:types={file}")
    width = result.jobs["gpu_s"] / (result.jobs["finish_s"] - result.jobs["first_start_s"])
    by_model = result.jobs.with_columns(width.alias("width")).group_by("profile").agg(pl.col("width").unique())
    assert {m: [round(w, 6) for w in ws] for m, ws in by_model.iter_rows()} == {"a": [1.0], "b": [2.0]}
    assert any("budget of 1 GPUs was below what the jobs need" in note for note in result.notes)
    assert not run(trace, rented("60x1"), f"budget=12:types={file}").notes


def test_a_world_that_begins_with_a_failure_is_no_problem() -> None:
    stack = registry.build("fifo,sizing=boa")
    simulation = Simulation(poisson_trace(TYPES, 5, seed=1), rented("2x4"), stack, World(failures=Failures(1e9)))
    simulation._incidents.failures = Planned([(0.001, 0, True), (0.002, 0, False)])  # type: ignore[assignment]
    assert simulation.run().summary["jobs"] == 5


def test_a_new_kind_starts_on_one_gpu_and_doubles_while_it_learns() -> None:
    # Twelve jobs of an application that nobody knows, one after the other; more GPUs than it needs can be had.
    trace = elastic_trace(toy_app(), [(400.0 * i, 1, 1.0) for i in range(12)], widest=8)
    result = run(trace, rented("4x4"), "budget=30")
    mean_width = (result.jobs["gpu_s"] / (result.jobs["finish_s"] - result.jobs["first_start_s"])).to_list()
    assert result.jobs["jct_s"][-1] < 0.5 * result.jobs["jct_s"][0]
    assert mean_width[0] < 3.0
    assert mean_width[-1] > 3.0
    assert any(note.startswith("goodput of toy: fitted to") for note in result.notes)
    known = run(trace, rented("4x4"), "budget=30:known=true")
    assert known.jobs["jct_s"].mean() <= result.jobs["jct_s"].mean()  # type: ignore[operator]
    assert not known.notes


def test_a_restart_that_costs_more_than_it_saves_is_not_made() -> None:
    trace = elastic_trace(toy_app(), [(400.0 * i, 1, 1.0) for i in range(8)], widest=8)
    assert run(trace, rented("4x4"), "budget=30:known=true", restart_s=1e5).summary["resizes"] == 0


class Bill:
    paid = 0.0

    def paid_gpu_s(self) -> float:
        return self.paid


def test_the_controller_makes_up_for_what_was_spent_too_much_or_too_little() -> None:
    bill = Bill()
    view = View(rented("2x4", boot_s=100.0), bill=bill)
    controller = BudgetController(budget=10.0, horizon_s=1000.0)

    def price(now_s: float, paid: float, table: float = 0.5) -> float:
        view.now_s, bill.paid = now_s, paid
        controller.look(view)
        return controller.price(table)

    assert price(0.0, 0.0) == 0.5
    assert controller.start_s == 100.0  # a boot, before anything is known
    assert price(500.0, 15000.0) == pytest.approx(12.0)  # the budget of a horizon too much
    assert price(500.0, 5000.0) == pytest.approx(0.5)
    assert price(2000.0, 10000.0) == pytest.approx(0.5 / 24.0)
    assert price(500.0, 1e9) == pytest.approx(50.0)
    assert price(1e9, 0.0) == pytest.approx(0.005)
    # Where the table has no price the budget was thought to buy everything.
    assert price(500.0, 15000.0, table=0.0) == pytest.approx(0.024)
    assert price(1e9, 0.0, table=0.0) == 0.0
    books = BudgetController(10.0, 1000.0)
    books.look(View(rented("2x4")))  # nobody keeps any
    assert books.price(0.5) == 0.5


def test_the_cost_of_a_start_is_what_is_paid_without_use_for_each_gpu_started_on() -> None:
    bill = Bill()
    view = View(rented("2x4", boot_s=100.0), bill=bill)
    controller = BudgetController(budget=10.0, horizon_s=1000.0)
    state = JobState(Job(0, "0", 0.0, 4, max_gpus=4))
    view.arrive(state)
    view.start(state, (0, 1, 2, 3))
    view.now_s, bill.paid = 50.0, 360.0  # 160 without use
    controller.look(view)
    assert controller.start_s == pytest.approx((64 * 100 + 160) / (64 + 4))
    view.end(state)
    controller.ended(state)
    controller.look(view)
    assert controller.start_s == pytest.approx((64 * 100 + 160) / (64 + 4))


@pytest.mark.parametrize("option", ["budget=0", "every_s=-1", "horizon_s=0", "widest=0"])
def test_options_that_make_no_sense_are_refused(option: str) -> None:
    with pytest.raises(Exception, match="above 0"):
        registry.build(f"sizing=boa:{option}")
