"""Profiles as plain data, for snapshots and files: what a built-in profile's name does not tell.

How jobs train epoch by epoch (`Profile.training`) is a table of its own and is not written.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fairlead.errors import InputError
from fairlead.model.contention import Solo
from fairlead.model.files import first_problem, read_toml
from fairlead.model.profile import GENERIC, Amdahl, Power, Profile, Table
from fairlead.model.service import DailyLoad, Service, TableLoad

_CURVES = (Power, Amdahl, Table)
_LOADS = (DailyLoad, TableLoad)


@dataclass(frozen=True)
class _Service:
    load: DailyLoad | TableLoad
    solo: Solo
    slo_s: float


@dataclass(frozen=True)
class _Written:
    """The fields of a profile, with the types that can be written."""

    name: str
    app_class: str = "A"
    speedup: Power | Amdahl | Table = Power()
    locality: float = 1.0
    restart_s: float = 0.0
    checkpoint_every_s: float = 1800.0
    activity_frac: float = 0.5
    memory_mib: float = 0.0
    epoch_s: float = 600.0
    solo: Solo | None = None
    service: _Service | None = None
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


_ADAPTER = TypeAdapter(_Written)


def profile_as_dict(profile: Profile) -> dict[str, Any]:
    """A profile in plain types that JSON keeps."""
    found: dict[str, Any] = {f.name: getattr(profile, f.name) for f in fields(_Written)}
    wrong = "training" if profile.training is not None else ""
    if not isinstance(profile.speedup, _CURVES):
        wrong = "speedup"
    if profile.service is not None:
        if isinstance(load := profile.service.load, _LOADS):
            found["service"] = _Service(load, profile.service.solo, profile.service.slo_s)
        else:
            wrong = "load"
    if wrong:
        raise InputError(f"profile {profile.name!r}: its {wrong} cannot be written down")
    plain: dict[str, Any] = _ADAPTER.dump_python(_Written(**found), mode="json")
    return plain


def profile_from_dict(value: Mapping[str, Any], where: str = "profile") -> Profile:
    """From what `profile_as_dict` made; `where` stands in the errors."""
    try:
        found = _ADAPTER.validate_python(dict(value))
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from None
    made: dict[str, Any] = {f.name: getattr(found, f.name) for f in fields(_Written)}
    if found.service is not None:
        made["service"] = Service(found.service.load, found.service.solo, found.service.slo_s)
    _check(found, where)
    return Profile(**made)


def load_profiles(path: Path) -> list[Profile]:
    """A TOML file of `[[profile]]` tables: a name, and what differs from `GENERIC`. A speedup is {f = 0.9}, {p = 0.8}
    or {widths = [1, 2], speedups = [1.0, 1.7]}.
    """
    tables = read_toml(path)
    listed = tables.pop("profile", None)
    if tables or not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InputError(f"{path}: expected [[profile]] tables, found {', '.join(tables) or 'none'}")
    made = [profile_from_dict(one, f"{path}: profile {number}") for number, one in enumerate(listed, 1)]
    names = [one.name.lower() for one in made]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: two profiles are called {name!r}")
    return made


def profiles_as_toml(profiles: Iterable[Profile]) -> str:
    """What `load_profiles` reads: of each the name, and what differs from `GENERIC`."""
    plain = _ADAPTER.dump_python(_Written(GENERIC.name), mode="json")
    tables = []
    for profile in profiles:
        whole = profile_as_dict(profile)
        told = {name: value for name, value in whole.items() if name == "name" or value != plain[name]}
        tables.append("\n".join(["[[profile]]", *(f"{name} = {_toml(value)}" for name, value in told.items())]))
    return "\n\n".join(tables) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items() if one is not None) + " }"
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(value)  # strings and numbers are written alike


def _check(found: _Written, where: str) -> None:
    """What a type does not say."""
    least = {
        "locality": 1.0, "restart_s": 0.0, "checkpoint_every_s": 0.0, "activity_frac": 0.0, "memory_mib": 0.0,
    }  # fmt: skip
    for name, bound in least.items():
        if getattr(found, name) < bound:
            raise InputError(f"{where}: {name}: found {getattr(found, name):g}, expected {bound:g} or more")
    if found.activity_frac > 1.0 or found.epoch_s <= 0.0:
        raise InputError(
            f"{where}: found activity_frac {found.activity_frac:g} and epoch_s {found.epoch_s:g}, "
            "expected 0 to 1, and a number of seconds above 0"
        )
    curve = found.speedup
    if isinstance(curve, Amdahl) and not 0.0 <= curve.f <= 1.0:
        raise InputError(f"{where}: speedup.f: found {curve.f:g}, expected 0 to 1")
    if isinstance(curve, Table):
        rising = all(a < b for a, b in itertools.pairwise(curve.widths))
        if not curve.widths or len(curve.widths) != len(curve.speedups) or not rising or min(curve.speedups) <= 0.0:
            raise InputError(f"{where}: speedup: expected widths that rise and a speedup above 0 for each")
