"""The widths that a budget buys (BOA: "How to Rent GPUs on a Budget").

Jobs of type i arrive at rate l_i with mean size X_i (seconds on one GPU), a load of r_i = l_i X_i; on k GPUs they run
s_i(k) times as fast. Nobody queues, and every job of a type has the same width from start to end:

    minimise  sum r_i / s_i(k_i) / sum l_i    subject to    sum r_i k_i / s_i(k_i) <= b

b is the long-run mean number of GPUs rented. For a price m on GPUs each type decides alone, k_i(m) = argmin
(1 + m k) / s_i(k), and m is found by bisection. Where widths are discrete, usage jumps at some prices; at the last one
the types that are torn between two widths use both, so that the budget is met exactly. That is optimal: it is the
optimum of the linear relaxation, and at most one jump is left to mix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import InfeasibleError
from fairlead.model.profile import Amdahl, Power

Floats = NDArray[np.float64]
_LOW, _HIGH = 1e-18, 1e18
_STEPS = 200


@dataclass(frozen=True, slots=True)
class JobType:
    """One type of job: how often it comes, how large it is, how it scales.

    `speedup` is a law (`Power`, `Amdahl`), then any real width of at least 1 may be chosen, or None, then `widths` and
    `speedups` list what may be chosen.
    """

    name: str
    arrival_rate_per_s: float
    mean_size_s: float
    speedup: Power | Amdahl | None = None
    widths: tuple[float, ...] = ()
    speedups: tuple[float, ...] = ()

    @property
    def load(self) -> float:
        """r: GPUs that it would keep busy at width 1."""
        return self.arrival_rate_per_s * self.mean_size_s


@dataclass(frozen=True, slots=True)
class Part:
    """A width, and the fraction of a type's jobs that get it."""

    width: float
    speedup: float
    frac: float


@dataclass(frozen=True, slots=True)
class Widths:
    """What to give each type, and what that promises with Poisson arrivals."""

    types: tuple[JobType, ...]
    parts: tuple[tuple[Part, ...], ...]
    """Per type one part, or two where the budget falls between two widths."""
    price: float
    """m: what a GPU is worth, in jobs' seconds per GPU-second; 0 where the budget buys the fastest widths of all."""

    def mean_jct_s(self, number: int | None = None) -> float:
        """Mean completion time of one type, or of all jobs."""
        which = range(len(self.types)) if number is None else (number,)
        busy = sum(self.types[i].load * p.frac / p.speedup for i in which for p in self.parts[i])
        return busy / sum(self.types[i].arrival_rate_per_s for i in which)

    def width(self, number: int) -> float:
        """Mean width over the jobs of a type."""
        return sum(p.frac * p.width for p in self.parts[number])

    @property
    def gpus_mean(self) -> float:
        """E[K] = sum r k / s."""
        return sum(
            t.load * p.frac * p.width / p.speedup for t, ps in zip(self.types, self.parts, strict=True) for p in ps
        )

    @property
    def gpus_std(self) -> float:
        """sqrt(Var[K]), Var[K] = sum k^2 r / s: the numbers in service are independent Poisson."""
        terms = (
            t.load * p.frac * p.width**2 / p.speedup for t, ps in zip(self.types, self.parts, strict=True) for p in ps
        )
        return float(np.sqrt(sum(terms)))


class _Choice(Protocol):
    """Types of one kind, all at once."""

    loads: Floats

    def at(self, price: float) -> tuple[Floats, Floats]:
        """(widths, speedups) that each takes at that price."""
        ...

    def only(self, rows: NDArray[np.bool_]) -> _Choice:
        """The choice for some of the types."""
        ...


class _PowerLaws:
    """s = k^p: k = p / ((1 - p) m), at least 1."""

    def __init__(self, loads: Floats, p: Floats) -> None:
        self.loads, self._p = loads, p

    @classmethod
    def of(cls, types: Sequence[JobType]) -> _PowerLaws:
        powers = [t.speedup.p for t in types if isinstance(t.speedup, Power)]
        return cls(np.array([t.load for t in types]), np.array(powers))

    def only(self, rows: NDArray[np.bool_]) -> _PowerLaws:
        return _PowerLaws(self.loads[rows], self._p[rows])

    def at(self, price: float) -> tuple[Floats, Floats]:
        with np.errstate(divide="ignore"):
            widths = np.maximum(1.0, np.where(self._p < 1.0, self._p / ((1.0 - self._p) * price), np.inf))
        widths = np.minimum(widths, 1.0 / _LOW)
        return widths, widths**self._p


class _AmdahlLaws:
    """s = 1 / (1 - f + f/k): k = sqrt(f / ((1 - f) m)), at least 1."""

    def __init__(self, loads: Floats, f: Floats) -> None:
        self.loads, self._f = loads, f

    @classmethod
    def of(cls, types: Sequence[JobType]) -> _AmdahlLaws:
        fractions = [t.speedup.f for t in types if isinstance(t.speedup, Amdahl)]
        return cls(np.array([t.load for t in types]), np.array(fractions))

    def only(self, rows: NDArray[np.bool_]) -> _AmdahlLaws:
        return _AmdahlLaws(self.loads[rows], self._f[rows])

    def at(self, price: float) -> tuple[Floats, Floats]:
        with np.errstate(divide="ignore"):
            widths = np.maximum(1.0, np.sqrt(np.where(self._f < 1.0, self._f / ((1.0 - self._f) * price), np.inf)))
        widths = np.minimum(widths, 1.0 / _LOW)
        return widths, 1.0 / (1.0 - self._f + self._f / widths)


class _Tables:
    """Listed widths: the one with the smallest (1 + m k) / s, the narrower of equals."""

    def __init__(self, loads: Floats, k: Floats, s: Floats) -> None:
        self.loads, self._k, self._s = loads, k, s
        self._inv = np.where(np.isfinite(k), 1.0 / s, np.inf)
        self._cost = np.where(np.isfinite(k), k / s, np.inf)

    @classmethod
    def of(cls, types: Sequence[JobType]) -> _Tables:
        longest = max(len(t.widths) for t in types)
        k = np.array([t.widths + (np.inf,) * (longest - len(t.widths)) for t in types], dtype=np.float64)
        s = np.array([t.speedups + (1.0,) * (longest - len(t.widths)) for t in types], dtype=np.float64)
        if (k[:, 1:] < k[:, :-1]).any():
            order = np.argsort(k, axis=1, kind="stable")
            k, s = np.take_along_axis(k, order, axis=1), np.take_along_axis(s, order, axis=1)
        return cls(np.array([t.load for t in types]), k, s)

    def only(self, rows: NDArray[np.bool_]) -> _Tables:
        return _Tables(self.loads[rows], self._k[rows], self._s[rows])

    def at(self, price: float) -> tuple[Floats, Floats]:
        best = (self._inv + price * self._cost).argmin(axis=1)
        rows = np.arange(len(self.loads))
        return self._k[rows, best], self._s[rows, best]


def solve(types: Sequence[JobType], budget: float) -> Widths:
    """The widths with the smallest mean completion time that cost no more than the budget on average."""
    groups = _grouped(types)
    choices = [choice for choice, _ in groups]
    check_feasible(budget, _usage(choices, _HIGH))
    if _usage(choices, _LOW) <= budget:
        return _assemble(types, groups, _LOW, _LOW, 0.0, 0.0)
    low, high = _bracket(choices, budget)
    gap = _usage(choices, low) - _usage(choices, high)
    share = (budget - _usage(choices, high)) / gap if gap > 0.0 else 0.0
    return _assemble(types, groups, low, high, share, high)


def check_feasible(budget: float, least: float) -> None:
    """Refuse a budget under what the most efficient widths use, and name that."""
    if least > budget * (1.0 + 1e-12):
        raise InfeasibleError(
            f"a budget of {budget:g} GPUs is too small: at their most efficient widths these jobs use {least:.6g}",
            hint=f"the smallest feasible budget is {least:.6g}",
        )


def _usage(choices: Sequence[_Choice], price: float) -> float:
    """GPUs rented on average at that price."""
    return sum(float((c.loads * k / s).sum()) for c in choices for k, s in [c.at(price)])


def _bracket(choices: list[_Choice], budget: float) -> tuple[float, float]:
    """Prices next to each other, the lower of which overspends."""
    low, high = _LOW, _HIGH
    for step in range(1, _STEPS):
        middle = float(np.sqrt(low * high))
        if not low < middle < high or high / low < 1.0 + 1e-15:
            break
        if _usage(choices, middle) > budget:
            low = middle
        else:
            high = middle
        if step % 8 == 0:
            choices, spent = _undecided(choices, low, high)
            budget -= spent
    return low, high


def _undecided(choices: Sequence[_Choice], low: float, high: float) -> tuple[list[_Choice], float]:
    """Choices are monotone in the price: who takes the same at both ends does so between them too."""
    left, spent = [], 0.0
    for choice in choices:
        (wide, _), (narrow, speedups) = choice.at(low), choice.at(high)
        same = wide == narrow
        spent += float((choice.loads * narrow / speedups)[same].sum())
        left.append(choice.only(~same))
    return left, spent


def _assemble(
    types: Sequence[JobType],
    groups: list[tuple[_Choice, list[int]]],
    low: float,
    high: float,
    share: float,
    price: float,
) -> Widths:
    """Mix the choices at two prices: `share` of the overspending one."""
    parts: list[tuple[Part, ...]] = [()] * len(types)
    for choice, numbers in groups:
        (wide, fast), (narrow, slow) = choice.at(low), choice.at(high)
        for at, number in enumerate(numbers):
            if share <= 0.0 or wide[at] == narrow[at]:
                parts[number] = (Part(float(narrow[at]), float(slow[at]), 1.0),)
            elif abs(wide[at] / narrow[at] - 1.0) < 1e-9:
                parts[number] = (Part(float(wide[at]), float(fast[at]), 1.0),)
            else:
                parts[number] = (
                    Part(float(narrow[at]), float(slow[at]), 1.0 - share),
                    Part(float(wide[at]), float(fast[at]), share),
                )
    return Widths(tuple(types), tuple(parts), price)


def _grouped(types: Sequence[JobType]) -> list[tuple[_Choice, list[int]]]:
    kinds: list[tuple[type, Callable[[Sequence[JobType]], _Choice]]] = [
        (Power, _PowerLaws.of),
        (Amdahl, _AmdahlLaws.of),
        (type(None), _Tables.of),
    ]
    groups: list[tuple[_Choice, list[int]]] = []
    for kind, make in kinds:
        numbers = [i for i, t in enumerate(types) if isinstance(t.speedup, kind)]
        if numbers:
            groups.append((make([types[i] for i in numbers]), numbers))
    return groups
