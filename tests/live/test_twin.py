"""The same events through the simulator and through a controller give the same plans, restarts in between or not."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fairlead import traces
from fairlead.live.engines.slurm import commands
from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from tests.live.piloted import MadeUpSlurm
from tests.live.twins import cluster_of, crowd, crowd_by_parts, run_both

PRESETS = sorted({*registry.PRESETS, "fifo", "srtf", "placing=pm-first", "sharing=gandiva", "sizing=pollux"})


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("spec", PRESETS)
def test_simulator_and_controller_give_the_same_plans(spec: str, seed: int, tmp_path: Path) -> None:
    assert run_both(spec, crowd(seed), cluster_of(spec, seed), tmp_path)[0] > 40


@pytest.mark.parametrize("spec", PRESETS)
def test_they_do_so_when_the_controller_is_restarted_again_and_again(spec: str, tmp_path: Path) -> None:
    run_both(spec, crowd(2), cluster_of(spec, 2), tmp_path, restarts=random.Random(2))


STACKS = random.Random(14).sample(registry.every_stack(), 40)
SEEDS = range(4, 4 + int(os.environ.get("FAIRLEAD_SEEDS", "1")))
"""More of them by hand."""


@pytest.mark.parametrize("number", range(len(STACKS)))
def test_they_do_so_with_stacks_drawn_at_random(number: int, tmp_path: Path) -> None:
    spec = STACKS[number]
    for seed in SEEDS:
        restarts = random.Random(seed) if number % 3 == 0 else None
        round_s = (None, None, None, 60.0)[(number + seed) % 4]
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_both(spec, crowd(seed + number), cluster_of(spec, seed), folder, round_s=round_s, restarts=restarts)


@pytest.mark.parametrize("spec", ["tiresias", "pal-nonsticky", "srtf"])
def test_they_do_so_in_rounds(spec: str, tmp_path: Path) -> None:
    run_both(spec, crowd(3), cluster_of(spec, 3), tmp_path, round_s=60.0)


@pytest.mark.parametrize("spec", ["fifo", "srtf,placing=fgd", "fifo-greedy,placing=best-fit", "eaco"])
def test_they_do_so_where_jobs_ask_for_parts_of_gpus(spec: str, tmp_path: Path) -> None:
    run_both(spec, crowd_by_parts(4), cluster_of(spec, 4), tmp_path, restarts=random.Random(4))


@pytest.mark.parametrize("restarts", [None, random.Random(4)], ids=["", "restarted"])
def test_they_do_so_beside_services(restarts: random.Random | None, tmp_path: Path) -> None:
    trace = traces.load("synthetic:fleet:services=6:hours=2:start_h=10")
    run_both("muxflow", trace, parse_shape("2x4:T4"), tmp_path, restarts=restarts)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> MadeUpSlurm:
    made = MadeUpSlurm()
    monkeypatch.setattr(commands, "run", made.run)
    return made


ON_PILOTS = ("eaco", "pal", "boa", "muxflow", "fair", "sizing=pollux,powering=sleep")


@pytest.mark.parametrize("spec", ON_PILOTS)
def test_they_do_so_where_nodes_are_pilots_of_slurm(spec: str, slurm: MadeUpSlurm, tmp_path: Path) -> None:
    restarts = random.Random(5) if spec != "fair" else None
    assert run_both(spec, crowd(5), cluster_of(spec, 5), tmp_path, restarts=restarts, slurm=slurm)[0] > 40
    if registry.build(spec).powering.rents:
        assert len(slurm.pilots) > 3, "none was ever given back and submitted again"
    assert len(slurm.open) <= 3


def test_they_do_so_beside_services_on_pilots(slurm: MadeUpSlurm, tmp_path: Path) -> None:
    trace = traces.load("synthetic:fleet:services=6:hours=2:start_h=10")
    run_both("muxflow", trace, parse_shape("2x4:T4"), tmp_path, slurm=slurm)
