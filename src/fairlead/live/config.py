"""The controller's configuration: one TOML file, over it the environment, over that the command line.

Every value is checked where it comes from, and remembers it, so that a mistake is named by its file and key, and
`fairlead config show` can tell why a value is what it is.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fairlead.errors import InputError, did_you_mean
from fairlead.model.cluster import gpu_model_named, parse_rental
from fairlead.model.files import read_text
from fairlead.model.interference import BUILT_IN
from fairlead.policy import registry
from fairlead.policy.guarding import GuardConfig

NAME = "fairlead.toml"
PREFIX = "FAIRLEAD_"
Seconds = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(_Table):
    """Who decides."""

    stack: str = Field(default="eaco", description="a preset, or stage=name pairs; see `fairlead policies`")
    round_s: Seconds | None = Field(default=None, description="decide only every so many seconds")
    seed: int = Field(default=0, ge=0, description="of all that is random")


class EngineTable(_Table):
    """What jobs run on."""

    kind: Literal["local"] = Field(default="local", description="this machine")
    fake_gpus: int = Field(default=0, ge=0, le=4096, description="made-up GPUs per node; 0: the machine's own")
    fake_nodes: int = Field(default=1, ge=1, le=64, description="nodes to make up")
    gpu_model: str = Field(default="H200", description="of made-up GPUs")
    wake_s: float = Field(default=2.0, ge=0.0, le=86400.0, description="how long a made-up node takes to wake up")
    rent: str | None = Field(default=None, description='"default" or terms: policies may rent and return nodes')
    profiles: str | None = Field(default=None, description="a TOML file: what is known of applications")
    variability: str | None = Field(default=None, description="a file: how slow each GPU is, per class")
    interference: str = Field(default="eaco", description="what neighbours cost each other, a table's name or a file")
    history: str | None = Field(default=None, description="what the sharing policy knows of that at the start")
    as_submitter: bool | None = Field(default=None, description="run jobs under their users' accounts; as root: true")


class ControllerTable(_Table):
    """The control loop."""

    poll_s: Seconds = Field(default=5.0, description="agents are asked at least this often")
    lost_after_s: Seconds = Field(default=10.0, description="a node that is silent for so long gets no new jobs")
    save_s: Seconds = Field(default=30.0, description="what the policy learns is saved this often")


class ServerTable(_Table):
    """Where it answers."""

    host: str = Field(default="127.0.0.1", min_length=1, description="the address to listen on")
    port: int = Field(default=7317, ge=0, le=65535, description="0: any that is free")
    tls_cert: str | None = Field(default=None, description="a PEM file; with tls_key, it answers HTTPS")
    tls_key: str | None = Field(default=None, description="a PEM file")


class Jobs(_Table):
    """What holds for jobs that do not say otherwise."""

    retries: int = Field(default=3, ge=0, le=1000, description="starts after a failure")
    keep_logs_days: float = Field(
        default=30.0, ge=0.0, le=36500.0, description="logs of jobs that ended so long ago are deleted"
    )
    grace_s: float = Field(default=30.0, ge=0.0, le=86400.0, description="from SIGTERM to SIGKILL")


class Budget(_Table):
    """What may be spent."""

    gpus: float | None = Field(default=None, gt=0.0, le=1e6, description="GPUs to pay for on average, for sizing=boa")


_TABLES: dict[str, type[_Table]] = {
    "policy": Policy, "engine": EngineTable, "controller": ControllerTable,
    "server": ServerTable, "jobs": Jobs, "budget": Budget,
}  # fmt: skip
_FILES = (
    "engine.profiles", "engine.variability", "engine.interference", "engine.history", "server.tls_cert",
    "server.tls_key",
)  # fmt: skip
"""Values that may name files; in a configuration file they count from its folder."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that may be set: `server.port`."""

    name: str
    default: Any
    about: str
    check: TypeAdapter[Any]

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.upper().replace(".", "_")

    @property
    def option(self) -> str:
        """The option of `fairlead up` that sets it, where there is one."""
        return "--policy" if self.name == "policy.stack" else f"--{self.name.partition('.')[2].replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Valued:
    """A value, and where it comes from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Config:
    """All that can be configured, checked."""

    policy: Policy
    engine: EngineTable
    controller: ControllerTable
    server: ServerTable
    jobs: Jobs
    budget: Budget
    guard: GuardConfig
    values: Mapping[str, Valued] = dataclasses.field(repr=False)
    """The same by name, with their sources."""

    def to_dict(self) -> dict[str, Any]:
        """For people and programs: each value with where it comes from."""
        return {name: {"value": one.value, "source": one.source} for name, one in self.values.items()}


def _guard_settings(kind: Any, at: str) -> Iterator[Setting]:
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default):
            yield from _guard_settings(type(field.default), f"{at}.{field.name}")
        else:
            yield Setting(f"{at}.{field.name}", field.default, "", TypeAdapter(type(field.default)))


def _settings() -> Iterator[Setting]:
    for table, model in _TABLES.items():
        for name, field in model.model_fields.items():
            check: TypeAdapter[Any] = TypeAdapter(cast(Any, Annotated[field.annotation, field]))
            yield Setting(f"{table}.{name}", field.default, field.description or "", check)
    yield from _guard_settings(GuardConfig, "guard")


SETTINGS = {setting.name: setting for setting in _settings()}
_VARIABLES = {setting.variable: setting.name for setting in SETTINGS.values()}
"""Others that begin with FAIRLEAD_ are passed over: jobs are told things by such names, too."""


_MEANINGS: dict[str, Callable[[str], object]] = {
    "policy.stack": registry.build, "engine.gpu_model": gpu_model_named, "engine.rent": parse_rental,
}  # fmt: skip
"""What raises where a text means nothing."""


def find_file(given: Path | None, home: Path) -> Path | None:
    """The configuration file: as given, else FAIRLEAD_CONFIG, else the one in the home folder if it is there."""
    text = os.environ.get("FAIRLEAD_CONFIG")
    if given is not None or text:
        return (given or Path(text or "")).expanduser()
    return home / NAME if (home / NAME).exists() else None


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, over them the file, the environment, and options of the command line, by name: `server.port`."""
    values = {name: Valued(setting.default, "default") for name, setting in SETTINGS.items()}
    if file is not None:
        values.update(_from_file(file))
    for variable, text in sorted((environment or {}).items()):
        if variable in _VARIABLES:
            name = _VARIABLES[variable]
            values[name] = Valued(_checked(name, text, f"{variable}={text}", strict=False), variable)
    for name, value in (options or {}).items():
        if value is not None:
            option = SETTINGS[name].option
            values[name] = Valued(_checked(name, value, f"{option} {value}"), option)
    return _assembled(values, file)


def _assembled(values: Mapping[str, Valued], file: Path | None) -> Config:
    trees: dict[str, Any] = {}
    for name, one in values.items():
        *tables, key = name.split(".")
        table = trees
        for part in tables:
            table = table.setdefault(part, {})
        table[key] = one.value
    try:
        guard = GuardConfig.from_dict(trees["guard"])
    except InputError as error:  # values that do not go together, whichever of them is to blame
        raise InputError(f"{file}: {error.message}" if file else error.message, hint=error.hint) from None
    made = Config(
        policy=Policy(**trees["policy"]),
        engine=EngineTable(**trees["engine"]),
        controller=ControllerTable(**trees["controller"]),
        server=ServerTable(**trees["server"]),
        jobs=Jobs(**trees["jobs"]),
        budget=Budget(**trees["budget"]),
        guard=guard,
        values=values,
    )
    if (made.server.tls_cert is None) != (made.server.tls_key is None):
        given = "tls_cert" if made.server.tls_key is None else "tls_key"
        raise InputError(f"server.{given} is set alone", hint="server.tls_cert and server.tls_key belong together")
    return made


# ---- the file ----


def _from_file(path: Path) -> dict[str, Valued]:
    text = read_text(path)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    lines = _lines(text)
    found: dict[str, Valued] = {}
    for name, value in _flat(tables, path):
        at = f"{path}:{lines[name]}" if name in lines else str(path)
        checked = _checked(name, value, f"{at}: {name} = {value!r}")
        found[name] = Valued(_placed(name, checked, path), at)
    return found


def _flat(tables: Mapping[str, Any], path: Path, at: str = "") -> Iterator[tuple[str, Any]]:
    """`{"server": {"port": 1}}` as `server.port`, 1; what is no setting is an error."""
    for key, value in tables.items():
        name = f"{at}{key}"
        if name in SETTINGS:
            yield name, value
            continue
        inside = {n.removeprefix(at).partition(".")[0] for n in SETTINGS if n.startswith(at)}
        is_table = any(n.startswith(f"{name}.") for n in SETTINGS)
        if is_table and isinstance(value, Mapping):
            yield from _flat(value, path, f"{name}.")
        elif is_table:
            raise InputError(f"{path}: {name} is {value!r}; expected a table", hint=f"for example [{name}]")
        else:
            what = "key" if at else "table"
            raise InputError(f"{path}: unknown {what} {name!r}", hint=did_you_mean(key, inside))


def _lines(text: str) -> dict[str, int]:
    """The line of each setting, as far as it is written plainly: a table's head, and keys below it."""
    found, table = {}, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if head := re.match(r"\s*\[([\w.\s]+)\]", line):
            table = head[1].replace(" ", "") + "."
        elif key := re.match(r"\s*([\w.]+)\s*=", line):
            found[table + key[1]] = number
    return found


def _placed(name: str, value: Any, path: Path) -> Any:
    """A file that is named in a file is looked for beside it."""
    if name not in _FILES or value is None or value in BUILT_IN:
        return value
    return str(path.absolute().parent / Path(value).expanduser())


def _checked(name: str, value: Any, said: str, *, strict: bool = True) -> Any:
    """The value as its setting wants it; text of the environment is read as what it should be."""
    try:
        checked = SETTINGS[name].check.validate_python(value, strict=strict)
        if name in _MEANINGS:
            _MEANINGS[name](checked)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InputError(f"{said}: {problem['msg'][0].lower()}{problem['msg'][1:]}") from None
    except InputError as error:
        raise InputError(f"{said}: {error.message}", hint=error.hint) from None
    return checked
