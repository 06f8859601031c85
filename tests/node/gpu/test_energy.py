"""Joules of jobs and idle add up to the device's counter, exactly, whatever happens on the GPU."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.node.gpu.energy import Energy, GpuEnergy, split_mj
from fairlead.node.gpu.meter import GpuSample, ProcessSample

PIDS = {"a": (1, 2), "b": (3,), "c": (4,)}


def sample(
    at_s: float, energy_mj: int | None = None, sm: dict[int, float | None] | None = None, **more: Any
) -> GpuSample:
    processes = None if sm is None else tuple(ProcessSample(pid, frac) for pid, frac in sm.items())
    return GpuSample(at_s, 0, "GPU-1", energy_mj=energy_mj, processes=processes, **more)


SM = st.none() | st.dictionaries(st.integers(1, 6), st.none() | st.floats(0.0, 1.0), max_size=5)
STEPS = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.integers(0, 10**9), st.sets(st.sampled_from("abc")), SM),
    min_size=1,
    max_size=20,
)


@given(start_mj=st.integers(0, 2**63), steps=STEPS)
def test_jobs_and_idle_add_up_to_the_counter(start_mj: int, steps: list[Any]) -> None:
    gpu, at_s, counter_mj = GpuEnergy(), 0.0, start_mj
    gpu.advance(sample(at_s, counter_mj), {})
    for dt_s, used_mj, jobs, sm in steps:
        at_s, counter_mj = at_s + dt_s, counter_mj + used_mj
        gpu.advance(sample(at_s, counter_mj, sm), {job: PIDS[job] for job in jobs})
    parts_mj = sum(energy.known_mj for energy in gpu.jobs.values()) + gpu.idle.known_mj
    assert parts_mj == gpu.metered.known_mj == counter_mj - start_mj
    assert all(energy.is_complete and not energy.is_estimated for energy in (*gpu.jobs.values(), gpu.idle))
    assert all(energy.known_mj >= 0 for energy in gpu.jobs.values())


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 2**40), st.sets(st.sampled_from("abc"))), max_size=20)
)
def test_they_add_up_to_what_was_metered_though_the_counter_jumps(steps: list[Any]) -> None:
    gpu, at_s = GpuEnergy(), 0.0
    gpu.advance(sample(0.0, 5), {})
    for dt_s, counter_mj, jobs in steps:
        at_s += dt_s
        gpu.advance(sample(at_s, counter_mj), {job: PIDS[job] for job in jobs})
    assert sum(e.known_mj for e in gpu.jobs.values()) + gpu.idle.known_mj == gpu.metered.known_mj >= 0


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 700.0), st.sets(st.sampled_from("abc"))), max_size=20)
)
def test_estimates_add_up_too(steps: list[Any]) -> None:
    gpu, at_s, exact_mj, last_w = GpuEnergy(), 0.0, 0.0, 50.0
    gpu.advance(sample(0.0, power_w=50.0), {})
    for dt_s, power_w, jobs in steps:
        at_s += dt_s
        exact_mj += 500.0 * (last_w + power_w) * dt_s
        last_w = power_w
        gpu.advance(sample(at_s, power_w=power_w), {job: PIDS[job] for job in jobs})
    assert sum(e.known_mj for e in gpu.jobs.values()) + gpu.idle.known_mj == gpu.metered.known_mj
    assert abs(gpu.metered.known_mj - exact_mj) <= 1.0 + 1e-9 * exact_mj
    assert all(energy.is_estimated for energy in gpu.jobs.values())


@given(total_mj=st.integers(0, 2**62), weights=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=9).filter(any))
def test_a_split_is_exact_and_fair(total_mj: int, weights: list[float]) -> None:
    parts = split_mj(total_mj, weights)
    assert sum(parts) == total_mj
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total_mj * (weight / whole)) <= 1.0 + 1e-9 * total_mj


def one_step(sm: dict[int, float | None] | None, *jobs: str) -> dict[str, int]:
    gpu = GpuEnergy()
    gpu.advance(sample(0.0, 1000), {})
    gpu.advance(sample(1.0, 1600, sm), {job: PIDS[job] for job in jobs})
    return {job: energy.known_mj for job, energy in gpu.jobs.items()} | {"idle": gpu.idle.known_mj}


def test_a_job_pays_by_what_its_processes_did_idle_power_included() -> None:
    assert one_step({1: 0.1, 2: 0.2, 3: 0.3, 4: 0.0}, "a", "b", "c") == {"a": 300, "b": 300, "c": 0, "idle": 0}


def test_strangers_cost_the_jobs_nothing_in_proportion() -> None:
    assert one_step({1: 0.1, 3: 0.1, 99: 0.8}, "a", "b") == {"a": 300, "b": 300, "idle": 0}


def test_without_activity_those_present_share_equally() -> None:
    assert one_step({1: 0.0, 3: None}, "a", "b", "c") == {"a": 300, "b": 300, "c": 0, "idle": 0}
    assert one_step({}, "a", "b") == {"a": 300, "b": 300, "idle": 0}
    assert one_step(None, "a", "b", "c") == {"a": 200, "b": 200, "c": 200, "idle": 0}


def test_a_gpu_that_nobody_is_on_is_idle() -> None:
    assert one_step({99: 1.0}) == {"idle": 600}


def test_a_counter_of_32_bits_wraps_and_one_that_was_set_back_leaves_a_gap() -> None:
    gpu = GpuEnergy()
    gpu.advance(sample(0.0, 2**32 - 100), {})
    gpu.advance(sample(1.0, 200), {"a": (1,)})
    assert gpu.jobs["a"] == Energy(300)
    gpu.advance(sample(2.0, 500_000), {"a": (1,)})
    gpu.advance(sample(3.0, 40), {"a": (1,)})
    assert gpu.resets == 1
    assert gpu.jobs["a"].energy_j is None
    assert gpu.jobs["a"].at_least_j == (500_100 + 40) / 1000.0
    gpu.advance(sample(4.0, 1040), {"b": (1,)})
    assert gpu.jobs["b"].energy_j == 1.0


def test_without_a_counter_energy_is_estimated_and_without_power_unknown_never_0() -> None:
    gpu = GpuEnergy()
    gpu.advance(sample(0.0, power_w=100.0), {})
    gpu.advance(sample(2.0, power_w=200.0), {"a": (1,)})
    assert gpu.jobs["a"] == Energy(300_000, is_estimated=True)
    gpu.advance(sample(3.0), {"a": (1,), "b": (3,)})
    assert (gpu.jobs["a"].energy_j, gpu.jobs["b"].energy_j) == (None, None)
    assert gpu.metered.energy_j is None
    assert gpu.forget("a").at_least_j == 300.0
    assert gpu.forget("a") == Energy()
