"""PM-First and PAL against their definitions, walked by brute force."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.binning import bin_scores
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.files import load_variability
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.placing.pal import Pal
from fairlead.policy.placing.pm_first import PmFirst
from fairlead.policy.view import JobState, View
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces import load

SCORES = (0.8, 0.9, 0.95, 1.0, 1.0, 1.1, 1.4, 3.0)


def job(width: int, locality: float = 1.0) -> JobState:
    return JobState(Job(0, "j", 0.0, width, Profile(locality=locality), min_gpus=width, max_gpus=width))


def view_of(shape: str, scores: list[float], taken: set[int]) -> View:
    view = View(parse_shape(shape).with_variability(Variability({"A": scores})))
    view.free.take(tuple(sorted(taken)))
    return view


def pm_first_by_hand(free: list[int], n: int, binned: list[float], cluster: Cluster) -> list[int] | None:
    """Sort by (binned score, |free GPUs of that score on that node - n|, number)."""
    same = {g: sum(binned[h] == binned[g] and cluster.node_of[h] == cluster.node_of[g] for h in free) for g in free}
    ranked = sorted(free, key=lambda g: (binned[g], abs(same[g] - n), g))
    return sorted(ranked[:n]) if len(free) >= n else None


def pal_product_by_hand(
    free: list[int], n: int, binned: list[float], cluster: Cluster, locality: float
) -> float | None:
    """The product of the first entry of the L x V matrix that can be met, over all subsets."""
    widest = max(node.gpus for node in cluster.nodes)
    entries = [(v, True, v) for v in sorted(set(binned))] + [(v, False, v * locality) for v in sorted(set(binned))]
    for v, within, product in sorted(entries, key=lambda e: (e[2], not e[1])):
        good = [g for g in free if binned[g] <= v]
        groups = (
            itertools.groupby(good, key=lambda g: cluster.node_of[g]) if within and 1 < n <= widest else [(0, good)]
        )
        if within and not 1 < n <= widest:
            continue
        if any(len(list(group)) >= n for _, group in groups):
            return product
    return None


cases = st.tuples(
    st.lists(st.sampled_from(SCORES), min_size=12, max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(1, 8),
    st.sampled_from([1.0, 1.1, 1.7, 3.0]),
    st.sampled_from(["3x4", "6x2", "2x6", "12x1", "1x8+2x2"]),
)


@given(case=cases)
@settings(max_examples=400, deadline=None)
def test_pm_first_takes_the_best_gpus_by_its_ranking(case: tuple[list[float], set[int], int, float, str]) -> None:
    scores, taken, n, _, shape = case
    view = view_of(shape, scores, taken)
    bins = bin_scores(scores, 0)
    binned = [bins.values[b] for b in bins.of]
    free = [g for g in range(12) if g not in taken]
    got = PmFirst().pick(job(n), n, view.free, view)
    assert (list(got) if got is not None else None) == pm_first_by_hand(free, n, binned, view.cluster)


@given(case=cases)
@settings(max_examples=400, deadline=None)
def test_pal_meets_the_first_entry_of_the_matrix_that_can_be_met(
    case: tuple[list[float], set[int], int, float, str],
) -> None:
    scores, taken, n, locality, shape = case
    view = view_of(shape, scores, taken)
    bins = bin_scores(scores, 0)
    binned = [bins.values[b] for b in bins.of]
    free = [g for g in range(12) if g not in taken]
    got = Pal().pick(job(n, locality), n, view.free, view)
    widest = max(node.gpus for node in view.cluster.nodes)
    if n == 1 or n > widest:
        assert (list(got) if got is not None else None) == pm_first_by_hand(free, n, binned, view.cluster)
        return
    product = pal_product_by_hand(free, n, binned, view.cluster, locality)
    if product is None:
        assert got is None
        return
    assert got is not None
    spans = len({view.cluster.node_of[g] for g in got}) > 1
    assert max(binned[g] for g in got) * (locality if spans else 1.0) <= product + 1e-12
    assert set(got) <= set(free)
    assert len(got) == n


@given(scores=st.lists(st.sampled_from(SCORES), min_size=12, max_size=12), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_the_index_keeps_up_with_the_pool(scores: list[float], seed: int) -> None:
    import random

    rng, view, placing = random.Random(seed), view_of("3x4", scores, set()), Pal()
    held: list[tuple[int, ...]] = []
    for _ in range(30):
        if held and rng.random() < 0.5:
            view.free.give(held.pop(rng.randrange(len(held))))
        width = rng.randrange(1, 6)
        got = placing.pick(job(width, 1.5), width, view.free, view)
        assert got == Pal().pick(job(width, 1.5), width, view.free, view)
        if got is not None:
            view.free.take(got)
            held.append(got)


@pytest.mark.parametrize("workload", range(1, 6))
@pytest.mark.parametrize("placing", ["pm-first", "pal"])
def test_the_published_figures_come_out(workload: int, placing: str, shared_data: Path) -> None:
    pal = shared_data / "pal"
    wanted = json.loads((pal / "expected_64gpu_fifo_L1.7.json").read_text())[f"workload-{workload}"]
    cluster = parse_shape("16x4")
    cluster = cluster.with_variability(load_variability(pal / "profile64_seed42.json", cluster))
    stack = registry.build(f"ordering=fifo,placing={placing}:bins=2", round_s=360.0)
    run = Simulation(load(pal / "traces" / f"workload-{workload}.csv"), cluster, stack, World(locality=1.7)).run()
    expected = wanted[placing.replace("-", "_")]
    assert run.summary["mean_jct_s"] == pytest.approx(expected["mean_jct_s"], abs=1e-6)
    assert run.summary["makespan_s"] == expected["makespan_s"]


def test_without_scores_all_gpus_are_alike() -> None:
    view = View(parse_shape("2x4"))
    assert PmFirst().pick(job(3), 3, view.free, view) == (0, 1, 2)
    assert Pal().pick(job(3), 3, view.free, view) == (4, 5, 6)
