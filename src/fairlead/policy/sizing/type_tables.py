"""Job types as a TOML file, for `fairlead widths`.

One `[[type]]` table per type: `name`, `arrival_rate_per_s`, `mean_size_s` (on one GPU) and one of `power = 0.5` (k^p),
`amdahl = 0.8` (parallel fraction) or `widths = [...]` with `speedups = [...]`. The first two take real widths unless
`integer = true`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fairlead.errors import InputError
from fairlead.model.files import first_problem, parse_toml
from fairlead.model.profile import Amdahl, Power
from fairlead.policy.sizing.budget import JobType, solve

_HINT = 'for example [[type]] with name = "bert", arrival_rate_per_s = 0.01, mean_size_s = 3600, power = 0.8'


class _TypeTable(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arrival_rate_per_s: float = Field(gt=0, allow_inf_nan=False)
    mean_size_s: float = Field(gt=0, allow_inf_nan=False)
    power: float | None = Field(default=None, ge=0, le=1)
    amdahl: float | None = Field(default=None, ge=0, le=1)
    widths: list[float] | None = None
    speedups: list[float] | None = None
    integer: bool = False

    @model_validator(mode="after")
    def _one_curve(self) -> _TypeTable:
        given = [n for n in ("power", "amdahl", "widths") if getattr(self, n) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"type {self.name!r} needs one of power, amdahl or widths with speedups, found {found}")
        if (self.widths is None) != (self.speedups is None) or len(self.widths or ()) != len(self.speedups or ()):
            raise ValueError(f"type {self.name!r} needs as many speedups as widths")
        if self.widths is not None:
            self._check_points(self.widths, self.speedups or [])
        return self

    def _check_points(self, widths: list[float], speedups: list[float]) -> None:
        if not widths:
            raise ValueError(f"type {self.name!r} lists no widths")
        if len(set(widths)) != len(widths) or min(widths) < 1 or not all(math.isfinite(w) for w in widths):
            raise ValueError(f"type {self.name!r}: widths are at least 1, each once, found {widths}")
        if min(speedups) <= 0 or not all(math.isfinite(s) for s in speedups):
            raise ValueError(f"type {self.name!r}: speedups are above 0, found {speedups}")


class _TypesFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: list[_TypeTable] = Field(min_length=1)


def parse_types(text: str, where: str, budget: float | None = None) -> list[JobType]:
    """The types of such a text. `budget` bounds the whole widths that are listed for laws with `integer = true`.

    `where` stands in the errors.
    """
    tables = parse_toml(text, where)
    try:
        parsed = _TypesFile.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}", hint=_HINT) from None
    names = [t.name for t in parsed.type]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: type {twice!r} is there twice")
    types = [_job_type(t) for t in parsed.type]
    whole = [i for i, t in enumerate(parsed.type) if t.integer and t.widths is None]
    return _with_whole_widths(types, whole, budget) if whole and budget is not None else types


def _job_type(table: _TypeTable) -> JobType:
    made = JobType(table.name, table.arrival_rate_per_s, table.mean_size_s)
    if table.power is not None:
        return replace(made, speedup=Power(table.power))
    if table.amdahl is not None:
        return replace(made, speedup=Amdahl(table.amdahl))
    return replace(made, widths=tuple(table.widths or ()), speedups=tuple(table.speedups or ()))


def _with_whole_widths(types: list[JobType], which: Sequence[int], budget: float) -> list[JobType]:
    """Laws as lists of whole widths, to twice what the best real width is: the best whole one is beside that."""
    real = solve(types, budget)
    listed = list(types)
    for i in which:
        law = types[i].speedup
        assert law is not None
        widths = range(1, max(8, 2 * math.ceil(min(real.width(i), 1e5))) + 1)
        listed[i] = replace(types[i], speedup=None, widths=tuple(map(float, widths)), speedups=tuple(map(law, widths)))
    return listed
