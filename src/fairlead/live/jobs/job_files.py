"""Job files: one job, or several as `[[job]]` tables, in TOML; or the same in YAML where PyYAML is there.

Keys are those of a request, and for what has a unit a shorter one besides: `memory = "20GiB"`, `deadline = "6h"`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fairlead.errors import InputError, did_you_mean
from fairlead.live.jobs.quantities import mebibytes, seconds
from fairlead.live.jobs.request import JobRequest
from fairlead.model.files import read_text, read_toml

_QUANTITIES: dict[str, tuple[str, Callable[[str, str], float]]] = {
    "memory": ("memory_mib", mebibytes),
    "deadline": ("deadline_s", seconds),
    "estimate": ("estimate_s", seconds),
    "slo": ("slo_s", seconds),
    "grace": ("grace_s", seconds),
}
"""The short keys, what each stands for, and how it is read."""
_KNOWN = {*JobRequest.model_fields, *_QUANTITIES}


def load_jobs(path: Path, cwd: Path) -> list[JobRequest]:
    """The jobs of a file. A relative `cwd` counts from the file's folder; without one, jobs run in `cwd`."""
    found = _yaml(path) if path.suffix.lower() in (".yaml", ".yml") else read_toml(path)
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: found {type(found).__name__}, expected keys and values", hint=_EXAMPLE)
    jobs = found.get("job", found)
    if jobs is not found and len(found) > 1:
        other = next(key for key in found if key != "job")
        raise InputError(f"{path}: {other!r} stands beside the jobs", hint="keys of a job belong below its [[job]]")
    listed = jobs if isinstance(jobs, list) else [jobs]
    if not listed:
        raise InputError(f"{path}: no jobs", hint=_EXAMPLE)
    several = len(listed) > 1
    return [_job(job, f"{path}, job {n}" if several else str(path), path, cwd) for n, job in enumerate(listed, 1)]


_EXAMPLE = 'for example command = ["python", "train.py"] and gpus = 2'


def _job(table: Any, where: str, path: Path, cwd: Path) -> JobRequest:
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: found {table!r}, expected a table", hint=_EXAMPLE)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KNOWN:
            raise InputError(f"{where}: unknown key {str(key)!r}", hint=did_you_mean(str(key), _KNOWN))
        name, read = _QUANTITIES.get(key, (key, None))
        if name in values:
            raise InputError(f"{where}: {key} and {name} are both given; one is enough")
        values[name] = value if read is None else read(str(value), f"{where}: {key}")
    folder = values.get("cwd")
    values["cwd"] = str(path.absolute().parent / folder) if isinstance(folder, str) else str(cwd)
    return request(values, where)


def request(values: Mapping[str, Any], where: str) -> JobRequest:
    """The checked request; `where` begins the message of what is wrong."""
    if isinstance(values.get("command"), str):
        hint = '["python", "train.py"], or ["sh", "-c", "..."] where a shell is wanted'
        raise InputError(f"{where}: command is a text; expected a list of words", hint=hint)
    try:
        return JobRequest.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        said = problem["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in problem["loc"])
        seen = f" is {problem['input']!r}" if name and problem["type"] != "missing" else ""
        raise InputError(f"{where}: {name}{seen}: {said}" if name else f"{where}: {said}") from None


def _yaml(path: Path) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise InputError(
            f"{path}: to read YAML, PyYAML is needed", hint="pip install pyyaml, or write the file as TOML"
        ) from None
    try:
        return yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
