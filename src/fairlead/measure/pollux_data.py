"""Applications from the public measurements of Pollux (petuum/adaptdl, OSDI'21; 16 nodes of four T4).

- `<app>/placements.csv`: `placement` has one digit per node, the replicas there (124: 1, 2 and 4 on three nodes);
  `local_bsz` samples per GPU; `step_time` seconds of an iteration without accumulation; `sync_time` the seconds of it
  that wait for the network, so that step - sync is what an accumulation step costs.
- `<app>/scalability.csv`: the same for 6, 8, 12 and 16 nodes, by numbers only.
- `<app>/validation-<total batch>.csv`: one row per epoch of a real training; `progress` counts steps of the initial
  batch that would have got as far. An epoch ends where the first of these trainings ends it.
- `perf_params_t4.json`: the fitted equations and the batch limits.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from fairlead.errors import InputError
from fairlead.model.adaptive_batch import FORMAT, AdaptiveBatch, adaptive_batches_from

DIGITS = 5
"""Significant figures kept of step times and gradients: they repeat to two or three. Samples keep nine."""


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="give the folder that holds pollux/") from error


def _rounded(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def epochs(folder: Path, count: int, initial: int) -> tuple[list[int], list[list[Any]]]:
    """(total batches, [samples, var per batch, sqr per batch] per epoch)."""
    runs = {int(path.stem.split("-")[1]): _rows(path) for path in folder.glob("validation-*.csv")}
    batches = sorted(runs)
    ends = [0.0] + [min(float(runs[b][e]["progress"]) for b in batches) for e in range(count)]
    made = []
    for e in range(count):
        var, sqr = ([_rounded(float(runs[b][e][column])) for b in batches] for column in ("grad_var", "grad_sqr"))
        made.append([_rounded((ends[e + 1] - ends[e]) * initial, 9), var, sqr])
    return batches, made


def steps(folder: Path) -> tuple[list[int], list[list[Any]]]:
    """(local batches, [nodes, replicas, step_s, sync_s per local batch]); placements of one shape are averaged."""
    found: dict[tuple[int, int], dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(folder / "placements.csv"):
        row["num_nodes"], row["num_replicas"] = str(len(row["placement"])), str(sum(map(int, row["placement"])))
        _add(found, row)
    for row in _rows(folder / "scalability.csv"):
        _add(found, row)
    grid = sorted({batch for curve in found.values() for batch in curve})
    made = []
    for (nodes, replicas), curve in sorted(found.items()):
        # Placements of one shape may have been measured to different batches (memory): those that all have.
        most = max(len(points) for points in curve.values())
        kept = [batch for batch in grid if len(curve.get(batch, ())) == most]
        if kept != grid[: len(kept)]:
            raise InputError(f"{folder}: {replicas} replicas on {nodes} nodes miss a local batch among {kept}")
        step_s, sync_s = ([_rounded(_mean([p[i] for p in curve[b]])) for b in kept] for i in (0, 1))
        made.append([nodes, replicas, step_s, sync_s])
    return grid, made


def _add(found: dict[tuple[int, int], dict[int, list[tuple[float, float]]]], row: dict[str, str]) -> None:
    at = int(row["num_nodes"]), int(row["num_replicas"])
    found[at][int(row["local_bsz"])].append((float(row["step_time"]), float(row["sync_time"])))


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def goodput_t4(folder: Path) -> dict[str, Any]:
    """The table of goodput parameters on T4, from the files of Pollux's artifact."""
    try:
        fitted = json.loads((folder / "perf_params_t4.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {folder}: {error}", hint="give the folder that holds pollux/") from error
    value: dict[str, Any] = {"format": FORMAT, "applications": [], "epochs": [], "steps": []}
    for name, facts in sorted(fitted.items()):
        total_batches, of_epochs = epochs(folder / name, facts["epochs"], facts["init"])
        local_batches, of_steps = steps(folder / name)
        limits = {"initial": "init", "max_total": "maxb", "local_min": "minl", "local_max": "maxl"}
        value["applications"].append(
            {
                "name": name,
                "params": {key: _rounded(facts["perf"][key], 9) for key in sorted(facts["perf"])},
                "limits": {ours: facts[theirs] for ours, theirs in limits.items()},
                "total_batches": total_batches,
                "local_batches": local_batches,
            }
        )
        value["epochs"] += [[name, *row] for row in of_epochs]
        value["steps"] += [[name, *row] for row in of_steps]
    return value


def read_training(folder: Path) -> dict[str, AdaptiveBatch]:
    """How the applications that were measured train, by name; `folder` holds a folder for each."""
    return adaptive_batches_from(goodput_t4(folder))
