"""Derives the shipped tables from the public data: `python -m fairlead.model.tables.derive DATA [OUT]`.

DATA holds `eaco/tables.json` (the tables of arXiv 2412.08294) and `gavel/simulation_throughputs.json` (from
stanford-futuredata/gavel, MIT); OUT is this folder unless given. The same data gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead.errors import InputError
from fairlead.model.interference import Interference
from fairlead.model.tables.entry import as_text

DIGITS = 6
"""Decimals kept; the measurements have four figures."""


def utilisation_of(node_w: float) -> float:
    """Utilisation of the GPUs that the EaCO fit, node power = 359.8 + 176.57 * u^0.48 W (u in %), has at this power.

    Taken in place of the reported GPU averages because it makes the power come out. Over the ten sets the two are at
    most 6 points apart (AlexNet+VGG-16: 49 against 55 %), which is the scatter of the paper's own fit (R2 0.992): that
    pair drew less than VGG-16 alone.
    """
    return float(((node_w - 359.8) / 176.57) ** (1 / 0.48) / 100)


def eaco(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Every job of a pair or triple runs 90 epochs and all end together, so speed = solo JCT / JCT of the set."""
    solo_h = {name: row["jct_h"] for name, row in tables["exclusive"].items()}
    table = Interference()
    for joined, row in tables["colocated"].items():
        names = joined.split("+")
        together = [solo_h[name] / row["jct_h"] for name in names]
        speeds = together if len(names) < 4 else _all_four(solo_h, names, row)
        table.record(names, [round(s, DIGITS) for s in speeds], round(utilisation_of(row["power_w"]), DIGITS))
    return _with_source(table, "EaCO, arXiv 2412.08294, tables 1 to 4; speeds and utilisations derived by derive.py")


def _all_four(solo_h: Mapping[str, float], names: list[str], row: Mapping[str, float]) -> list[float]:
    """Power x JCT is not the energy here: 93.66 kWh at 1944 W take 48.18 h, not the 44.21 h of the table.

    The reading that keeps all three figures: 44.21 h is the mean of the four, 48.18 h the end of the last. So three end
    together at (4 * 44.21 - 48.18) / 3 = 42.89 h, and VGG-16, the longest, goes on alone at its solo speed.
    """
    end_h = row["energy_kwh"] * 1000 / row["power_w"]
    together_h = (4 * row["jct_h"] - end_h) / 3
    last = max(names, key=lambda name: solo_h[name])
    return [((solo_h[name] - (end_h - together_h)) if name == last else solo_h[name]) / together_h for name in names]


def gavel(throughputs: Mapping[str, Any]) -> dict[str, Any]:
    """Pairs on one V100: speed = throughput beside the other / throughput alone. Zero means that they do not fit."""
    of_type = throughputs["v100"]
    alone = {key: name for key in of_type if (name := short_name(key)) is not None}
    pairs: list[tuple[list[str], list[float]]] = []
    apart: list[list[str]] = []
    for own, own_name in alone.items():
        for other, beside in of_type[own].items():
            if other not in alone or alone[other] < own_name:
                continue  # "null" is the speed alone; each pair stands once from either side
            names = [own_name, alone[other]]
            if min(beside) <= 0.0:
                apart.append(names)
                continue
            solo = (of_type[own]["null"], of_type[other]["null"])
            pairs.append((names, [round(min(1.0, b / s), DIGITS) for b, s in zip(beside, solo, strict=True)]))
    table = Interference(does_not_fit=apart)
    for names, speeds in pairs:
        table.record(names, speeds)
    return _with_source(
        table, "stanford-futuredata/gavel (MIT), simulation_throughputs.json, v100, one GPU; derived by derive.py"
    )


def short_name(key: str) -> str | None:
    """`ResNet-18 bs16` for Gavel's "('ResNet-18 (batch size 16)', 1)"; None for jobs on several GPUs."""
    match = re.fullmatch(r"\('(.+?)(?: \(batch size (\d+)\))?', 1\)", key)
    if match is None:
        return None
    return f"{match[1]} bs{match[2]}" if match[2] else match[1]


def _with_source(table: Interference, source: str) -> dict[str, Any]:
    value = table.to_dict()
    return {"format": value.pop("format"), "source": source, **value}


def derive(data: Path, out: Path) -> list[Path]:
    """Write the tables and say where."""
    made = {
        "eaco.json": eaco(_read(data / "eaco" / "tables.json")),
        "gavel-v100.json": gavel(_read(data / "gavel" / "simulation_throughputs.json")),
    }
    for name, value in made.items():
        (out / name).write_text(as_text(value), encoding="utf-8")
    return [out / name for name in made]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="give the folder that holds eaco/ and gavel/") from error


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m fairlead.model.tables.derive DATA [OUT]")
    try:
        for path in derive(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent):
            print(path)
    except InputError as error:
        sys.exit(f"error: {error}")
