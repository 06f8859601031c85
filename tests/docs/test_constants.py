"""docs/constants.md and the code have the same constants, and none is missing."""

from __future__ import annotations

import re

import pytest

from fairlead.live.config import EngineTable
from fairlead.model import cluster, power, profile
from fairlead.model.cluster import GPU_MODELS, Rental
from fairlead.node.gpu import energy
from fairlead.policy.powering.rent import Rent
from fairlead.policy.powering.sleep import Sleep
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "constants.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the tables of one section, names without their marks."""
    body = re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def values(title: str) -> dict[str, float]:
    return {row[0]: float(row[1].replace(",", "")) for row in rows(title) if re.fullmatch(r"[\d.,]+", row[1])}


def _number(cell: str) -> float | None:
    return None if cell == "-" else float(cell.replace(",", ""))


def test_every_gpu_model_has_its_numbers() -> None:
    columns, *found = [row for row in rows("GPUs") if len(row) > 2]
    assert columns[1:] == ["idle_w", "peak_w", "floor_w", "context_w", "memory_mib", "price_usd_per_h"]
    told = {name: dict(zip(columns[1:], map(_number, cells), strict=True)) for name, *cells in found}
    assert told == {name: {column: getattr(m, column) for column in columns[1:]} for name, m in GPU_MODELS.items()}


def test_every_number_of_a_gpu_model_has_a_source() -> None:
    sources = {row[0]: row[1] for row in rows("GPUs") if len(row) == 2}
    assert {f for f in cluster.GpuModel.__slots__ if f != "name"} == set(sources) - {"column"}
    for name, source in sources.items():
        assert name == "column" or re.search(r"measured|fitted|vendor|assumed", source), name


@pytest.mark.parametrize("module", [cluster, power])
def test_every_constant_of_the_power_model_is_there(module: object) -> None:
    told = {**values("The curve"), **values("Nodes")}
    own = {name: v for name, v in vars(module).items() if name.isupper() and isinstance(v, float)}
    assert own
    assert own.items() <= told.items()


def test_what_switches_nodes_is_there() -> None:
    told = values("Policies that switch nodes")
    sleep, rent, rental = Sleep(), Rent(), Rental()
    assert told == {
        "powering=sleep, after_s": sleep.after_s,
        "powering=sleep, reserve": sleep.reserve,
        "powering=rent, linger_s": rent.linger_s,
        "rental, boot_s": rental.boot_s,
        "rental, minimum_s": rental.minimum_s,
        "rental, step_s": rental.step_s,
    }


def test_the_activity_of_every_built_in_application_is_there() -> None:
    told = values("How busy applications keep their GPUs")
    for known in profile.PROFILES.values():
        assert told.get(known.name, told["generic"]) == known.activity_frac, known.name
    unknown = {p.name for p in profile.PROFILES.values()} - set(told)
    assert all(f"`{name}`" in PAGE for name in unknown)


def test_what_is_live_is_there() -> None:
    assert values("Live") == {"engine.wake_s": EngineTable().wake_s, "_MOST_W": energy._MOST_W}


def test_every_constant_says_where_it_is_from() -> None:
    for title in ("The curve", "Nodes", "Policies that switch nodes", "How busy applications keep their GPUs", "Live"):
        for name, _, source in rows(title):
            assert name in ("constant", "application") or len(source) > 10, name
