"""Pools and the placings that read them, against plain lists."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.job import Job
from fairlead.policy.placing.packed import Packed
from fairlead.policy.placing.random import Random
from fairlead.policy.placing.spread import Spread
from fairlead.policy.pool import Pool
from fairlead.policy.view import JobState, View

MIXED = Cluster(parse_shape("3x4").nodes + parse_shape("2x8").nodes + parse_shape("1x1").nodes)
free_sets = st.sets(st.integers(0, MIXED.gpus - 1))
JOB = JobState(Job(0, "j", 0.0, 1))
VIEW = View(MIXED)


def by_node(free: set[int]) -> dict[int, list[int]]:
    return {n: sorted(g for g in free if MIXED.node_of[g] == n) for n in range(len(MIXED.nodes))}


def packed_by_hand(free: set[int], width: int) -> list[int] | None:
    nodes = by_node(free)
    fitting = [(len(gpus), n) for n, gpus in nodes.items() if len(gpus) >= width]
    if fitting:
        return nodes[min(fitting)[1]][:width]
    if len(free) < width:
        return None
    found: list[int] = []
    while len(found) < width:
        _, n = max((len(gpus), -n) for n, gpus in nodes.items())
        found += nodes[-n][: width - len(found)]
        nodes[-n] = []
    return sorted(found)


def spread_by_hand(free: set[int], width: int) -> list[int] | None:
    if len(free) < width:
        return None
    nodes = by_node(free)
    found = []
    for _ in range(width):
        _, n = max((len(gpus), -n) for n, gpus in nodes.items())
        found.append(nodes[-n].pop(0))
    return sorted(found)


@given(free=free_sets, width=st.integers(1, 20))
@settings(max_examples=300, deadline=None)
def test_packed_and_spread_pick_what_they_say(free: set[int], width: int) -> None:
    pool = Pool(MIXED, sorted(free))
    for placing, by_hand in ((Packed(), packed_by_hand), (Spread(), spread_by_hand)):
        got = placing.pick(JOB, width, pool, VIEW)
        assert (list(got) if got is not None else None) == by_hand(set(free), width)


@given(free=free_sets, width=st.integers(1, 20))
@settings(deadline=None)
def test_random_picks_free_gpus_each_once(free: set[int], width: int) -> None:
    got = Random(seed=1).pick(JOB, width, Pool(MIXED, sorted(free)), VIEW)
    if width > len(free):
        assert got is None
    else:
        assert got is not None
        assert set(got) <= free
        assert list(got) == sorted(set(got))
        assert len(got) == width


def test_random_picks_every_gpu_equally_often() -> None:
    placing, pool = Random(seed=4), Pool(MIXED)
    counts = [0] * MIXED.gpus
    for _ in range(6000):
        for g in placing.pick(JOB, 3, pool, VIEW) or ():
            counts[g] += 1
    expected = 6000 * 3 / MIXED.gpus
    assert all(abs(c - expected) < 5 * expected**0.5 for c in counts)


@given(free=free_sets, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_a_pool_keeps_its_counts_and_rolls_back(free: set[int], seed: int) -> None:
    rng = random.Random(seed)
    pool = Pool(MIXED, sorted(free))
    pool.begin()
    now = set(free)
    for _ in range(10):
        offered, taken = sorted(now), sorted(set(range(MIXED.gpus)) - now)
        gpus = tuple(sorted(rng.sample(offered, rng.randrange(len(offered) + 1))))
        back = tuple(sorted(rng.sample(taken, rng.randrange(len(taken) + 1))))
        pool.take(gpus)
        pool.give(back)
        now = (now - set(gpus)) | set(back)
        assert set(pool) == now
        assert pool.count == len(now)
        assert pool.counts == [len(gpus) for gpus in by_node(now).values()]
        assert all(bool(pool.by_count[c] >> n & 1) == (pool.counts[n] == c) for c in range(9) for n in range(6))
    pool.rollback()
    assert set(pool) == free


def test_a_pool_refuses_what_is_taken_and_what_is_there() -> None:
    pool = Pool(MIXED, [0, 1])
    with pytest.raises(ValueError, match="not on offer"):
        pool.take((2,))
    with pytest.raises(ValueError, match="on offer already"):
        pool.give((1,))
