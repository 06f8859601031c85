"""The comparison with MuxFlow's paper, on a small fleet; `fairlead reproduce muxflow` has 1,000 GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.report import plots
from fairlead.report.claims import Reproduction
from fairlead.reproduce import muxflow, muxflow_setting


@pytest.fixture(scope="module")
def found() -> Reproduction:
    small = pytest.MonkeyPatch()
    for name, value in (("SHAPE", "3x8:T4"), ("GPUS", 24), ("SMALL_SHAPE", "3x8:T4"), ("SMALL_GPUS", 24)):
        small.setattr(muxflow_setting, name, value)
    small.setattr(muxflow_setting, "LOADS", (0.95,))
    small.setattr(muxflow_setting, "SEEDS", (0,))
    small.setattr(muxflow_setting, "STATIC", (0.5,))
    small.setattr(muxflow_setting, "PAIRS", 300)
    try:
        return muxflow.reproduce(None)
    finally:
        small.undo()


def test_what_must_show_shows_on_a_small_fleet_too(found: Reproduction) -> None:
    by_claim = {row.claim: row for row in found.rows}
    wanted = [
        name
        for name in by_claim
        if "24 h" in name and ("after" in name or "JCT of" in name or "slower, " in name or "SLO misses" in name)
    ]
    assert len(wanted) >= 8
    wanted += [name for name in by_claim if name.startswith("bursts")]
    assert [name for name in wanted if not by_claim[name].holds] == []


def test_every_row_that_does_not_hold_can_be_read(found: Reproduction) -> None:
    assert all(row.claim and row.unit for row in found.rows)
    assert len({row.claim for row in found.rows}) == len(found.rows)


def test_the_figures_can_be_drawn(found: Reproduction) -> None:
    assert [figure.name for figure in found.figures] == ["day", "jct", "latency"]
    for figure in found.figures:
        assert plots.save_drawing(figure.title, figure.draw).startswith(b"\x89PNG")


def test_a_folder_without_the_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"genai_qps\.csv"):
        muxflow_setting.request_rate(tmp_path)
