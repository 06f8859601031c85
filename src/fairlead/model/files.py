"""The model's files: clusters as TOML, variability profiles as JSON. Errors name the file and the field."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import InputError
from fairlead.model.cluster import (
    DEFAULT_GPU_MODEL,
    DEFAULT_NODE_BASE_W,
    Cluster,
    GpuModel,
    Node,
    gpu_model_named,
    parse_shape,
)
from fairlead.model.variability import Variability, from_partial


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _GpuModelTable(_Strict):
    memory_mib: float = Field(gt=0)
    idle_w: float = Field(ge=0)
    peak_w: float = Field(gt=0)
    price_usd_per_h: float = Field(default=0.0, ge=0)


class _NodesTable(_Strict):
    count: int = Field(default=1, ge=1)
    gpus: int = Field(ge=1, le=64)
    model: str = DEFAULT_GPU_MODEL
    prefix: str = "n"
    base_w: float = Field(default=DEFAULT_NODE_BASE_W, ge=0)


class _ClusterFile(_Strict):
    nodes: list[_NodesTable] = Field(min_length=1)
    gpu_models: dict[str, _GpuModelTable] = Field(default_factory=dict)


def load_cluster(text: str) -> Cluster:
    """A cluster from `NODESxGPUS[:model]` or from a TOML file.

    The file has one `[[nodes]]` table per group of equal nodes (`count`, `gpus`, `model`, `prefix`, `base_w`) and may
    define GPU models of its own under `[gpu_models.NAME]` (`memory_mib`, `idle_w`, `peak_w`, `price_usd_per_h`).
    """
    path = Path(text)
    if path.suffix != ".toml" and not path.is_file():
        return parse_shape(text)
    raw = _read(path)
    try:
        parsed = _ClusterFile.model_validate(tomllib.loads(raw))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {_first_problem(error)}", hint=_CLUSTER_HINT) from None
    own = {
        name: GpuModel(name, t.memory_mib, t.idle_w, t.peak_w, t.price_usd_per_h)
        for name, t in parsed.gpu_models.items()
    }
    nodes: list[Node] = []
    for group in parsed.nodes:
        model = own.get(group.model) or gpu_model_named(group.model)
        first = len(nodes)
        nodes += [Node(f"{group.prefix}{first + i}", group.gpus, model, group.base_w) for i in range(group.count)]
    return Cluster(tuple(nodes))


_CLUSTER_HINT = 'for example [[nodes]] with count = 16, gpus = 4, model = "V100"'


def load_variability(path: str | Path, cluster: Cluster) -> Variability:
    """Scores per GPU and class: JSON `{"gpus": [{"gpu": 0, "A": 0.95, "B": 1.0, ...}, ...]}`.

    `gpu` is the GPU's number in the cluster; one-letter keys in capitals are classes and other keys are left alone.
    GPUs that are not listed get the median of their class.
    """
    path = Path(path)
    try:
        entries = json.loads(_read(path))["gpus"]
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    except (KeyError, TypeError):
        raise InputError(f"{path}: expected an object with a list 'gpus'", hint=_SCORES_HINT) from None
    scores: dict[str, dict[int, float]] = {}
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        gpu = entry.get("gpu", position) if isinstance(entry, dict) else None
        if not isinstance(gpu, int) or isinstance(gpu, bool):
            raise InputError(
                f"{path}: entry {position} of 'gpus' has no GPU number: found {entry!r}", hint=_SCORES_HINT
            )
        for key, value in entry.items():
            if len(key) == 1 and key.isupper():
                scores.setdefault(key, {})[gpu] = _score(path, gpu, key, value)
    if not scores:
        raise InputError(f"{path}: no scores found", hint=_SCORES_HINT)
    listed = 1 + max(max(known) for known in scores.values())
    if listed > cluster.gpus:
        raise InputError(
            f"{path}: scores {listed} GPUs, the cluster has {cluster.gpus}", hint="give a profile made for this cluster"
        )
    return from_partial(scores, cluster.gpus)


_SCORES_HINT = 'for example {"gpus": [{"gpu": 0, "A": 0.97, "B": 1.0}, {"gpu": 1, "A": 1.2, "B": 1.0}]}'


def _score(path: Path, gpu: int, app_class: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InputError(f"{path}: GPU {gpu}, class {app_class}: found {value!r}, expected a number above 0")
    return float(value)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, expected a file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg'].lower()}, found {problem.get('input')!r}"
