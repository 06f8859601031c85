"""FGD's comparison, on made-up pods and, where it is there, on a part of Alibaba's trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.report import plots
from fairlead.report.claims import Reproduction
from fairlead.reproduce import fgd, fgd_setting


@pytest.fixture(scope="module")
def found() -> Reproduction:
    small = pytest.MonkeyPatch()
    small.setattr(fgd, "SEEDS", (42,))
    small.setattr(fgd_setting, "_MADE_UP_NODES", 36)
    small.setattr(fgd_setting, "_MADE_UP_PODS", 400)
    try:
        return fgd.reproduce(None)
    finally:
        small.undo()


def test_the_order_of_the_three_holds_on_made_up_pods(found: Reproduction) -> None:
    by_claim = {row.claim: row for row in found.rows}
    assert [row.claim for row in found.rows if not row.holds] == []
    assert by_claim["GPUs held at 130 % arrived, fgd"].ours > by_claim["GPUs held at 130 % arrived, random"].ours


def test_the_figure_can_be_drawn(found: Reproduction) -> None:
    assert [figure.name for figure in found.figures] == ["held"]
    assert plots.save_drawing(found.figures[0].title, found.figures[0].draw).startswith(b"\x89PNG")


def test_pods_ask_for_130_percent_in_an_order_that_the_seed_decides() -> None:
    scene = fgd_setting.made_up()
    pods = fgd.workload(scene, 42)
    assert sum(p.gpus * p.gpu_frac for p in pods) >= 1.3 * scene.cluster.gpus
    assert (pods == fgd.workload(scene, 42), pods == fgd.workload(scene, 43)) == (True, False)


def test_a_folder_without_the_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"openb_node_list_gpu_node\.csv: no such file"):
        fgd_setting.openb(tmp_path)


def test_best_fit_fills_openb_as_published(shared_data: Path) -> None:
    """The cheapest of the three, one seed; `fairlead reproduce fgd` has all."""
    filled = fgd.fill(fgd_setting.openb(shared_data), "best-fit", 42)
    assert 100.0 * filled.held_frac == pytest.approx(fgd.PUBLISHED["best-fit"], abs=fgd.WITHIN)
