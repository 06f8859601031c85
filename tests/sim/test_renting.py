"""Rented nodes: what is paid, by hand and for all elastic sizings."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.job import Job
from fairlead.policy import registry
from fairlead.policy.powering.idle import IdleNodes
from fairlead.policy.powering.rent import Rent
from fairlead.policy.stack import Stack
from fairlead.policy.view import JobState, View
from fairlead.sim.failures import Failures
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.trace import Trace
from tests.conftest import make_trace
from tests.sim.toys import TABLE, Planned, Script, elastic_trace, rented, stack_of, toy_app

PRICE = 2.5
"""Of a V100, an hour."""


class Witnessed(Simulation):
    """Writes down every rental: (node, from, until)."""

    def __init__(self, *args: object, **options: object) -> None:
        self.rentals: list[tuple[int, float, float]] = []
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._given_back = self._driver.effects.slept
        self._driver.effects = replace(self._driver.effects, slept=self._slept)

    def _slept(self, node: int, rented_s: float) -> None:
        self.rentals.append((node, self._view.now_s - rented_s, self._view.now_s))
        self._given_back(node, rented_s)

    def run(self) -> Result:
        result = super().run()
        self.rentals += [(node, since_s, self._view.now_s) for node, since_s in self._view.rented_s.items()]
        return result


def run(
    trace: Trace,
    cluster: Cluster,
    policy: str | Stack = "fifo,powering=rent",
    planned: list[tuple[float, int, bool]] | None = None,
    **options: object,
) -> tuple[Result, list[tuple[int, float, float]]]:
    stack = registry.build(policy) if isinstance(policy, str) else policy
    if planned:
        options["failures"] = Failures(1e9)
    simulation = Witnessed(trace, cluster, stack, World(**options))  # type: ignore[arg-type]
    if planned:
        simulation._incidents.failures = Planned(planned)  # type: ignore[assignment]
    result = simulation.run()
    check_bill(cluster, result, simulation.rentals)
    return result, simulation.rentals


def check_bill(cluster: Cluster, result: Result, rentals: list[tuple[int, float, float]]) -> None:
    """What is paid is what the rentals are billed, and covers what was held."""
    assert cluster.rental is not None
    billed = [(cluster.nodes[n], cluster.rental.billed_s(until - since)) for n, since, until in rentals]
    paid_h = result.summary["gpu_hours_paid"]
    assert paid_h == pytest.approx(sum(node.gpus * s for node, s in billed) / 3600, rel=1e-9)
    assert paid_h >= result.summary["gpu_hours"] * (1 - 1e-9)
    usd = sum(node.gpus * node.gpu_model.price_usd_per_h * s for node, s in billed) / 3600
    assert result.summary["cost_usd"] == pytest.approx(usd, rel=1e-9)
    assert result.summary["node_rentals"] == len(rentals)


def test_a_job_waits_for_the_boot_and_pays_for_it() -> None:
    # A job of one GPU: ordered at 10, there at 130, done at 1130; the run ends with it.
    result, rentals = run(make_trace([(10, 1, 1000)]), rented("2x4", boot_s=120.0))
    assert result.jobs["finish_s"].to_list() == [1130]
    assert rentals == [(0, 10, 1130)]
    assert result.summary["gpu_hours_paid"] == pytest.approx(4 * 1120 / 3600)
    assert result.summary["cost_usd"] == pytest.approx(4 * 1120 / 3600 * PRICE)
    assert result.summary["gpus_paid_mean"] == pytest.approx(4 * 1120 / 1130)


def test_idle_nodes_are_given_back_and_the_minimum_is_billed() -> None:
    # The first job is done after 10 s; its node stays for the minute that is billed anyway, the second job comes later.
    result, rentals = run(make_trace([(0, 4, 10), (500, 4, 100)]), rented("2x4", minimum_s=60.0))
    assert rentals == [(0, 0, 60), (0, 500, 600)]
    assert result.summary["gpu_hours_paid"] == pytest.approx(4 * 160 / 3600)


def test_a_job_that_comes_within_the_paid_time_costs_nothing_more() -> None:
    result, rentals = run(make_trace([(0, 4, 10), (30, 4, 20)]), rented("2x4", minimum_s=60.0))
    assert rentals == [(0, 0, 50)]
    assert result.summary["gpu_hours_paid"] == pytest.approx(4 * 60 / 3600)


def test_the_last_rentals_are_billed_whole() -> None:
    result, _ = run(make_trace([(0, 4, 100)]), rented("1x4", step_s=3600.0))
    assert result.summary["gpu_hours_paid"] == pytest.approx(4.0)


def test_with_a_billing_hour_a_node_is_kept_until_the_hour_is_over() -> None:
    jobs = make_trace([(100, 4, 1000), (2000, 4, 100), (9000, 4, 10)])
    _, rentals = run(jobs, rented("2x4", step_s=3600.0))
    assert rentals == [(0, 100, 3700), (0, 9000, 9010)]
    # Into the second hour, then to its end.
    _, rentals = run(make_trace([(100, 4, 4000), (9000, 4, 10)]), rented("2x4", step_s=3600.0))
    assert rentals == [(0, 100, 7300), (0, 9000, 9010)]


def test_an_idle_node_lingers() -> None:
    jobs = make_trace([(0, 4, 100), (150, 4, 100), (1000, 4, 1)])
    _, rentals = run(jobs, rented("2x4"), "fifo,powering=rent:linger_s=60")
    assert rentals == [(0, 0, 310), (0, 1000, 1001)]
    _, rentals = run(jobs, rented("2x4"))
    assert rentals == [(0, 0, 100), (0, 150, 250), (0, 1000, 1001)]
    # A linger that ends in a second paid hour lasts to its end.
    _, rentals = run(
        make_trace([(0, 4, 3500), (9000, 4, 1)]), rented("1x4", step_s=3600), "fifo,powering=rent:linger_s=200"
    )
    assert rentals[0] == (0, 0, 7200)


def test_the_cheapest_gpus_are_rented_first() -> None:
    cluster = parse_shape("1x4:V100+1x4:T4").rented(Rental(0.0, 0.0, 1.0))
    result, rentals = run(make_trace([(0, 4, 3600)]), cluster)
    assert [node for node, *_ in rentals] == [1]
    assert result.summary["cost_usd"] == pytest.approx(4 * 0.53)


def test_a_rented_node_that_fails_is_paid_on_and_the_job_goes_elsewhere() -> None:
    # Fails at 50, repaired at 200, then idle and given back; the job starts anew on the second node, ordered at 50.
    result, rentals = run(
        make_trace([(0, 4, 400)]), rented("2x4", boot_s=20.0), planned=[(50.0, 0, True), (200.0, 0, False)]
    )
    assert result.jobs["finish_s"].to_list() == [50 + 20 + 400]
    assert rentals == [(0, 0, 200), (1, 50, 470)]


def test_nodes_that_are_not_rented_do_not_fail() -> None:
    planned = [(5.0, 0, True), (20.0, 0, False), (21.0, 1, True), (40.0, 1, False)]
    result, rentals = run(make_trace([(10, 4, 100)]), rented("2x4"), planned=planned)
    assert result.summary["node_failures"] == 0
    assert rentals == [(0, 10, 110)]


def test_sizing_names_the_number_of_nodes_and_jobs_are_moved_off_those_that_leave() -> None:
    # Three nodes are kept at first, one from 20 on, two from 40 on.
    sizing = Script(lines=[(0.0, {0: 2, 1: 2, 2: 2})], kept=[(0.0, 3), (20.0, 1), (40.0, 2)])
    trace = elastic_trace(TABLE, [(0.0, 1, 1.0)] * 3)
    result, rentals = run(trace, rented("4x4"), stack_of(sizing, Rent()), restart_s=5.0)
    # At 20 four GPUs are left for six: the third job, on the node with the fewest in use, has no place; at 40 it has.
    assert sorted(rentals) == [(0, 0, 125), (1, 0, 20), (1, 40, 125), (2, 0, 20)]
    assert result.jobs["preemptions"].to_list() == [0, 0, 1]
    assert result.jobs["finish_s"].to_list() == pytest.approx([100, 100, 40 + 5 + 20 * 150 / 150 + 60])


def test_a_target_below_what_is_idle_waits_for_the_paid_time() -> None:
    sizing = Script(lines=[(0.0, {0: 1})], kept=[(0.0, 3), (10.0, 1)])
    _, rentals = run(elastic_trace(TABLE, [(0.0, 1, 1.0)]), rented("4x4", minimum_s=60.0), stack_of(sizing, Rent()))
    assert sorted(until - since for _, since, until in rentals) == [60, 60, 180]


@pytest.mark.parametrize("drained", [(0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("policy", ["fifo", "fifo,sizing=equal"])
def test_a_node_with_drained_gpus_is_given_back_too(drained: tuple[int, ...], policy: str) -> None:
    jobs = make_trace([(0, 3, 100), (5000, 3, 100)])
    result, rentals = run(jobs, rented("3x4"), f"{policy},powering=rent", drained=drained)
    assert result.jobs["jct_s"].to_list() == [100, 100]
    assert max(until - since for _, since, until in rentals) <= 100


def test_a_drained_gpu_with_a_job_on_it_keeps_its_node() -> None:
    view = View(rented("2x4"))
    idle = IdleNodes()
    idle.notice(view)
    assert set(idle.since_s) == {0, 1}
    state = JobState(Job(0, "0", 0.0, 1))
    view.arrive(state)
    view.start(state, (0,))
    view.drain(0)
    idle.notice(view)
    assert set(idle.since_s) == {1}
    view.end(state)
    idle.notice(view)
    assert set(idle.since_s) == {0, 1}
    for gpu in (1, 2, 3):
        view.drain(gpu)
    view.sleep(0)
    idle.notice(view)
    assert set(idle.since_s) == {1}


def test_renting_needs_terms() -> None:
    with pytest.raises(InputError, match="no rental terms"):
        run(make_trace([(0, 1, 1)]), parse_shape("1x4"))


def test_a_number_of_nodes_needs_nodes_that_are_rented() -> None:
    with pytest.raises(InputError, match="how many nodes"):
        registry.build("fifo,sizing=pollux:target=0.5,powering=sleep:after_s=10")


def test_without_powering_a_rented_cluster_is_paid_throughout() -> None:
    cluster = rented("2x4")
    result = Simulation(make_trace([(0, 4, 100)]), cluster, registry.build("fifo")).run()
    assert result.summary["gpu_hours_paid"] == pytest.approx(8 * 100 / 3600)


SIZINGS = [
    "boa:budget=6:every_s=60",
    "boa:budget=2",
    "pollux",
    "pollux:target=0.6",
    "sia",
    "optimus",
    "equal",
    "static:width_gpus=3",
]
TERMS = [(0.0, 0.0, 1.0), (30.0, 60.0, 1.0), (10.0, 0.0, 600.0)]


def random_trace(rng: random.Random) -> Trace:
    """Jobs that train by goodput, by a table, and as their profile declares, some of them rigid."""
    app = toy_app(samples=(800.0, 1200.0, 700.0))
    rows = sorted(
        (rng.uniform(0, 1500), rng.choice((1, 2, 4)), rng.uniform(5, 300)) for _ in range(rng.randrange(1, 14))
    )
    widest = [rng.choice((g, 8, 16)) for _, g, _ in rows]
    models = [rng.choice(("toy", "table", "vgg19")) for _ in rows]
    least = [rng.choice((1, g)) for _, g, _ in rows]
    frame = make_trace(
        rows, profile=models, min_gpus=least, max_gpus=[max(w, r[1]) for w, r in zip(widest, rows, strict=True)]
    )
    return frame.training({"toy": app, "table": TABLE}, 4)


@given(
    seed=st.integers(0, 10_000),
    sizing=st.sampled_from(SIZINGS),
    terms=st.sampled_from(TERMS),
    mtbf_h=st.sampled_from([None, 0.3]),
    restart_s=st.sampled_from([0.0, 15.0]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_paid_is_what_was_rented_and_covers_what_was_held(
    seed: int, sizing: str, terms: tuple[float, float, float], mtbf_h: float | None, restart_s: float
) -> None:
    trace, cluster = random_trace(random.Random(seed)), rented("4x4", *terms)
    failures = Failures(mtbf_h, 0.05) if mtbf_h else None
    policy = f"fifo,sizing={sizing},powering=rent"
    result, _ = run(trace, cluster, policy, failures=failures, restart_s=restart_s, seed=seed)
    timeline = result.timeline
    paid = (timeline["paid_gpus"] * (timeline["end_s"] - timeline["start_s"])).sum() / 3600
    assert paid <= result.summary["gpu_hours_paid"] * (1 + 1e-9)
    assert paid >= result.summary["gpu_hours"] * (1 - 1e-9)
    assert (timeline["paid_gpus"] >= timeline["busy_gpus"] - 1e-6).all()
    assert result.jobs.select(pl.col("finish_s") > pl.col("submit_s")).to_series().all()
