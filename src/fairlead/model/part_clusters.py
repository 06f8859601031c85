"""A cluster for each part of a trace that is split: the same for all, or as a file says.

The file is a csv with a row per part: its name, and its size as a shape (`9x8:V100`) or as a number of nodes of 8 GPUs,
as Lucid's `vc_config.csv` has it; under a column `gpus` the number is GPUs. Helios's `cluster_gpu_number.csv` is read,
too: a column per virtual cluster with its GPUs day by day, of which the most count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.files import load_cluster, read_rows

NODE_GPUS = 8
"""Of a node in a file that only counts them; Helios's and Philly's have as many."""
_HINT = "a row per part: its name, then a shape like 9x8 or a number of nodes of 8 GPUs"


def clusters_of_parts(text: str | Path | Cluster, parts: Iterable[str]) -> dict[str, Cluster | None]:
    """The cluster of each part, None where the file gives it no GPUs."""
    path = Path(text) if not isinstance(text, Cluster) else None
    if path is None or path.suffix.lower() != ".csv":
        shared = text if isinstance(text, Cluster) else load_cluster(str(text))
        return dict.fromkeys(parts, shared)
    sizes = dict(_sizes(path))
    return {part: parse_shape(sizes[part]) if sizes.get(part) else None for part in parts}


def _sizes(path: Path) -> Iterator[tuple[str, str]]:
    """Parts with their shapes, empty where they have no GPUs."""
    columns, rows = read_rows(path)
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{path}, line {line}: found {len(row)} cells, expected {len(columns)}", hint=_HINT)
    if columns[0] == "date":
        for at, name in enumerate(columns[1:], start=1):
            most = max((_whole(path, line, row[at]) for line, row in rows), default=0)
            if name != "total":
                yield name, _shape(most)
        return
    if len(columns) != 2:
        raise InputError(f"{path} has {len(columns)} columns, expected 2", hint=_HINT)
    per_unit = 1 if columns[1].lower() in ("gpus", "gpu_num", "num_gpus") else NODE_GPUS
    for line, (name, size) in rows:
        yield name, size if "x" in size else _shape(_whole(path, line, size) * per_unit)


def _whole(path: Path, line: int, cell: str) -> int:
    if not cell.isascii() or not cell.isdigit() or len(cell) > 9:
        raise InputError(f"{path}, line {line}: found {cell!r}, expected a whole number", hint=_HINT)
    return int(cell)


def _shape(gpus: int) -> str:
    """Full nodes, and one with the rest."""
    nodes, rest = divmod(gpus, NODE_GPUS)
    return "+".join([f"{nodes}x{NODE_GPUS}"] * (nodes > 0) + [f"1x{rest}"] * (rest > 0))
