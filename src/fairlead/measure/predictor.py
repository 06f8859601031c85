"""Training predictors from measured pairs, and how well they do on pairs they have not seen.

Held out are, in turn, a fifth of the pairs (`by pair`: both workloads are known, only not together), and a fifth of the
applications (`by application`: one or both workloads are new). The best method is the one with the smallest mean error
of the throughput by pair; k-NN is compared but kept only on request, since its time grows with what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import InputError, did_you_mean
from fairlead.measure.fitting import FITS
from fairlead.measure.pair_table import Pairs
from fairlead.model.predictor import Prediction, Predictor, Scaler, transformed
from fairlead.policy.sharing.matching import match

METHODS = tuple(FITS)
FOLDS = 5
LEAST_PAIRS = 20
_DRAWS, _DRAWN = 20, 200
SPLITS = ("pair", "application")


@dataclass(frozen=True, slots=True)
class Score:
    """How far predictions are from what was measured, and whether they rank alike."""

    mae: float
    rmse: float
    r2: float
    spearman: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One method on one way of holding out."""

    method: str
    held_out: str
    pairs: int
    throughput: Score
    slowdown: Score
    matching_frac: float | None
    """Throughput of the matching on predictions over that of the matching on true weights; every weight was predicted
    by a model that had not seen that pair. None where not every service was measured with every job."""
    matching_trained_frac: float | None
    """The same where one model, trained on four fifths of the pairs, predicts all of them, as in use; mean of the five
    models, by pair only."""


def train(pairs: Pairs, method: str, *, seed: int = 0) -> Predictor:
    """A predictor of one method, from pairs of one GPU model."""
    if method not in FITS:
        raise InputError(f"no method {method!r}", hint=did_you_mean(method, FITS))
    if len(pairs.gpu_models) > 1:
        raise InputError(f"pairs of several GPU models: {', '.join(pairs.gpu_models)}; expected one")
    service = _scaler({**pairs.service, "sm_share_frac": pairs.sm_share_frac})
    offline = _scaler(pairs.offline)
    x = np.hstack([service({**pairs.service, "sm_share_frac": pairs.sm_share_frac}), offline(pairs.offline)])
    y = np.stack([pairs.throughput_frac, 1.0 / pairs.slowdown], axis=1).astype(np.float32)
    with _one_thread():
        made = FITS[method](x, y, len(service.names), seed)
    return Predictor(pairs.gpu_models[0], service, offline, made)


def _one_thread() -> AbstractContextManager[object]:
    """Many small products: on several threads they take six times as long."""
    try:
        from threadpoolctl import threadpool_limits  # it comes with scikit-learn
    except ImportError:
        return nullcontext()
    return cast(AbstractContextManager[object], threadpool_limits(1))


def evaluate(
    pairs: Pairs, methods: Sequence[str] = METHODS, *, seed: int = 0, splits: Sequence[str] = SPLITS
) -> list[Evaluation]:
    """Every method, by pair and by application."""
    if len(pairs) < LEAST_PAIRS:
        raise InputError(f"{len(pairs)} pairs, expected at least {LEAST_PAIRS} to hold some out")
    found = []
    for split in splits:
        folds = list(_folds(pairs, split, seed))
        if not folds:
            continue
        for method in methods:
            kept, slower = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
            trained = []
            for learn, test in folds:
                guess = _guess(train(pairs.take(learn), method, seed=seed), pairs)
                # By application a pair of two held-out applications of different folds is seen twice: the last stays.
                kept[test], slower[test] = guess.throughput_frac[test], guess.slowdown[test]
                if split == "pair":
                    trained.append(_matching_frac(pairs, guess.throughput_frac, seed))
            found.append(_evaluation(pairs, method, split, kept, slower, trained, seed))
    return found


def evaluate_trained(predictor: Predictor, pairs: Pairs) -> Evaluation:
    """A predictor as it is, on all of these pairs; an honest figure only where it was not trained on them."""
    guess = _guess(predictor, pairs)
    return _evaluation(pairs, predictor.method, "none", guess.throughput_frac, guess.slowdown, [], 0)


def best_method(evaluations: Sequence[Evaluation]) -> str:
    """The smallest mean error of the throughput by pair; k-NN is too slow to be kept unasked."""
    able = [e for e in evaluations if e.held_out == "pair" and e.method != "k-nn"]
    if not able:
        raise InputError("nothing was held out by pair: too few different pairs")
    return min(able, key=lambda e: e.throughput.mae).method


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation in plain types, for `--json`."""
    return asdict(evaluation)


def _scaler(columns: Mapping[str, NDArray[np.float64]]) -> Scaler:
    names = (*sorted(name for name in columns if name != "sm_share_frac"),)
    names += ("sm_share_frac",) if "sm_share_frac" in columns else ()
    mean, scale = [], []
    for name in names:
        value = transformed(name, columns[name])
        value = value[np.isfinite(value)]
        mean.append(float(value.mean()) if len(value) else 0.0)
        spread = float(value.std()) if len(value) else 0.0
        scale.append(spread if spread > 1e-9 else 1.0)
    return Scaler(names, np.asarray(mean, dtype=np.float32), np.asarray(scale, dtype=np.float32))


def _guess(predictor: Predictor, pairs: Pairs) -> Prediction:
    return predictor.predict_rows(pairs.service, pairs.offline, pairs.sm_share_frac)


def _folds(pairs: Pairs, split: str, seed: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Masks of what to learn from and what to test on."""
    rng = np.random.default_rng([seed, len(split)])
    if split == "pair":
        # Both roles of two workloads are one measurement.
        ends = np.sort(np.stack([pairs.service_name, pairs.offline_name], axis=1), axis=1)
        _, group = np.unique(ends, axis=0, return_inverse=True)
        groups = int(group.max()) + 1
        fold = (rng.permutation(groups) % FOLDS)[group.ravel()]
        for number in range(min(FOLDS, groups)):
            if (fold != number).any():
                yield fold != number, fold == number
        return
    both = np.concatenate([pairs.service_application, pairs.offline_application])
    names, number_of = np.unique(both, return_inverse=True)
    fold = (rng.permutation(len(names)) % FOLDS)[number_of]
    of_service, of_offline = fold[: len(pairs)], fold[len(pairs) :]
    for number in range(min(FOLDS, len(names))):
        test = (of_service == number) | (of_offline == number)
        if test.any() and (~test).sum() >= LEAST_PAIRS // 2:
            yield ~test, test


def _evaluation(
    pairs: Pairs,
    method: str,
    split: str,
    kept: NDArray[Any],
    slower: NDArray[Any],
    trained: Sequence[float | None],
    seed: int,
) -> Evaluation:
    seen = np.isfinite(kept)
    whole = bool(seen.all())
    reached = [one for one in trained if one is not None]
    return Evaluation(
        method,
        split,
        int(seen.sum()),
        _score(pairs.throughput_frac[seen], kept[seen]),
        _score(pairs.slowdown[seen], slower[seen]),
        _matching_frac(pairs, kept, seed) if whole else None,
        float(np.mean(reached)) if reached else None,
    )


def _score(truth: NDArray[Any], guess: NDArray[Any]) -> Score:
    error = guess.astype(np.float64) - truth
    spread = float(((truth - truth.mean()) ** 2).mean())
    mse = float((error**2).mean())
    a, b = _ranks(truth), _ranks(guess)
    alike = float(np.corrcoef(a, b)[0, 1]) if a.std() > 0.0 and b.std() > 0.0 else 0.0
    return Score(float(np.abs(error).mean()), mse**0.5, 1.0 - mse / spread if spread > 0.0 else 0.0, alike)


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ties share the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2.0)[group.ravel()]


def _matching_frac(pairs: Pairs, guess: NDArray[Any], seed: int) -> float | None:
    """200 services and 200 offline jobs drawn from those measured, matched by guess and by truth; mean of 20 draws."""
    services, s = np.unique(pairs.service_name, return_inverse=True)
    jobs, o = np.unique(pairs.offline_name, return_inverse=True)
    if len(pairs) < 0.8 * len(services) * len(jobs):  # pairs that do not fit are missing; most are there
        return None
    truth_of, guess_of = np.zeros((2, len(services), len(jobs)))
    truth_of[s, o] = np.maximum(pairs.throughput_frac, 1e-6)
    guess_of[s, o] = np.maximum(guess, 1e-6)
    reached = []
    for draw in range(_DRAWS):
        rng = np.random.default_rng([seed, draw])
        drawn = np.ix_(rng.integers(0, len(services), _DRAWN), rng.integers(0, len(jobs), _DRAWN))
        truth = truth_of[drawn]
        found = match(guess_of[drawn]).partner
        rows = np.flatnonzero(found >= 0)
        reached.append(float(truth[rows, found[rows]].sum()) / match(truth).weight)
    return float(np.mean(reached))
