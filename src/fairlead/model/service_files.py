"""Services from a TOML file, one `[[service]]` table per group of equal ones. Errors name the file and the field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import InputError
from fairlead.model.contention import Solo
from fairlead.model.files import first_problem, read_rows, read_toml
from fairlead.model.profile import Profile
from fairlead.model.service import Burst, DailyLoad, LoadCurve, Service, TableLoad

_HINT = 'for example [[service]] with name = "search", request_ms = 8, slo_ms = 50, daily = {mean_frac = 0.25}'


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Daily(_Strict):
    mean_frac: float = Field(gt=0, le=10)
    amplitude: float = Field(default=0.6, ge=0, le=1)
    peak_h: float = Field(default=14.0, ge=0, lt=24)


class _Burst(_Strict):
    at_h: float = Field(ge=0)
    hours: float = Field(gt=0)
    factor: float = Field(gt=0, le=1000)


class _Table(_Strict):
    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    request_ms: float = Field(gt=0)
    slo_ms: float = Field(gt=0)
    memory_frac: float = Field(default=0.4, ge=0, le=1)
    utilisation_frac: float = Field(default=1.0, gt=0, le=1)
    sm_activity_frac: float = Field(default=0.6, ge=0, le=1)
    occupancy_frac: float = Field(default=0.45, gt=0, le=1)
    bandwidth_frac: float = Field(default=0.55, ge=0, le=1)
    daily: _Daily | None = None
    curve: str | None = None
    bursts: list[_Burst] = Field(default_factory=list)
    hours: float = Field(default=24.0, gt=0)


class _File(_Strict):
    service: list[_Table] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """So many equal services, as one table of a file."""

    name: str
    count: int
    lasts_s: float
    profile: Profile


def load_services(path: str | Path) -> list[ServiceGroup]:
    """Services from a TOML file.

    Each `[[service]]` has a `name`, how many there are (`count`), the time of a request alone (`request_ms`), the
    latency to meet (`slo_ms`), what it uses of a GPU at full load (`memory_frac`, `sm_activity_frac`, `occupancy_frac`,
    `bandwidth_frac`, `utilisation_frac`), for how many `hours` it is there, and its load: `daily = {mean_frac,
    amplitude, peak_h}` or `curve = "file.csv"` with columns time_s and load_frac or qps, and `bursts = [{at_h, hours,
    factor}]`.
    """
    path = Path(path)
    tables = read_toml(path)
    try:
        parsed = _File.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", hint=_HINT) from None
    groups: list[ServiceGroup] = []
    for number, table in enumerate(parsed.service):
        where = f"{path}: service.{number}"
        if any(group.name == table.name for group in groups):
            raise InputError(f"{where}.name: {table.name!r} is the name of two services")
        try:
            groups.append(_group(table, path, where))
        except InputError as error:
            if error.message.startswith(str(path)):
                raise
            raise InputError(f"{where}: {error.message}", hint=error.hint) from None
    return groups


def _group(table: _Table, path: Path, where: str) -> ServiceGroup:
    if (table.daily is None) == (table.curve is None):
        raise InputError(f"{where}: expected either daily or curve", hint=_HINT)
    request_s = table.request_ms / 1000.0
    solo = Solo(
        table.utilisation_frac,
        table.sm_activity_frac,
        table.occupancy_frac,
        table.bandwidth_frac,
        table.memory_frac,
        request_s,
    )
    load: LoadCurve
    if table.daily is not None:
        load, mean = DailyLoad(**table.daily.model_dump()), table.daily.mean_frac
    else:
        load = _curve(path.parent / str(table.curve), request_s)
        mean = sum(load.fracs) / len(load.fracs)
    service = Service(load, solo, table.slo_ms / 1000.0)
    bursts = [Burst(b.at_h * 3600.0, (b.at_h + b.hours) * 3600.0, b.factor) for b in table.bursts]
    if bursts:
        service = service.with_bursts(*bursts)
    activity = min(1.0, mean) * table.sm_activity_frac
    profile = Profile(f"service-{table.name}", activity_frac=activity, solo=solo, service=service)
    return ServiceGroup(table.name, table.count, table.hours * 3600.0, profile)


def _curve(path: Path, request_s: float) -> TableLoad:
    """A csv of time_s and load_frac, or qps, which is over what one GPU can serve."""
    columns, rows = read_rows(path)
    value = next((name for name in ("load_frac", "qps") if name in columns), None)
    if "time_s" not in columns or value is None:
        raise InputError(f"{path}: columns are {', '.join(columns)}, expected time_s and load_frac or qps")
    at, of = columns.index("time_s"), columns.index(value)
    scale = request_s if value == "qps" else 1.0
    times_s, fracs = [], []
    for line, cells in rows:
        try:
            times_s.append(float(cells[at]))
            fracs.append(float(cells[of]) * scale)
        except (ValueError, IndexError):
            raise InputError(f"{path}, line {line}: found {','.join(cells)!r}, expected numbers") from None
    try:
        return TableLoad(tuple(times_s), tuple(fracs))
    except (InputError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
