"""Widths that are chosen when a job comes and kept, and what goes with them: whole nodes, fast nodes, shared GPUs."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from fairlead.errors import InputError
from fairlead.model.cluster import Rental
from fairlead.model.files import load_cluster
from fairlead.model.interference import built_in
from fairlead.model.profile import Amdahl, profile_named
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.trace import Trace


def elastic(jobs: int, every_s: float, size_s: float, profile: str = "AlexNet", widest: int = 16) -> Trace:
    """Equal elastic jobs, one every so many seconds."""
    frame = pl.DataFrame(
        {
            "job_id": [str(i) for i in range(jobs)],
            "profile": [profile] * jobs,
            "submit_s": [i * every_s for i in range(jobs)],
            "gpus": [1] * jobs,
            "duration_s": [size_s] * jobs,
            "min_gpus": [1] * jobs,
            "max_gpus": [widest] * jobs,
        }
    )
    scaled = replace(profile_named(profile), speedup=Amdahl(0.97), restart_s=30.0)
    return Trace.from_columns(frame, profiles={profile: scaled})


def run(policy: str, trace: Trace, cluster: str = "4x8", *, rented: bool = False) -> Result:
    made = load_cluster(cluster)
    if rented:
        made = made.rented(Rental(boot_s=60.0))
    return Simulation(trace, made, registry.build(policy), World(interference=built_in("eaco"))).run()


def test_a_width_is_kept_to_the_end() -> None:
    result = run("sizing=boa-kept", elastic(60, 300.0, 3600.0))
    assert result.summary["resizes"] == 0
    assert result.summary["preemptions"] == 0


def test_a_larger_budget_makes_jobs_wider_and_faster() -> None:
    trace = elastic(120, 300.0, 3600.0)
    tight = run("sizing=boa-kept:budget=14,powering=rent", trace, rented=True)
    wide = run("sizing=boa-kept:budget=28,powering=rent", trace, rented=True)
    assert wide.summary["mean_jct_s"] < tight.summary["mean_jct_s"]
    assert wide.summary["gpus_paid_mean"] > tight.summary["gpus_paid_mean"]


def test_on_gpus_of_ones_own_jobs_are_narrower_where_more_of_them_come() -> None:
    calm, busy = (run("sizing=boa-kept", elastic(80, every_s, 3600.0)) for every_s in (900.0, 120.0))

    def used_gpu_s(result: Result) -> float:
        return result.summary["gpu_busy_frac"] * result.summary["makespan_s"] * 32 / 80

    # Amdahl: GPU-seconds of a job grow with its width.
    assert used_gpu_s(busy) < used_gpu_s(calm)


def test_what_sharing_saves_is_spent_on_wider_jobs() -> None:
    trace = elastic(150, 200.0, 3600.0)
    alone = run("sizing=boa-kept:budget=24,powering=rent", trace, rented=True)
    shared = run("sizing=boa-kept:budget=24,sharing=eaco,powering=rent", trace, rented=True)
    assert shared.summary["mean_jct_s"] < 0.8 * alone.summary["mean_jct_s"]


def test_a_budget_of_zero_is_for_the_kept_widths_only() -> None:
    registry.build("sizing=boa-kept:budget=0")
    with pytest.raises(InputError, match="above 0"):
        registry.build("sizing=boa:budget=0")
    with pytest.raises(InputError, match="budget=-1: 0 or more"):
        registry.build("sizing=boa-kept:budget=-1")


def run_times_s(policy: str, scores: list[float], widths: list[int]) -> list[float]:
    """Of jobs of 10,000 s that come one after the other to nodes of four GPUs with these scores."""
    frame = pl.DataFrame(
        {
            "job_id": [str(i) for i in range(len(widths))],
            "profile": ["AlexNet"] * len(widths),
            "submit_s": [float(i) for i in range(len(widths))],
            "gpus": widths,
            "duration_s": [10_000.0] * len(widths),
        }
    )
    cluster = replace(load_cluster(f"{len(scores) // 4}x4"), variability=Variability({"A": scores}))
    if "rent" in policy:
        cluster = cluster.rented(Rental(boot_s=1.0))
    trace = Trace.from_columns(frame, profiles={"AlexNet": replace(profile_named("AlexNet"), app_class="A")})
    result = Simulation(trace, cluster, registry.build(policy), World()).run()
    return [round(jct_s, -2) for jct_s in result.jobs["jct_s"]]


def test_gathered_jobs_fill_a_node_before_they_open_a_faster_one() -> None:
    scores = [1.0, 1.0, 1.0, 1.0, 0.8, 0.8, 1.06, 1.06]
    assert run_times_s("pal:sticky=true", scores, [2, 1]) == [8_000.0, 10_000.0]
    assert run_times_s("pal:sticky=true:gather=0.5", scores, [2, 1]) == [8_000.0, 10_600.0]
    far_slower = [1.0, 1.0, 1.0, 1.0, 0.8, 0.8, 1.6, 1.6]
    assert run_times_s("pal:sticky=true:gather=0.5", far_slower, [2, 1]) == [8_000.0, 10_000.0]


def test_the_fastest_of_equally_cheap_nodes_is_rented_first() -> None:
    scores = [1.3] * 4 + [1.0] * 4 + [1.1] * 4
    assert run_times_s("fifo,powering=rent", scores, [4, 4, 4]) == [10_000.0, 11_000.0, 13_000.0]
