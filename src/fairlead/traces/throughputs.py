"""Tables of step rates in Gavel's layout, for traces that say how many steps a job takes and not how long.

A JSON object by GPU type, then by job type and width, `"('ResNet-18 (batch size 32)', 2)"` (in older tables
`"ResNet-18 (scale factor 2)"`, or the type alone), whose `"null"` is the steps per second alone on these GPUs; the
other entries are rates beside another job. stanford-futuredata/gavel has `simulation_throughputs.json`,
uw-mad-dash/shockwave `tacc_throughputs.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.errors import InputError, did_you_mean
from fairlead.model.files import read_text
from fairlead.model.profile import Profile, Table, profile_named

USUAL_GPU = "v100"
"""The GPU type by which Gavel's own generator turns durations into steps."""
USUAL_NAMES = (
    "simulation_throughputs.json", "physical_cluster_throughputs.json", "tacc_throughputs.json",
    "oracle_throughputs.json", "throughputs.json",
)  # fmt: skip
_FOLDERS_UP = 4
_KEY = re.compile(r"""^\(\s*(['"])(.+)\1\s*,\s*(\d+)\s*\)$""")
_OLD_KEY = re.compile(r"^(.+) \(scale factor (\d+)\)$")
_BATCH = re.compile(r"\s*\(batch size (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second alone, by job type and width, on one type of GPU."""

    path: Path
    gpu: str
    steps_per_s: dict[tuple[str, int], float]

    def profiles(self) -> dict[str, Profile]:
        """Profiles with their speedups, by the names that `profile_name` gives."""
        found = {}
        for job_type in {job_type for job_type, _ in self.steps_per_s}:
            widths = sorted(width for known, width in self.steps_per_s if known == job_type)
            alone = self.steps_per_s[job_type, widths[0]]
            if widths[0] == 1:
                speedups = tuple(self.steps_per_s[job_type, width] / alone for width in widths)
                name = profile_name(job_type)
                found[name] = replace(
                    profile_named(name), name=name, speedup=Table(tuple(map(float, widths)), speedups)
                )
        return found


def profile_name(job_type: str) -> str:
    """`LM (batch size 10)` as `LM bs10`, the name that it has in our table of Gavel's pairs."""
    return _BATCH.sub(r" bs\1", job_type.strip())


def load_throughputs(text: str | Path) -> Throughputs:
    """A table from `FILE` or `FILE:GPU`; without a GPU type it is v100, or the only one that the table has."""
    path, gpu = Path(text), None
    if not path.exists() and ":" in str(text):
        name, _, gpu = str(text).rpartition(":")
        path = Path(name)
    try:
        tables = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(tables, dict) or not tables or not all(isinstance(t, dict) for t in tables.values()):
        raise InputError(f"{path} is no table of throughputs", hint='expected {"v100": {"(\'LM\', 1)": {"null": 2.5}}}')
    chosen = gpu or (USUAL_GPU if USUAL_GPU in tables else next(iter(tables)))
    if chosen not in tables or (gpu is None and chosen != USUAL_GPU and len(tables) > 1):
        raise InputError(f"{path} has no GPU type {chosen!r}", hint=did_you_mean(chosen, tables))
    rates = dict(_rates(path, tables[chosen]))
    if not rates:
        raise InputError(f"{path}: no rate of a job alone under {chosen!r}", hint='a rate is called "null" there')
    return Throughputs(path, chosen, rates)


def _rates(path: Path, table: dict[str, Any]) -> Iterator[tuple[tuple[str, int], float]]:
    for key, entry in table.items():
        rate = entry.get("null") if isinstance(entry, dict) else entry
        if rate is None:
            continue
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < float("inf"):
            raise InputError(f"{path}, {key}: found {rate!r}, expected steps per second")
        if rate > 0:
            yield _job_type_and_width(key), float(rate)


def _job_type_and_width(key: str) -> tuple[str, int]:
    if match := _KEY.match(key):
        return match[2], int(match[3])
    if match := _OLD_KEY.match(key):
        return match[1], int(match[2])
    return key, 1


def find_throughputs(trace: Path) -> Path | None:
    """The table that lies beside a trace or in a folder above it, under the name that Gavel or Shockwave gives it."""
    folder = trace.absolute().parent
    for above in (folder, *list(folder.parents)[:_FOLDERS_UP]):
        for name in USUAL_NAMES:
            if (above / name).is_file():
                return above / name
    return None
