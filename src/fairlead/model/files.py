"""The model's files: clusters as TOML, variability profiles as JSON or csv. Errors name the file and the field."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import InputError, did_you_mean
from fairlead.model.cluster import (
    DEFAULT_GPU_MODEL,
    DEFAULT_NODE_BASE_W,
    DEFAULT_NODE_SLEEP_W,
    DEFAULT_NODE_WAKE_S,
    Cluster,
    GpuModel,
    Node,
    Rental,
    gpu_model_named,
    parse_shape,
)
from fairlead.model.variability import CLASS_NAME_RULE, Variability, from_partial, is_class_name

_MOST_DIGITS = 20
"""Of a GPU's number; Python refuses to read thousands."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _GpuModelTable(_Strict):
    memory_mib: float = Field(gt=0)
    idle_w: float = Field(ge=0)
    peak_w: float = Field(gt=0)
    price_usd_per_h: float = Field(default=0.0, ge=0)
    floor_w: float | None = Field(default=None, ge=0)
    context_w: float = Field(default=0.0, ge=0)


class _NodesTable(_Strict):
    count: int = Field(default=1, ge=1)
    gpus: int = Field(ge=1, le=64)
    model: str = DEFAULT_GPU_MODEL
    prefix: str = "n"
    base_w: float = Field(default=DEFAULT_NODE_BASE_W, ge=0)
    sleep_w: float = Field(default=DEFAULT_NODE_SLEEP_W, ge=0)
    wake_s: float = Field(default=DEFAULT_NODE_WAKE_S, ge=0)
    cpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    ram_mib: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    names: list[str] = Field(default_factory=list)
    uuids: list[str] = Field(default_factory=list)


class _RentalTable(_Strict):
    boot_s: float = Field(default=120.0, ge=0)
    minimum_s: float = Field(default=60.0, ge=0)
    step_s: float = Field(default=1.0, gt=0)


class _ClusterFile(_Strict):
    nodes: list[_NodesTable] = Field(min_length=1)
    rental: _RentalTable | None = None
    gpu_models: dict[str, _GpuModelTable] = Field(default_factory=dict)


def load_cluster(text: str) -> Cluster:
    """A cluster from `NODESxGPUS[:model]` or from a TOML file.

    The file has one `[[nodes]]` table per group of equal nodes (`count`, `gpus`, `model`, `prefix`, `base_w`) and may
    define GPU models of its own under `[gpu_models.NAME]` (`memory_mib`, `idle_w`, `peak_w`, `price_usd_per_h`).
    A table `[rental]` (`boot_s`, `minimum_s`, `step_s`) makes it a cluster that is rented, of at most these nodes.
    `cpus` and `ram_mib` say what jobs may ask for of each node's host; where they are not given nothing is counted.
    A group may list the `names` of its nodes, instead of a prefix, and the `uuids` of its GPUs, node by node.
    """
    path = Path(text)
    if path.suffix != ".toml" and not path.is_file():
        return parse_shape(text)
    tables = read_toml(path)
    try:
        parsed = _ClusterFile.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", hint=_CLUSTER_HINT) from None
    own = {
        name: GpuModel(name, t.memory_mib, t.idle_w, t.peak_w, t.price_usd_per_h, t.floor_w, t.context_w)
        for name, t in parsed.gpu_models.items()
    }
    nodes: list[Node] = []
    for number, group in enumerate(parsed.nodes):
        for field, wanted in (("names", group.count), ("uuids", group.count * group.gpus)):
            found = len(getattr(group, field))
            if found not in (0, wanted):
                raise InputError(f"{path}: nodes.{number}.{field}: found {found}, expected {wanted}")
        model = own.get(group.model) or gpu_model_named(group.model)
        names = group.names or [f"{group.prefix}{len(nodes) + i}" for i in range(group.count)]
        for i, name in enumerate(names):
            uuids = tuple(group.uuids[i * group.gpus : (i + 1) * group.gpus])
            power = (group.base_w, group.sleep_w, group.wake_s)
            nodes.append(Node(name, group.gpus, model, *power, uuids, group.cpus, group.ram_mib))
    if twice := [name for name, count in Counter(node.name for node in nodes).items() if count > 1]:
        raise InputError(f"{path}: two nodes are called {twice[0]!r}; every node has its own name")
    rental = Rental(**parsed.rental.model_dump()) if parsed.rental is not None else None
    return Cluster(tuple(nodes), rental=rental)


_CLUSTER_HINT = 'for example [[nodes]] with count = 16, gpus = 4, model = "V100"'


def load_variability(path: str | Path, cluster: Cluster) -> Variability:
    """Scores per GPU and class, from JSON `{"gpus": [{"gpu": 0, "A": 0.95, "B": 1.0}, ...]}` or csv of the same names.

    An entry names its GPU by `gpu` (its number in the cluster), by `node` (name) and `index`, or by `uuid`. Names in
    capitals (`A`, `C2`) are classes; `unscored` lists classes whose score is only assumed; other names are left alone.
    GPUs without a score get the median of their class.
    """
    path = Path(path)
    names = GpuNames(cluster)
    scores: dict[str, dict[int, float]] = {}
    assumed: dict[str, set[int]] = {}
    seen: dict[int, str] = {}
    entries = _csv_entries(path) if path.suffix.lower() == ".csv" else _json_entries(path)
    for position, (place, entry) in enumerate(entries):
        try:
            gpu = names.find(entry, position)
            if gpu in seen:
                raise InputError(f"GPU {cluster.gpu_name(gpu)} was scored before, in {seen[gpu]}")
            seen[gpu] = place
            for name, value in entry.items():
                if is_class_name(name):
                    scores.setdefault(name, {})[gpu] = _score(name, value)
            guesses = entry.get("unscored")
            for name in guesses if isinstance(guesses, list) else ():
                assumed.setdefault(str(name), set()).add(gpu)
        except InputError as error:
            raise InputError(f"{path}, {place}: {error.message}", hint=error.hint) from None
    if not scores:
        raise InputError(f"{path}: no scores found", hint=_SCORES_HINT)
    return from_partial(scores, cluster.gpus, assumed=assumed)


_MADE_FOR = "give a profile made for this cluster"
_SCORES_HINT = 'for example {"gpus": [{"gpu": 0, "A": 0.97, "B": 1.0}, {"gpu": 1, "A": 1.2, "B": 1.0}]}'


def save_variability(
    variability: Variability, cluster: Cluster, path: str | Path, *, about: Mapping[str, str] | None = None
) -> None:
    """Write a profile as JSON or csv, by the file's ending; `about` says where each class comes from (JSON only)."""
    path = Path(path)
    cluster = cluster.with_variability(variability)  # as many GPUs, or an error
    if wrong := [name for name in variability.scores if not is_class_name(name)]:
        raise InputError(f"class name {wrong[0]!r}: expected {CLASS_NAME_RULE}")
    assumed = {name: set(variability.unscored_in(name)) for name in variability.scores}
    entries: list[dict[str, Any]] = []
    for gpu in range(cluster.gpus):
        node = cluster.node_of[gpu]
        entry = {"gpu": gpu, "node": cluster.nodes[node].name, "index": gpu - cluster.first_gpu[node]}
        if uuid := cluster.gpu_uuid(gpu):
            entry["uuid"] = uuid
        entry |= {name: float(scores[gpu]) for name, scores in variability.scores.items()}
        if guesses := [name for name in variability.scores if gpu in assumed[name]]:
            entry["unscored"] = guesses
        entries.append(entry)
    if path.suffix.lower() == ".csv":
        text = _as_csv(entries, list(variability.scores))
    elif path.suffix.lower() == ".json":
        classes = {name: {"from": (about or {}).get(name, "")} for name in variability.scores}
        lines = ",\n".join(json.dumps(entry) for entry in entries)
        text = f'{{"classes": {json.dumps(classes)},\n"gpus": [\n{lines}\n]}}\n'
    else:
        raise InputError(f"{path}: a variability profile ends in .json or .csv, found {path.suffix!r}")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _as_csv(entries: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["gpu", "node", "index", "uuid", *classes, "unscored"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**entry, "unscored": " ".join(entry.get("unscored", ()))} for entry in entries)
    return text.getvalue()


class GpuNames:
    """Finds the GPUs of a cluster by what people and drivers call them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = {node.name: number for number, node in enumerate(cluster.nodes)}
        self._uuids = {uuid: gpu for gpu in range(cluster.gpus) if (uuid := cluster.gpu_uuid(gpu))}

    def find(self, entry: Mapping[str, Any], position: int | None = None) -> int:
        """The GPU of an entry: by `gpu`, else by `node` and `index`, else by `uuid`, else by its place in the list."""
        if "gpu" in entry:
            gpu = _whole("gpu", entry["gpu"], 0, self._cluster.gpus - 1)
            self._agree(entry, gpu)
            return gpu
        if "node" in entry or "index" in entry:
            return self._at(entry.get("node"), entry.get("index"))
        if "uuid" in entry:
            found = self._uuids.get(str(entry["uuid"]))
            if found is None:
                hint = _MADE_FOR if self._uuids else "the cluster has no UUIDs; list them as uuids = [...] in its file"
                raise InputError(f"uuid: found {entry['uuid']!r}, no GPU of the cluster has it", hint=hint)
            return found
        if position is None:
            raise InputError("no GPU named; expected gpu, node and index, or uuid")
        return _whole("place in the list", position, 0, self._cluster.gpus - 1)

    def _at(self, node: Any, index: Any) -> int:
        number = self._nodes.get(node) if isinstance(node, str) else None
        if number is None:
            hint = did_you_mean(node, self._nodes) if isinstance(node, str) and len(self._nodes) <= 32 else None
            raise InputError(f"node: found {node!r}, expected the name of one of the cluster's nodes", hint=hint)
        return self._cluster.first_gpu[number] + _whole("index", index, 0, self._cluster.nodes[number].gpus - 1)

    def _agree(self, entry: Mapping[str, Any], gpu: int) -> None:
        """Names that this cluster knows too must mean the same GPU, or the profile is another cluster's."""
        others = [self._uuids.get(str(entry.get("uuid")))]
        if isinstance(entry.get("node"), str) and entry["node"] in self._nodes and "index" in entry:
            others.append(self._at(entry["node"], entry["index"]))
        for other in others:
            if other is not None and other != gpu:
                called = f"gpu {gpu} is {self._cluster.gpu_name(gpu)}"
                hint = f"{_MADE_FOR}, or leave out 'gpu' to go by name"
                raise InputError(f"{called}, but the entry also names {self._cluster.gpu_name(other)}", hint=hint)


def _whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        hint = _MADE_FOR if isinstance(value, int) else None
        raise InputError(f"{what}: found {value!r}, expected a whole number from {least} to {most}", hint=hint)
    return value


def _score(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InputError(f"class {name}: found {value!r}, expected a number above 0")
    return float(value)


def _json_entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    entries = value.get("gpus") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise InputError(f"{path}: expected an object with a list 'gpus'", hint=_SCORES_HINT)
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise InputError(f"{path}, entry {position}: found {entry!r}, expected an object", hint=_SCORES_HINT)
        yield f"entry {position}", entry


def _csv_entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    columns, rows = read_rows(path)
    for line, cells in rows:
        if len(cells) != len(columns):
            raise InputError(f"{path}, line {line}: found {len(cells)} cells, expected {len(columns)}")
        entry: dict[str, Any] = {}
        for name, cell in zip(columns, cells, strict=True):
            if cell == "":
                continue
            if name == "unscored":
                entry[name] = cell.split()
            elif name in ("gpu", "index"):
                entry[name] = int(cell) if cell.isdecimal() and len(cell) < _MOST_DIGITS else cell
            else:
                entry[name] = _as_number(cell) if is_class_name(name) else cell
        yield f"line {line}", entry


def _as_number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell  # the check of scores says what is wrong with it


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """A csv file: the names of its columns, and its rows with their line numbers; blank lines are passed over."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid csv: {error}") from None
    if not rows:
        raise InputError(f"{path}: the file is empty, expected a csv with a line of column names")
    return rows[0][1], rows[1:]


def read_text(path: Path) -> str:
    """What a file says, or an error in words."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, expected a file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return parse_toml(read_text(path), str(path))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text; `where` stands in the errors.

    A whole number of thousands of digits is no TOML error but an error all the same.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid TOML: {error}") from None


def first_problem(error: ValidationError) -> str:
    """What is wrong with the first field that is, and where it stands."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg'].lower()}, found {problem.get('input')!r}"
