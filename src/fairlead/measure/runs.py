"""Raw measurements: one row per run of an application on one GPU, as the Longhorn and Frontera data sets have them.

Their files differ: the application is called `exp` or `model`, the GPU's index `device` or `dev_id`; `uuid` holds a
UUID or, where it was not recorded, `cabinet-node-device` once more; a node is `4` or `004`, and -1 where it was not
recorded. `perf` is always a time, of a run or of an iteration: larger is slower.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.errors import InputError
from fairlead.measure.sheet import BadCellError, Row, Sheet

MOST_GPUS_PER_NODE = 64
_PLACE = re.compile(r"(?!GPU-|MIG-)(\w+)-(\d+)-(\d+)")
_HINT = "a csv with perf (a time), exp or model, and uuid or cabinet, node and device"
_UNKNOWN = ("", "-1")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: how long it took, of what, and all that is known of where."""

    application: str
    perf: float
    uuid: str
    """Empty where unknown, like `node`."""
    node: str
    index: int | None


@dataclass
class Runs:
    """All runs of some files."""

    runs: list[Run] = field(default_factory=list)
    skipped_rows: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def applications(self) -> list[str]:
        """The applications that were run, sorted."""
        return sorted({run.application for run in self.runs})


def read_runs(paths: Sequence[Path], *, skip_bad_rows: bool = False) -> Runs:
    """The runs of all files; the first bad row is an error, or counted with `skip_bad_rows`."""
    all_runs = Runs()
    typical: dict[str, tuple[float, Path]] = {}
    for path in paths:
        found = _read_file(path, skip_bad_rows, all_runs)
        if not found:
            raise InputError(f"{path}: no runs found", hint=_HINT)
        _check_units(found, path, typical)
        all_runs.runs += _with_known_indices(found, path, all_runs.notes)
    return all_runs


def _read_file(path: Path, skip_bad_rows: bool, into: Runs) -> list[Run]:
    sheet = Sheet.read(path)
    sheet.first_of(["perf"], "the measured time", _HINT)
    application = sheet.first_of(["exp", "model"], "the application", _HINT)
    sheet.first_of(["uuid", "node"], "the GPU", _HINT)
    index = next((name for name in ("device", "dev_id") if name in sheet.columns), "")
    runs: list[Run] = []
    complaints: list[str] = []
    for row in sheet:
        if isinstance(row, tuple):
            complaints.append(f"{path} line {row[0]}{row[1]}")
            continue
        try:
            runs.append(_run(row, application, index))
        except BadCellError as error:
            complaints.append(f"{path} line {row.line}{error}")
    if complaints and not skip_bad_rows:
        more = f" ({len(complaints):,} bad rows in all)" if len(complaints) > 1 else ""
        raise InputError(complaints[0], hint=f"correct it, or have bad rows left out with --skip-bad-rows{more}")
    if complaints:
        into.skipped_rows += len(complaints)
        into.notes.append(f"skipped {len(complaints):,} bad rows of {path.name}; the first: {complaints[0]}")
    return runs


def _run(row: Row, application: str, index_column: str) -> Run:
    cells = row.cells
    name = cells[application].lower()
    if not name:
        raise BadCellError(application, "", "the name of an application")
    perf = row.number("perf", "a time above 0", 5e-324, 1.7e308)
    node, index = _node_name(cells.get("cabinet", ""), cells.get("node", "")), None
    if index_column and cells[index_column] not in _UNKNOWN:
        allowed = f"a whole number from 0 to {MOST_GPUS_PER_NODE - 1}"
        index = int(row.number(index_column, allowed, 0, MOST_GPUS_PER_NODE - 1, whole=True))
    uuid = cells.get("uuid", "")
    if place := _PLACE.fullmatch(uuid):
        uuid = ""
        if not node and int(place[3]) < MOST_GPUS_PER_NODE:
            node, index = _node_name(place[1], place[2]), int(place[3])
    if not uuid and (not node or index is None):
        raise BadCellError("uuid", cells.get("uuid", ""), "a UUID, or else a node and a device")
    return Run(name, perf, uuid, node, index if node else None)


def _node_name(cabinet: str, node: str) -> str:
    """`cabinet-node`, without leading zeros; empty where unknown."""
    if node in _UNKNOWN or cabinet == "-1":
        return ""
    node = str(int(node)) if node.isdecimal() else node
    return f"{cabinet}-{node}" if cabinet else node


def _with_known_indices(runs: list[Run], path: Path, notes: list[str]) -> list[Run]:
    """Without indices where the file gives every GPU the same one, which says nothing (Longhorn's SGEMM: always 0)."""
    uuids: dict[tuple[str, int], set[str]] = defaultdict(set)
    for run in runs:
        if run.uuid and run.index is not None:
            uuids[run.node, run.index].add(run.uuid)
    if len({index for _, index in uuids}) != 1 or all(len(found) == 1 for found in uuids.values()):
        return runs
    notes.append(f"{path.name} gives all GPUs of a node the same device number; they are told apart by UUID")
    return [replace(run, index=None) if run.uuid else run for run in runs]


def _check_units(runs: list[Run], path: Path, typical: dict[str, tuple[float, Path]]) -> None:
    """Files that time one application in seconds here and milliseconds there would make nonsense of the scores."""
    for name in sorted({run.application for run in runs}):
        times = sorted(run.perf for run in runs if run.application == name)
        middle = times[len(times) // 2]
        other, where = typical.setdefault(name, (middle, path))
        if not 1 / 3 < middle / other < 3:
            raise InputError(
                f"{path}: a run of {name} typically takes {middle:g}, in {where} {other:g}",
                hint="import the files of one cluster, in one unit, at a time",
            )
