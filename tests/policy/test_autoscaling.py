"""Autoscaled Pollux and jobs that must have several GPUs: every job that fits the cluster runs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.job import Job
from fairlead.model.profile import Power, Profile
from fairlead.policy import registry
from fairlead.policy.sizing.pollux import Pollux
from fairlead.policy.view import JobState, View
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.trace import Trace
from tests.conftest import make_trace
from tests.policy.test_baselines import Told
from tests.sim.toys import rented


def rigid(rows: list[tuple[float, int, float]]) -> Trace:
    widths = [gpus for _, gpus, _ in rows]
    return make_trace(rows, min_gpus=widths, max_gpus=widths)


def run(trace: Trace, target: float, shape: str = "4x4", drained: tuple[int, ...] = ()) -> Result:
    stack = registry.build(f"sizing=pollux:target={target},powering=rent")
    return Simulation(trace, rented(shape, boot_s=120.0), stack, World(drained=drained)).run()


@pytest.mark.parametrize("target", [0.05, 0.2, 0.6, 0.9])
def test_a_rigid_job_runs_though_an_empty_cluster_is_nearer_to_the_target(target: float) -> None:
    assert run(rigid([(10, 12, 500)]), target).jobs["wait_s"][0] < 300


def test_a_wide_job_does_not_wait_until_narrow_ones_that_keep_utility_at_the_target_are_gone() -> None:
    # For 30,000 s there are always three narrow jobs, 0.75 of a speedup per GPU on one node.
    narrow = [(3000.0 * turn + i, 1, 3000.0) for turn in range(10) for i in range(3)]
    result = run(rigid(sorted([*narrow, (100.0, 8, 500.0)])), target=0.7)
    wide = result.jobs.row(3, named=True)
    assert wide["gpus"] == 8
    assert wide["wait_s"] < 300
    assert result.jobs["wait_s"].max() < 300, "nor does anybody else wait for it"
    # Two nodes more, for the boot and its 500 s; else one, which is three quarters full.
    assert result.summary["gpu_hours_paid"] < 1.2 * 4 * 30_000 / 3600


def test_on_nodes_of_two_sizes_there_are_enough_whichever_are_rented() -> None:
    assert run(rigid([(10, 12, 500), (20, 1, 50)]), 0.3, "4x2+2x4").jobs["wait_s"].max() < 900


def test_a_job_as_wide_as_what_is_not_drained_runs() -> None:
    assert run(rigid([(10, 11, 500)]), 0.2, drained=(0, 1, 2, 3, 6)).jobs["wait_s"][0] < 300


def sized(jobs: list[tuple[int, int]], shape: str = "4x4") -> tuple[Pollux, View]:
    """Jobs of (least, most) GPUs that have waited for a while, on one node that is on."""
    told = Told()
    view = View(rented(shape), oracle=told, epochs=told)  # type: ignore[arg-type]
    view.now_s = 1000.0
    for node in range(1, len(view.cluster.nodes)):
        view.sleep(node)
    for number, (least, most) in enumerate(jobs):
        profile = Profile("p", speedup=Power(0.9))
        view.arrive(JobState(Job(number, str(number), 0.0, least, profile, min_gpus=least, max_gpus=most)))
    return Pollux(target=0.2), view


def test_nodes_are_not_rented_for_a_job_that_no_node_could_take_now() -> None:
    sizing, view = sized([(1, 1), (16, 16)])
    view.node_down(3)
    sizing.allot(view)
    assert sizing.nodes(view) == 1


def test_the_larger_size_is_remembered_and_what_older_controllers_saved_is_read() -> None:
    sizing, view = sized([(1, 1), (8, 8)])
    sizing.allot(view)
    assert sizing.nodes(view) == 3
    saved = sizing.knowledge()
    again = Pollux(target=0.2)
    again.recall(saved, view)
    assert again.nodes(view) == 3
    del saved["least_nodes"]
    older = Pollux(target=0.2)
    older.recall(saved, view)
    assert older.nodes(view) == saved["nodes"] == 1


@given(
    seed=st.integers(0, 100_000),
    target=st.sampled_from([0.05, 0.2, 0.5, 0.6, 0.8, 0.95]),
    shape=st.sampled_from(["4x4", "2x2+3x4", "1x16", "8x2"]),
    drains=st.sampled_from([0, 0, 1, 4]),
)
@settings(max_examples=25, deadline=None)
def test_every_job_that_fits_the_cluster_ends(seed: int, target: float, shape: str, drains: int) -> None:
    rng = random.Random(seed)
    rows = sorted((rng.uniform(0, 4000), rng.choice((1, 2, 4, 6, 12)), rng.uniform(50, 1500)) for _ in range(12))
    least = [rng.choice((1, gpus)) for _, gpus, _ in rows]
    trace = make_trace(rows, min_gpus=least, max_gpus=[rng.choice((gpus, 16)) for _, gpus, _ in rows])
    # The simulator raises where jobs wait for ever.
    assert (run(trace, target, shape, tuple(rng.sample(range(16), drains))).jobs["finish_s"] > 0.0).all()
