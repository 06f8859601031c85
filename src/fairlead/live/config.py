"""The controller's configuration: one TOML file, over it the environment, over that the command line.

Every value is checked where it comes from, and remembers it, so that a mistake is named by its file and key, and
`fairlead config show` can tell why a value is what it is.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fairlead.errors import InputError, did_you_mean
from fairlead.live import environment_variables
from fairlead.live.connection import PORT
from fairlead.live.engines import registry as engines
from fairlead.live.home import expanded
from fairlead.model.cluster import gpu_model_named, parse_rental
from fairlead.model.files import read_text, read_toml
from fairlead.model.interference import BUILT_IN
from fairlead.policy import registry
from fairlead.policy.guarding import GuardConfig

NAME = "fairlead.toml"
AGENTS_PORT = PORT + 1
Seconds = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(_Table):
    """The policy stack, its rounds and its seed."""

    stack: str = Field(default="eaco", description="a preset, or stage=name pairs; see `fairlead policies`")
    round_s: Seconds | None = Field(default=None, description="decide only every so many seconds")
    seed: int = Field(default=0, ge=0, description="of all that is random")


class EngineTable(_Table):
    """The nodes and GPUs that jobs run on, and what is known of them."""

    name: str = Field(default="local", description="who brings nodes: local (this machine), join, slurm")
    fake_gpus: int = Field(default=0, ge=0, le=4096, description="made-up GPUs per node; 0: the machine's own")
    fake_nodes: int = Field(default=1, ge=1, le=64, description="nodes to make up")
    gpu_model: str = Field(default="H200", description="of made-up GPUs")
    wake_s: float = Field(default=2.0, ge=0.0, le=86400.0, description="how long a made-up node takes to wake up")
    rent: str | None = Field(default=None, description='"default" or terms: policies may rent and return nodes')
    profiles: str | None = Field(default=None, description="a TOML file of profiles: what jobs are like")
    variability: str | None = Field(default=None, description="a file: how slow each GPU is, per class")
    interference: str = Field(default="eaco", description="what neighbours cost each other, a table's name or a file")
    history: str | None = Field(default=None, description="what the sharing policy knows of that at the start")
    cgroup: str = Field(
        default="auto",
        min_length=1,
        description="where jobs get cgroups: auto, off, or a cgroup v2 folder",
    )
    as_submitter: bool | Literal["everyone-is-root"] | None = Field(
        default=None, description="run jobs under their users' accounts; as root: true"
    )


class AgentsTable(_Table):
    """Where agents of other machines dial in; of no use to the engine `local`."""

    host: str = Field(default="127.0.0.1", min_length=1, description="the address to listen on")
    port: int = Field(default=AGENTS_PORT, ge=0, le=65535, description="0: any that is free")
    address: str = Field(default="", description="what agents dial, where that is not the host")
    lease_s: Seconds = Field(
        default=120.0, description="a node that hears nothing for so long ends its jobs, which go on elsewhere"
    )
    beat_s: Seconds = Field(default=5.0, description="how often agents show that they are there")


class PoolTable(_Table):
    """Nodes of one kind that Slurm can give."""

    nodes: int = Field(ge=1, le=10000, description="pilots at most")
    gpus: int = Field(ge=1, le=64, description="of each node")
    model: str = Field(default="H200", description="of the GPUs")
    partition: str = Field(default="", description="of sbatch; so are the next")
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = Field(default="gpu", min_length=1, description="with its type where there are several: gpu:h100")
    time_limit: str = Field(default="", description="of each pilot, as sbatch takes it")
    options: tuple[str, ...] = Field(default=(), description="more words for sbatch")


class SlurmTable(_Table):
    """Pilot jobs, for the engine `slurm`."""

    pools: dict[str, PoolTable] = Field(default={}, description="kinds of nodes, by name")
    folder: str = Field(default="/tmp", min_length=1, description="where agents keep jobs on their nodes: a local disk")
    setup: str = Field(default="", description="shell lines before the agent starts: module load ...")
    python: str = Field(default="", description="the Python there that has Fairlead; default: the controller's")
    handover_s: float = Field(
        default=120.0, ge=0.0, le=86400.0, description="jobs leave a pilot so long before its time limit"
    )
    look_s: Seconds = Field(default=2.0, description="squeue is asked this often")


class ControllerTable(_Table):
    """How often the control loop looks and saves, and how long it waits."""

    poll_s: Seconds = Field(default=5.0, description="agents are asked at least this often")
    lost_after_s: Seconds = Field(default=10.0, description="a node that is silent for so long gets no new jobs")
    save_s: Seconds = Field(default=30.0, description="what the policy learns is saved this often")
    decide_s: Seconds = Field(default=60.0, description="a policy that has not decided by then is stopped")


class ServerTable(_Table):
    """Where the API answers, and with which limits."""

    host: str = Field(default="127.0.0.1", min_length=1, description="the address to listen on")
    port: int = Field(default=PORT, ge=0, le=65535, description="0: any that is free")
    tls_cert: str | None = Field(default=None, description="a PEM file; with tls_key, it answers HTTPS")
    tls_key: str | None = Field(default=None, description="a PEM file")
    connections: int = Field(default=1024, ge=8, le=60000, description="at a time, of all clients")
    connections_each: int = Field(default=512, ge=4, le=60000, description="at a time, of one address")
    token_days: float = Field(default=90.0, gt=0.0, le=36500.0, description="how long new tokens are valid")
    session_hours: float = Field(default=12.0, gt=0.0, le=8760.0, description="how long a browser stays signed in")


class Jobs(_Table):
    """What holds for jobs that do not say otherwise."""

    retries: int = Field(default=3, ge=0, le=1000, description="starts after a failure")
    keep_logs_days: float = Field(
        default=30.0, ge=0.0, le=36500.0, description="logs of jobs that ended so long ago are deleted"
    )
    grace_s: float = Field(default=30.0, ge=0.0, le=86400.0, description="from SIGTERM to SIGKILL")


class LimitsTable(_Table):
    """What each job may take of its node. The first three need a delegated cgroup v2."""

    memory_mib: float | None = Field(default=None, ge=1.0, le=1e9, description="of the host's memory")
    cpus: float | None = Field(default=None, ge=0.01, le=1e5, description="of the host's CPUs")
    processes: int | None = Field(default=None, ge=1, le=4194304, description="processes and threads at a time")
    output_mib: float = Field(default=256.0, ge=0.0, le=1e9, description="kept of each of its output streams")
    reserve_mib: float = Field(
        default=512.0, ge=0.0, le=1e9, description="while the disk has less room than this, output is not kept"
    )
    start_s: Seconds = Field(default=60.0, description="for its folder to answer and its command to be executed")


class Budget(_Table):
    """What the cluster may cost."""

    gpus: float | None = Field(default=None, gt=0.0, le=1e6, description="GPUs to pay for on average, for sizing=boa")


_TABLES: dict[str, type[_Table]] = {
    "policy": Policy, "engine": EngineTable, "controller": ControllerTable,
    "agents": AgentsTable, "slurm": SlurmTable,
    "server": ServerTable, "jobs": Jobs, "limits": LimitsTable, "budget": Budget,
}  # fmt: skip
_FILES = (
    "engine.profiles", "engine.variability", "engine.interference", "engine.history", "server.tls_cert",
    "server.tls_key",
)  # fmt: skip
"""Values that may name files; in a configuration file they count from its folder."""


_OPTIONS = {"policy.stack": "--policy", "engine.name": "--engine"}
"""Those that are not called as their setting."""


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
        return environment_variables.PREFIX + self.name.upper().replace(".", "_")

    @property
    def option(self) -> str:
        """The option of `fairlead up` that sets it, where there is one."""
        if self.name in _OPTIONS:
            return _OPTIONS[self.name]
        return f"--{self.name.partition('.')[2].replace('_', '-')}"


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
    agents: AgentsTable
    slurm: SlurmTable
    server: ServerTable
    jobs: Jobs
    limits: LimitsTable
    budget: Budget
    guard: GuardConfig
    values: Mapping[str, Valued] = dataclasses.field(repr=False)
    """The same by name, with their sources."""

    def to_dict(self) -> dict[str, Any]:
        """For people and programs: each value with where it comes from."""
        return {name: {"value": one.value, "source": one.source} for name, one in self.values.items()}


def _settings_of(model: type[BaseModel], at: str) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _settings_of(type(field.default), f"{at}.{name}")
        else:
            check: TypeAdapter[Any] = TypeAdapter(cast(Any, Annotated[field.annotation, field]))
            yield Setting(f"{at}.{name}", field.default, field.description or "", check)


def _settings() -> Iterator[Setting]:
    for table, model in _TABLES.items():
        yield from _settings_of(model, table)
    yield from _settings_of(GuardConfig, "guard")


SETTINGS = {setting.name: setting for setting in _settings()}
VARIABLES = {setting.variable: setting.name for setting in SETTINGS.values()}


_MEANINGS: dict[str, Callable[[str], object]] = {
    "policy.stack": partial(registry.build, read=read_text),
    "engine.name": engines.check,
    "engine.gpu_model": gpu_model_named,
    "engine.rent": parse_rental,
}
"""What raises where a text means nothing."""


def find_file(given: Path | None, home: Path) -> Path | None:
    """The configuration file: as given, else FAIRLEAD_CONFIG, else the one in the home folder if it is there."""
    text = os.environ.get("FAIRLEAD_CONFIG")
    if given is not None or text:
        return expanded(given or Path(text or ""))
    return home / NAME if (home / NAME).exists() else None


def load(
    file: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, over them the file, the environment, and options of the command line, by name: `server.port`."""
    values = {name: Valued(setting.default, "default") for name, setting in SETTINGS.items()}
    if file is not None:
        values.update(_from_file(file))
    if error := environment_variables.unknown(environment or (), VARIABLES):
        raise error
    for variable, text in sorted((environment or {}).items()):
        if variable in VARIABLES:
            name = VARIABLES[variable]
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
        agents=AgentsTable(**trees["agents"]),
        slurm=SlurmTable(**trees["slurm"]),
        server=ServerTable(**trees["server"]),
        jobs=Jobs(**trees["jobs"]),
        limits=LimitsTable(**trees["limits"]),
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
    lines = _lines(read_text(path))
    found: dict[str, Valued] = {}
    for name, value in _flat(read_toml(path), path):
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
    return str(path.absolute().parent / expanded(Path(value)))


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
