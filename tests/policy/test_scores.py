"""What is learnt of GPUs from the iteration times of the jobs on them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from fairlead.model.variability import Variability
from fairlead.policy.scores import Scores, _after_maximum


def draws(n: int, gpus: int, true: list[float], seed: int) -> list[tuple[list[int], float]]:
    """Random sets of n GPUs and how slow the slowest of them is."""
    rng = random.Random(seed)
    found = []
    for _ in range(200):
        chosen = sorted(rng.sample(range(gpus), n))
        found.append((chosen, max(true[g] for g in chosen)))
    return found


def test_the_belief_after_a_maximum_is_that_of_many_draws() -> None:
    rng = np.random.default_rng(1)
    mean, sd, y = np.array([0.0, 0.1, -0.1]), np.array([0.1, 0.05, 0.2]), 0.12
    sample = rng.normal(mean, sd, size=(2_000_000, 3))
    near = sample[np.abs(sample.max(axis=1) - y) < 0.004]
    got_mean, got_sd = _after_maximum(mean, sd, y)
    assert got_mean == pytest.approx(near.mean(axis=0), abs=0.004)
    assert got_sd == pytest.approx(near.std(axis=0), abs=0.004)


def test_a_gpu_seen_alone_is_known_at_once() -> None:
    scores = Scores(Variability({"A": [1.0] * 8}))
    assert scores.observe("A", [3], 1.1)
    assert scores.of_class("A")[3] == pytest.approx(1.1, abs=0.02)
    assert scores.version("A") == 1


def test_what_was_expected_teaches_nothing() -> None:
    scores = Scores(Variability({"A": [1.0, 1.2, 1.0, 1.0]}))
    assert not scores.observe("A", [0, 1], 1.2)
    assert scores.version("A") == 0
    assert list(scores.of_class("A")) == [1.0, 1.2, 1.0, 1.0]


def test_nobody_is_believed_slower_than_a_run_it_took_part_in() -> None:
    scores = Scores(Variability({"A": [1.0, 1.3, 1.0, 1.0]}))
    assert scores.observe("A", [0, 1], 1.0)
    assert scores.of_class("A")[1] < 1.06


@pytest.mark.parametrize("width", [1, 4, 8])
def test_noisy_scores_are_corrected(width: int) -> None:
    rng = random.Random(5)
    true = [math.exp(rng.gauss(0.0, 0.03)) for _ in range(32)]
    seen = [t * math.exp(rng.gauss(0.0, 0.1)) for t in true]
    scores = Scores(Variability({"A": seen}))
    for gpus, slowdown in draws(width, 32, true, seed=6):
        scores.observe("A", gpus, slowdown)
    before = np.abs(np.log(np.array(seen) / true)).mean()
    after = np.abs(np.log(np.array(scores.of_class("A")) / true)).mean()
    assert after < 0.4 * before


def test_a_gpu_that_grew_slow_is_found_by_halving_and_named() -> None:
    true = [1.0] * 31 + [1.0]
    scores = Scores(Variability({"A": list(true)}))
    for gpus, slowdown in draws(8, 32, true, seed=1):
        scores.observe("A", gpus, slowdown)
    true[20] = 2.0
    tries = 0
    # A scheduler that takes the 16 GPUs it believes fastest, as PM-First would.
    while list(scores.slow_gpus()) != [20]:
        gpus = sorted(range(32), key=lambda g: (scores.of_class("A")[g], abs(g - 20), g))[:16]
        scores.observe("A", sorted(gpus), max(true[g] for g in gpus))
        if 20 not in gpus:
            # Someone else takes what is left.
            rest = [g for g in range(32) if g not in gpus]
            scores.observe("A", rest, max(true[g] for g in rest))
        tries += 1
        assert tries < 20
    assert scores.hunts() == []
    assert scores.of_class("A")[20] > 1.9
    assert max(s for g, s in enumerate(scores.of_class("A")) if g != 20) < 1.1


def test_an_open_hunt_is_told() -> None:
    scores = Scores(Variability({"A": [1.0] * 16}))
    scores.observe("A", range(8), 2.0)
    assert scores.hunts() == [("A", list(range(8)))]
    assert scores.slow_gpus() == {}


def test_a_gpu_that_recovers_is_believed_again() -> None:
    scores = Scores(Variability({"A": [1.0] * 8}))
    scores.observe("A", [2], 2.0)
    assert scores.of_class("A")[2] == pytest.approx(2.0, abs=0.03)
    scores.observe("A", [2], 1.0)
    assert scores.of_class("A")[2] == pytest.approx(1.0, abs=0.05)


def test_classes_are_learnt_apart() -> None:
    scores = Scores(Variability({"A": [1.0] * 4, "B": [1.0] * 4}))
    scores.observe("A", [0], 1.5)
    assert list(scores.of_class("B")) == [1.0] * 4
