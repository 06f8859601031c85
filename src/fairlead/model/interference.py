"""What jobs keep of their speed beside each other on a GPU: I_p of the speed equation.

A table of measured sets, keyed by the names of the profiles. What was never measured is predicted, in this order:

    set     the exact set was measured
    pairs   the product of what each neighbour alone was measured to leave
    prior   a curve over the sum of the solo activities; where some pairs are known, the smaller of their product and
            the curve

Two tables are shipped: `eaco` (four vision models on eight V100) and `gavel-v100` (26 job types in pairs).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from fairlead.errors import InputError, did_you_mean
from fairlead.model.profile import Profile
from fairlead.model.tables.entry import (
    FORMAT,
    as_text,
    brief,
    wrong_names,
    wrong_samples,
    wrong_speeds,
    wrong_utilisation,
)

BUILT_IN = ("eaco", "gavel-v100", "none")
"""What `built_in` knows."""

Source = Literal["set", "pairs", "prior"]

# I for a set never measured, by the sum of the solo activities on one GPU: free up to 1.0, then linear between these
# points (the prior for time slicing in docs/papers/eaco.md).
_PRIOR = ((1.0, 1.0), (1.1, 0.93), (1.3, 0.87), (1.5, 0.80), (1.7, 0.73), (1.9, 0.68))

# Traces may give every job a name of its own; the cache must not keep them all.
_CACHE_LIMIT = 65_536

_Found = TypeVar("_Found")
_Key = tuple[str, ...]
"""The names of a set in lower case, sorted; a name stands as often as there are jobs of it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one set of jobs on the same GPUs."""

    speeds: tuple[float, ...]
    """Of each job, over its speed alone, in the order of the sorted names. Jobs of one name share their mean."""
    utilisation_frac: float | None
    """Of the GPU, while all of them ran; None where nobody looked."""
    samples: int = 1
    """How many measurements these are the mean of."""


def prior(total_activity: float) -> float:
    """I for a set never measured, from the sum of the solo activities."""
    if total_activity <= 1.0:
        return 1.0
    for (x0, y0), (x1, y1) in itertools.pairwise(_PRIOR):
        if total_activity <= x1:
            return y0 + (y1 - y0) * (total_activity - x0) / (x1 - x0)
    # Beyond the points the GPU's time is shared out in proportion.
    return _PRIOR[-1][1] * _PRIOR[-1][0] / total_activity


class Interference:
    """Measured sets, and what they say of sets that were not measured. Names are the same in any case."""

    def __init__(self, does_not_fit: Iterable[Sequence[str]] = ()) -> None:
        self._sets: dict[_Key, Measured] = {}
        self._shown: dict[_Key, tuple[str, ...]] = {}
        self._apart = {_key(names): _shown(names) for names in does_not_fit}
        # Activities are part of the keys: the prior needs them, and profiles of one name may differ in them.
        self._predicted: dict[tuple[object, ...], tuple[float, Source]] = {}
        self._utilised: dict[tuple[object, ...], float] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Measured]]:
        """(names, measured), sorted by names."""
        return ((self._shown[key], self._sets[key]) for key in sorted(self._sets))

    @property
    def does_not_fit(self) -> tuple[tuple[str, ...], ...]:
        """Sets that were tried and ran out of memory, sorted."""
        return tuple(self._apart[key] for key in sorted(self._apart))

    def fits(self, profiles: Sequence[Profile]) -> bool:
        """False where this very set, or two of it, was tried and ran out of memory."""
        if not self._apart:
            return True
        names = [p.name for p in profiles]
        return _key(names) not in self._apart and not any(
            _key(pair) in self._apart for pair in itertools.combinations(names, 2)
        )

    def predict(self, own: Profile, others: Sequence[Profile]) -> float:
        """What is left of `own`'s speed beside `others`; exactly 1 without others."""
        return self._lookup(own, others)[0] if others else 1.0

    def source(self, own: Profile, others: Sequence[Profile]) -> Source:
        """Where `predict` has it from; `prior` as soon as one pair is a guess. A job alone is no guess: `set`."""
        return self._lookup(own, others)[1] if others else "set"

    def utilisation(self, profiles: Sequence[Profile]) -> float:
        """Utilisation of a GPU with these jobs: as measured, else the sum of their activities, at most 1."""
        if len(profiles) < 2:
            return profiles[0].activity_frac if profiles else 0.0
        asked = tuple([(p.name, p.activity_frac) for p in profiles])
        found = self._utilised.get(asked)
        if found is None:
            measured = self._sets.get(_key(p.name for p in profiles))
            if measured is not None and measured.utilisation_frac is not None:
                found = measured.utilisation_frac
            else:
                found = min(1.0, math.fsum(p.activity_frac for p in profiles))
            _remember(self._utilised, asked, found)
        return found

    def record(self, names: Sequence[str], speeds: Sequence[float], utilisation_frac: float | None = None) -> None:
        """Add a measurement, one speed per name; repeated ones of a set are averaged."""
        self._add(names, speeds, utilisation_frac, samples=1)

    def copy(self) -> Interference:
        """The same measurements, apart from this table."""
        twin = Interference()
        twin._sets, twin._shown, twin._apart = dict(self._sets), dict(self._shown), dict(self._apart)
        return twin

    def updated(self, measured: Interference) -> Interference:
        """This table, with what another has measured in the place of its own where both know a set."""
        both = self.copy()
        both._sets |= measured._sets
        both._shown |= measured._shown
        both._apart |= measured._apart
        return both

    def to_dict(self) -> dict[str, Any]:
        """The table in plain types that JSON keeps."""
        sets = [
            {"names": [*names], "speeds": [*m.speeds], "utilisation_frac": m.utilisation_frac, "samples": m.samples}
            for names, m in self
        ]
        apart = {"does_not_fit": [[*names] for names in self.does_not_fit]} if self._apart else {}
        return {"format": FORMAT, "sets": sets, **apart}

    @classmethod
    def from_dict(cls, value: object, where: str = "interference table") -> Interference:
        """From what `to_dict` made; `where` stands in the errors. Other keys, such as a source, are for people."""
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"{where}: format is {found!r}, expected {FORMAT!r}")
        entries, apart = value.get("sets"), value.get("does_not_fit", [])
        if not isinstance(entries, list):
            raise InputError(f"{where}: sets is {brief(entries)}, expected a list")
        if not isinstance(apart, list):
            raise InputError(f"{where}: does_not_fit is {brief(apart)}, expected a list of lists of names")
        for number, together in enumerate(apart):
            if wrong := wrong_names(together):
                raise InputError(f"{where}: does_not_fit[{number}]: {wrong}")
        table = cls(apart)
        for number, entry in enumerate(entries):
            at = f"{where}: sets[{number}]"
            if not isinstance(entry, Mapping):
                raise InputError(f"{at}: found {brief(entry)}, expected names and speeds")
            names, speeds, utilisation_frac = (entry.get(k) for k in ("names", "speeds", "utilisation_frac"))
            table._add(names, speeds, utilisation_frac, entry.get("samples", 1), f"{at}: ")
            if len(table) == number:
                raise InputError(f"{at}: {' + '.join(entry['names'])} stands twice", hint="keep one of the two")
        return table

    def _add(self, names: Any, speeds: Any, utilisation_frac: Any, samples: Any, at: str = "") -> None:
        wrong = wrong_names(names) or wrong_speeds(names, speeds)
        if wrong := wrong or wrong_utilisation(utilisation_frac) or wrong_samples(samples):
            raise InputError(f"{at}{wrong}")
        key = _key(names)
        of_name = {
            name: _mean([s for n, s in zip(names, speeds, strict=True) if n.lower() == name]) for name in set(key)
        }
        new = Measured(tuple(of_name[name] for name in key), utilisation_frac, samples)
        old = self._sets.get(key)
        self._sets[key] = new if old is None else _pooled(old, new)
        self._shown.setdefault(key, _shown(names))
        self._predicted.clear()
        self._utilised.clear()

    def _lookup(self, own: Profile, others: Sequence[Profile]) -> tuple[float, Source]:
        asked = (own.name, own.activity_frac, *[(o.name, o.activity_frac) for o in others])
        found = self._predicted.get(asked)
        if found is None:
            found = self._work_out(own, others)
            _remember(self._predicted, asked, found)
        return found

    def _work_out(self, own: Profile, others: Sequence[Profile]) -> tuple[float, Source]:
        mine = own.name.lower()
        key = _key([mine, *(o.name for o in others)])
        if key in self._sets:
            return self._sets[key].speeds[key.index(mine)], "set"
        # Sorted names and an exact sum: the order of the neighbours changes nothing, not even the last bit.
        pairs = [_key((mine, name)) for name in sorted(o.name.lower() for o in others)]
        measured = [self._sets[pair].speeds[pair.index(mine)] for pair in pairs if pair in self._sets]
        if len(measured) == len(pairs):
            return math.prod(measured), "pairs"
        guess = prior(math.fsum((own.activity_frac, *(o.activity_frac for o in others))))
        return min([guess, math.prod(measured)] if measured else [guess]), "prior"


class _Empty(Interference):
    """The table that everybody shares who has measured nothing."""

    def _add(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("EMPTY is shared and stays empty; record into a table of your own, Interference()")


EMPTY: Interference = _Empty()
"""Nothing measured: predictions are the prior."""


def load_interference(path: Path | str) -> Interference:
    """A table or history that was saved as JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", hint=f'expected {{"format": "{FORMAT}", ...}}') from error
    return Interference.from_dict(value, str(path))


def save_interference(table: Interference, path: Path | str) -> None:
    """Write a table as JSON."""
    try:
        Path(path).write_text(as_text(table.to_dict()), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def built_in(name: str) -> Interference:
    """A shipped table, yours to record into: `eaco`, `gavel-v100`, or `none` for an empty one."""
    if name not in BUILT_IN:
        raise InputError(f"no built-in interference table {name!r}", hint=did_you_mean(name, BUILT_IN))
    return _shipped(name).copy()


@lru_cache
def _shipped(name: str) -> Interference:
    if name == "none":
        return Interference()
    text = (resources.files("fairlead.model.tables") / f"{name}.json").read_text(encoding="utf-8")
    return Interference.from_dict(json.loads(text), f"{name}.json")


def _key(names: Iterable[str]) -> _Key:
    return tuple(sorted(name.lower() for name in names))


def _shown(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=str.lower))


def _mean(values: Sequence[float]) -> float:
    # Equal values stay what they are, to the last bit: a table that is saved and loaded is the same table.
    return values[0] if min(values) == max(values) else math.fsum(values) / len(values)


def _pooled(old: Measured, new: Measured) -> Measured:
    """The running mean, weighted by samples; a utilisation that one of them lacks is the other's."""
    samples = old.samples + new.samples
    share = new.samples / samples
    before, now = old.utilisation_frac, new.utilisation_frac
    return Measured(
        tuple(a + (b - a) * share for a, b in zip(old.speeds, new.speeds, strict=True)),
        (now if before is None else before) if before is None or now is None else before + (now - before) * share,
        samples,
    )


def _remember(cache: dict[tuple[object, ...], _Found], asked: tuple[object, ...], found: _Found) -> None:
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    cache[asked] = found
