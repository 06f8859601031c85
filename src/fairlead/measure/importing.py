"""Variability profiles from raw measurements.

A GPU's score in a class is the median of its runs of the class's application over the median of those medians. Runs of
different files belong to one GPU when they have the same UUID, or else the same node and index.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InputError, did_you_mean
from fairlead.measure.runs import MOST_GPUS_PER_NODE, Run, Runs, read_runs
from fairlead.model.cluster import DEFAULT_GPU_MODEL, Cluster, GpuModel, Node, gpu_model_named
from fairlead.model.files import GpuNames
from fairlead.model.variability import CLASS_NAME_RULE, Variability, from_partial, is_class_name

# PAL's representatives (docs/papers/pal.md); SGEMM stands in for ResNet where that was not measured.
DEFAULT_CLASSES = (("A", "resnet"), ("B", "bert"), ("C", "bert"), ("D", "pagerank"))
_STAND_IN = ("A", "sgemm")


@dataclass(frozen=True)
class Imported:
    """A profile, the cluster whose GPUs it scores, and how it came about."""

    cluster: Cluster
    variability: Variability
    applications: Mapping[str, str]
    """The application of each class."""
    runs: Mapping[str, int]
    """How many runs each class's scores rest on."""
    skipped_rows: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Gpu:
    uuid: str
    node: str
    index: int | None


def import_runs(
    paths: Sequence[Path],
    *,
    classes: Mapping[str, str] | None = None,
    cluster: Cluster | None = None,
    skip_bad_rows: bool = False,
    gpu_model: GpuModel | None = None,
) -> Imported:
    """The profile that measurements give; `classes` overrides which application stands for a class.

    The cluster is the one that was measured, its nodes in the order of their names, unless `cluster` names one: then
    GPUs are found there by node and index, else by UUID.
    """
    raw = read_runs(paths, skip_bad_rows=skip_bad_rows)
    applications = _applications(raw, classes or {})
    used = [run for run in raw.runs if run.application in set(applications.values())]
    gpus = _joined(used)
    perfs: dict[str, dict[_Gpu, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run, gpu in zip(used, gpus, strict=True):
        perfs[run.application][gpu].append(run.perf)
    if cluster is None:
        cluster, numbers = _measured_cluster(set(gpus), gpu_model or gpu_model_named(DEFAULT_GPU_MODEL), raw.notes)
    else:
        numbers = _numbers_in(cluster, set(gpus))
    scores = {}
    for name, application in applications.items():
        medians = {numbers[gpu]: statistics.median(times) for gpu, times in perfs[application].items()}
        middle = statistics.median(medians.values())
        scores[name] = {number: median / middle for number, median in sorted(medians.items())}
    runs = {name: sum(map(len, perfs[application].values())) for name, application in applications.items()}
    variability = from_partial(scores, cluster.gpus)
    return Imported(cluster, variability, applications, runs, raw.skipped_rows, tuple(raw.notes))


def _applications(raw: Runs, asked: Mapping[str, str]) -> dict[str, str]:
    """The application of each class, and notes on what was left out or stood in."""
    found = raw.applications
    chosen = {name: app for name, wanted in DEFAULT_CLASSES if (app := _match(wanted, found))}
    name, wanted = _STAND_IN
    stand_in = _match(wanted, found)
    if stand_in and name not in chosen and name not in asked:
        chosen[name] = stand_in
        raw.notes.append(f"class {name} is measured by {stand_in}: no resnet among the files")
    for name, wanted in asked.items():
        if not is_class_name(name):
            raise InputError(f"class {name!r}: expected {CLASS_NAME_RULE}")
        app = _match(wanted.lower(), found)
        if app is None:
            raise InputError(f"class {name}: no runs of {wanted!r} in the files", hint=did_you_mean(wanted, found))
        chosen[name] = app
    if not chosen:
        raise InputError(f"no class is known for {', '.join(found)}", hint=f"say it, as in --class A={found[0]}")
    for app in found:
        if app not in chosen.values():
            why = f": class {_STAND_IN[0]} has {chosen['A']}" if app == stand_in and "A" in chosen else ""
            raw.notes.append(f"the runs of {app} are not used{why}")
    return dict(sorted(chosen.items()))


def _match(wanted: str, found: Sequence[str]) -> str | None:
    """The application of that name, or the only one whose name begins so (resnet50)."""
    if wanted in found:
        return wanted
    begins = [app for app in found if app.startswith(wanted)]
    return begins[0] if len(begins) == 1 else None


def _joined(runs: Sequence[Run]) -> list[_Gpu]:
    """The GPU of each run.

    Every UUID gets the place where it was seen most; a place belongs to the UUID seen there most, so that a GPU that
    was swapped is two. Runs without a UUID belong to the GPU of their place.
    """
    seen: dict[str, Counter[tuple[str, int | None]]] = defaultdict(Counter)
    for run in runs:
        if run.uuid and run.node:
            seen[run.uuid][run.node, run.index] += 1
    claims = sorted(
        ((-count, uuid, place) for uuid, places in seen.items() for place, count in places.items()),
        key=lambda claim: (claim[2][1] is None, claim[0], claim[1], claim[2][0]),
    )
    by_uuid: dict[str, _Gpu] = {}
    by_place: dict[tuple[str, int | None], _Gpu] = {}
    for _, uuid, (node, index) in claims:
        if uuid in by_uuid:
            continue
        if index is not None and (node, index) in by_place:
            index = None
        by_uuid[uuid] = _Gpu(uuid, node, index)
        if index is not None:
            by_place[node, index] = by_uuid[uuid]
    return [
        by_uuid.get(run.uuid, _Gpu(run.uuid, "", None))
        if run.uuid
        else by_place.get((run.node, run.index), _Gpu("", run.node, run.index))
        for run in runs
    ]


def _measured_cluster(gpus: set[_Gpu], model: GpuModel, notes: list[str]) -> tuple[Cluster, dict[_Gpu, int]]:
    """The nodes that were measured. A GPU whose node is unknown makes a node of its own, called like its UUID."""
    members: dict[str, list[_Gpu]] = defaultdict(list)
    for gpu in gpus:
        members[gpu.node or gpu.uuid].append(gpu)
    lost = sum(1 for gpu in gpus if not gpu.node)
    if lost:
        notes.append(f"the node of {lost:,} GPUs is unknown; each counts as a node of its own")
    loose = sum(1 for gpu in gpus if gpu.node and gpu.index is None)
    if loose:
        notes.append(f"the index of {loose:,} GPUs in their nodes is unknown; they are numbered in the order of UUIDs")
    nodes: list[Node] = []
    numbers: dict[_Gpu, int] = {}
    first = 0
    for name in sorted(members, key=_natural):
        slots = {gpu.index: gpu for gpu in members[name] if gpu.index is not None}
        free = (index for index in range(MOST_GPUS_PER_NODE + len(members[name])) if index not in slots)
        for gpu in sorted((g for g in members[name] if g.index is None), key=lambda g: g.uuid):
            slots[next(free)] = gpu
        size = max(slots) + 1
        uuids = tuple(slots[i].uuid if i in slots else "" for i in range(size))
        nodes.append(Node(name, size, model, uuids=uuids if any(uuids) else ()))
        numbers |= {gpu: first + index for index, gpu in slots.items()}
        first += size
    return Cluster(tuple(nodes)), numbers


def _numbers_in(cluster: Cluster, gpus: set[_Gpu]) -> dict[_Gpu, int]:
    """Where the measured GPUs are in a given cluster."""
    names = GpuNames(cluster)
    numbers: dict[_Gpu, int] = {}
    for gpu in sorted(gpus, key=lambda g: (g.node, g.index or 0, g.uuid)):
        by_place = {"node": gpu.node, "index": gpu.index} if gpu.node and gpu.index is not None else {"uuid": gpu.uuid}
        try:
            numbers[gpu] = names.find(by_place)
        except InputError as error:
            raise InputError(f"a measured GPU is not in the cluster: {error.message}", hint=error.hint) from None
    if len(set(numbers.values())) < len(numbers):
        raise InputError("two measured GPUs are one and the same GPU of the cluster", hint="check the cluster's uuids")
    return numbers


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Names in the order in which people count: c2-9 before c2-10."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in name.split("-"))
