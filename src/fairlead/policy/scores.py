"""What is believed of the GPUs' speeds: the scores that policies read.

It begins as the profile of the cluster. A driver that sees iteration times corrects it with `observe`, so that scores
that were measured wrong, or that have drifted since, are found out in passing. A version per class lets a policy notice
a change without comparing.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.model.binning import clearly_slow
from fairlead.model.variability import Variability

TOLERANCE = 0.02
"""Iteration times repeat to about this; smaller changes of belief are not worth telling."""


class Scores:
    """How slow each GPU is believed to be, class by class."""

    def __init__(self, profile: Variability) -> None:
        self._profile = profile
        self._beliefs: dict[str, Belief] = {}
        self._means: tuple[tuple[int, ...], NDArray[np.float64]] | None = None

    def means(self) -> NDArray[np.float64]:
        """How slow each GPU is on average over all classes; counted anew only where beliefs have changed."""
        classes = sorted({*self._profile.scores, *self._beliefs})
        versions = tuple(self.version(name) for name in classes)
        if self._means is None or self._means[0] != versions:
            self._means = versions, np.mean([self.of_class(name) for name in classes], axis=0)
        return self._means[1]

    def of_class(self, app_class: str) -> Sequence[float]:
        """Believed scores of one class, one per GPU."""
        belief = self._beliefs.get(app_class)
        return belief.told if belief is not None else self._profile.of_class(app_class)

    def version(self, app_class: str) -> int:
        """Changes whenever a score of the class does."""
        belief = self._beliefs.get(app_class)
        return belief.version if belief is not None else 0

    def observe(self, app_class: str, gpus: Sequence[int], slowdown: float) -> bool:
        """A job of that class ran on these GPUs at that multiple of its iteration time on median ones.

        The penalty for spanning nodes and what neighbours cost are taken out before. Tells whether beliefs changed.
        """
        return self.observe_all(app_class, [(gpus, slowdown)])

    def observe_ranks(self, app_class: str, gpus: Sequence[int], slowdowns: Sequence[float]) -> bool:
        """The same, where every rank of the job reports its own time, without the wait for the others."""
        return self.observe_all(app_class, [((g,), s) for g, s in zip(gpus, slowdowns, strict=True)])

    def observe_all(self, app_class: str, seen: Sequence[tuple[Sequence[int], float]]) -> bool:
        """Take several observations of one class at once; tells whether beliefs changed."""
        belief = self._beliefs.get(app_class)
        if belief is None:
            belief = self._beliefs[app_class] = Belief(self._profile.of_class(app_class))
        for gpus, slowdown in seen:
            belief.observe(np.asarray(gpus), math.log(slowdown))
        return belief.tell()

    def slow_gpus(self) -> dict[int, dict[str, float]]:
        """The GPUs that an operator should look at, with their scores in the classes that show it."""
        found: dict[int, dict[str, float]] = {}
        for app_class in sorted({*self._profile.scores, *self._beliefs}):
            scores = np.asarray(self.of_class(app_class))
            hunted = {g for suspects in self._suspects(app_class) for g in suspects}
            for g in np.flatnonzero(clearly_slow(scores)):
                if int(g) not in hunted:
                    found.setdefault(int(g), {})[app_class] = float(scores[g])
        return dict(sorted(found.items()))

    def hunts(self) -> list[tuple[str, list[int]]]:
        """(class, GPUs): one of these has become slow, and it is not known yet which."""
        return [(c, sorted(suspects)) for c in sorted(self._beliefs) for suspects in self._suspects(c)]

    def _suspects(self, app_class: str) -> list[set[int]]:
        belief = self._beliefs.get(app_class)
        return [hunt.suspects for hunt in belief.hunts] if belief is not None else []


_TRUST = 0.02
"""Standard deviation of a profile's log scores that nothing speaks against."""
_SHARP = 0.01
"""Standard deviation of a log score that was seen alone."""
_USUAL_SPREAD = 0.03
"""Standard deviation of true log scores among healthy GPUs of one model (ResNet on both TACC clusters: 2.6 %)."""
_REMEMBERED = 500
"""Observations kept to be learnt anew when the profile turns out better or worse than thought."""
_SURPRISE_SD = 6.0
_SURPRISE = 0.2
"""An observation this far (in standard deviations, and in log score) above everyone concerned: a GPU has changed."""

Floats = NDArray[np.float64]


class Belief:
    """Log scores of one class as normal distributions, learnt from maxima.

    A bulk-synchronous job shows how slow the *slowest* of its GPUs is, y = max x_g, not which one that is. The chance
    that it is g goes with p_g(y) / P_g(x <= y); given that, x_g = y, and otherwise x_g is what it was, cut off at y.
    Mean and variance of that mixture are the new belief (assumed-density filtering). Two things besides:

    - how wrong the profile is shows in how far observations are from what it predicted. The more wrong, the closer its
      scores are drawn to the median before anything is learnt (a GPU that was measured fast by mistake would else be
      everyone's favourite, and one measured slow would never be tried);
    - an observation that none of the GPUs can account for means that one of them has changed. That one is hunted down
      by halving (`Hunt`).
    """

    def __init__(self, profile: Sequence[float]) -> None:
        self._profile = np.log(np.asarray(profile, dtype=np.float64))
        self._middle = float(np.median(self._profile))
        self._spread = 1.4826 * float(np.median(np.abs(self._profile - self._middle)))
        self._mean = self._profile.copy()
        self._sd = np.full(len(self._profile), _TRUST)
        self._error = _TRUST
        self._seen: deque[tuple[NDArray[np.int64], float, float]] = deque(maxlen=_REMEMBERED)
        """(GPUs, log slowdown, squared error of the profile's prediction) of the last observations."""
        self.hunts: list[Hunt] = []
        self.told: list[float] = [float(s) for s in profile]
        """What policies are told; renewed when a score has moved by more than the tolerance."""
        self.version = 0

    def observe(self, gpus: NDArray[np.int64], y: float) -> None:
        """Take in one observed log slowdown."""
        members = {int(g) for g in gpus}
        explained = [hunt.narrow(members, y) for hunt in self.hunts]
        if (y - self._mean[gpus] > np.maximum(_SURPRISE, _SURPRISE_SD * self._sd[gpus])).all():
            if not any(explained):
                self.hunts.append(Hunt(y, members))
        else:
            self._seen.append((gpus, y, self._squared_error(gpus, y)))
            if not self._judge_profile():
                self._learn(gpus, y)
        self._settle_hunts()

    def _learn(self, gpus: NDArray[np.int64], y: float) -> None:
        self._mean[gpus], self._sd[gpus] = _after_maximum(self._mean[gpus], self._sd[gpus], y)

    def tell(self) -> bool:
        """Renew what policies are told, if it has moved enough for them to look again."""
        # In steps: differences within one are not known well enough to prefer a GPU for them.
        now = np.exp(self._middle + TOLERANCE * np.round((self._mean - self._middle) / TOLERANCE))
        for hunt in self.hunts:
            now[hunt.blamed()] = np.maximum(now[hunt.blamed()], math.exp(hunt.y))
        if np.abs(now / np.asarray(self.told) - 1.0).max() <= TOLERANCE:
            return False
        self.told = now.tolist()
        self.version += 1
        return True

    def _settle_hunts(self) -> None:
        for hunt in self.hunts:
            if len(hunt.suspects) == 1:
                culprit = next(iter(hunt.suspects))
                self._mean[culprit], self._sd[culprit] = hunt.y, _SHARP
                self._profile[culprit] = hunt.y
                kept = [seen for seen in self._seen if culprit not in seen[0]]
                self._seen = deque(kept, maxlen=_REMEMBERED)
        self.hunts = [hunt for hunt in self.hunts if len(hunt.suspects) > 1]

    def _judge_profile(self) -> bool:
        """How wrong the profile is; if that has changed much, everything is learnt anew in its light."""
        squares = [square for _, _, square in self._seen]
        # By the median, which a few GPUs that really changed don't move; that of a squared normal is 0.455.
        error = max(_TRUST, math.sqrt(statistics.median(squares) / 0.455)) if len(squares) > 4 else _TRUST
        if 0.8 * self._error <= error <= 1.25 * self._error:
            return False
        self._error = error
        kept = _USUAL_SPREAD**2 / (_USUAL_SPREAD**2 + error**2)
        away = self._profile - self._middle
        usual = np.abs(away) <= 3.0 * max(self._spread, error)
        self._mean = np.where(usual, self._middle + kept * away, self._profile)
        self._sd = np.full(len(away), max(_TRUST, error * math.sqrt(kept)))
        for gpus, y, _ in self._seen:
            self._learn(gpus, y)
        return True

    def _squared_error(self, gpus: NDArray[np.int64], y: float) -> float:
        off = y - float(self._profile[gpus].max())
        # Among n noisy scores the largest is too large by several standard deviations: about sqrt(1.5 ln n - 0.6).
        return off * off / max(1.0, 1.5 * math.log(len(gpus)) - 0.6)


@dataclass
class Hunt:
    """One GPU of a set has become slow. Policies are told that half of the set has, so that they try without it.

    A later run as slow as this narrows the suspects to those that were in it; a faster run clears everyone in it.
    """

    y: float
    suspects: set[int]

    def narrow(self, gpus: set[int], y: float) -> bool:
        """What another run says; tells whether this hunt accounts for its slowness."""
        if y < self.y - TOLERANCE:
            self.suspects -= gpus
            return False
        if y > self.y + TOLERANCE or not self.suspects & gpus:
            return False
        self.suspects &= gpus
        return True

    def blamed(self) -> list[int]:
        """The first half by number: whole nodes where possible, so that the other half stays whole too."""
        return sorted(self.suspects)[: (len(self.suspects) + 1) // 2]


def _after_maximum(mean: Floats, sd: Floats, y: float) -> tuple[Floats, Floats]:
    """Means and standard deviations of independent normals, once their maximum is known to be y."""
    a = (y - mean) / sd
    log_cdf = np.array([_log_cdf(v) for v in a])
    log_pdf = -0.5 * a * a - 0.5 * math.log(2.0 * math.pi)
    blame = log_pdf - np.log(sd) - log_cdf
    blame = np.exp(blame - blame.max())
    blame /= blame.sum()
    mills = np.exp(log_pdf - log_cdf)
    cut_mean = mean - sd * mills
    cut_var = sd * sd * np.maximum(1.0 - a * mills - mills * mills, 1e-6)
    new_mean = blame * y + (1.0 - blame) * cut_mean
    new_var = blame * (_SHARP**2 + (y - new_mean) ** 2) + (1.0 - blame) * (cut_var + (cut_mean - new_mean) ** 2)
    return new_mean, np.maximum(np.sqrt(new_var), _SHARP)


def _log_cdf(a: float) -> float:
    """log P(z <= a) of a standard normal, also far out on the left, where the probability itself is 0."""
    if a > -30.0:
        return math.log(0.5 * math.erfc(-a / math.sqrt(2.0)))
    return -0.5 * a * a - math.log(-a) - 0.5 * math.log(2.0 * math.pi)
