"""What FGD's comparison runs on: Alibaba's openb nodes and pods, or some that are made up."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, GpuModel, Node

_NODES, _PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MADE_UP_NODES, _MADE_UP_PODS, _SEED = 120, 1400, 7


class Pod(NamedTuple):
    """What a pod asks for."""

    gpus: int
    gpu_frac: float
    cpus: float
    ram_mib: float


@dataclass(frozen=True)
class Scene:
    """A cluster, and the pods that are drawn from."""

    cluster: Cluster
    pods: tuple[Pod, ...]
    about: str


def openb(data: Path) -> Scene:
    """Alibaba's, from a folder that has them, or has a folder `alibaba` that does."""
    folder = data / "alibaba" if (data / "alibaba").is_dir() else data
    nodes = tuple(
        Node(name, gpus, _model(model), cpus=cpus / 1000.0, ram_mib=float(ram_mib))
        for name, cpus, ram_mib, gpus, model in _table(folder / _NODES, _NODE_COLUMNS).iter_rows()
    )
    pods = tuple(
        Pod(gpus, milli / 1000.0 if gpus == 1 else 1.0, cpus / 1000.0, float(ram_mib))
        for cpus, ram_mib, gpus, milli in _table(folder / _PODS, _POD_COLUMNS).iter_rows()
    )
    cluster = Cluster(nodes)
    about = f"{len(pods):,} pods of Alibaba's openb trace on its {len(nodes):,} nodes with {cluster.gpus:,} GPUs"
    return Scene(cluster, pods, about)


def made_up() -> Scene:
    """Nodes and pods of our own making: half of the pods ask for parts of a GPU, some for no GPU, few for many."""
    rng = random.Random(_SEED)
    kinds = [(2, 64.0, 262_144.0)] * 3 + [(4, 96.0, 393_216.0)] * 2 + [(8, 96.0, 393_216.0), (8, 128.0, 786_432.0)] * 2
    nodes = []
    for i in range(_MADE_UP_NODES):
        gpus, cpus, ram_mib = kinds[i % len(kinds)]
        nodes.append(Node(f"n{i}", gpus, _model("made-up"), cpus=cpus, ram_mib=ram_mib))
    pods = [_made_up_pod(rng) for _ in range(_MADE_UP_PODS)]
    about = f"{len(pods):,} made-up pods on {len(nodes)} made-up nodes; Alibaba's openb trace needs --data"
    return Scene(Cluster(tuple(nodes)), tuple(pods), about)


def _made_up_pod(rng: random.Random) -> Pod:
    drawn = rng.random()
    if drawn < 0.13:
        return Pod(0, 1.0, rng.choice((2.0, 4.0, 8.0, 16.0)), rng.choice((4096.0, 16_384.0)))
    if drawn < 0.55:
        part = rng.choice((0.1, 0.16, 0.22, 0.33, 0.46, 0.59, 0.69, 0.81))
        return Pod(1, part, rng.choice((2.0, 4.0, 6.0, 11.0)), rng.choice((8192.0, 16_384.0, 30_720.0)))
    if drawn < 0.93:
        return Pod(1, 1.0, rng.choice((4.0, 8.0, 11.0)), 30_720.0)
    gpus = rng.choice((2, 4, 8))
    return Pod(gpus, 1.0, 8.0 * gpus, 32_768.0 * gpus)


def _model(name: str) -> GpuModel:
    """Neither memory nor power plays a part here."""
    return GpuModel(name, 16_384.0, 0.0, 1.0, 0.0)


def _table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="from alibaba/clusterdata, cluster-trace-gpu-v2023, csv")
    try:
        return pl.read_csv(path, columns=list(columns)).select(columns)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path} is not as Alibaba publishes it: {error}") from None
