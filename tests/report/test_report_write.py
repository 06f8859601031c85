from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from fairlead.errors import InputError
from fairlead.report import plots
from fairlead.report.write import prepare, write
from fairlead.sim.result import Result

MakeResult = Callable[..., Result]


class _Balanced(HTMLParser):
    """Fails on a tag that closes another than the open one."""

    void = frozenset({"meta", "img", "wbr", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_one_run_becomes_frames_a_summary_plots_and_a_page(make_result: MakeResult, tmp_path: Path) -> None:
    result = make_result()
    written = write(result, tmp_path / "new" / "folder", command="fairlead simulate")
    assert {path.name for path in written.folder.iterdir()} == {
        "jobs.parquet",
        "timeline.parquet",
        "summary.json",
        "plots",
        "report.html",
    }
    assert pl.read_parquet(written.folder / "jobs.parquet").equals(result.jobs)
    assert pl.read_parquet(written.folder / "timeline.parquet").equals(result.timeline)
    assert [path.read_bytes()[:4] for path in written.plots] == [b"\x89PNG"] * 4
    assert written.hint is None


def test_the_runs_of_a_comparison_have_files_of_their_own(make_result: MakeResult, tmp_path: Path) -> None:
    write([make_result("fifo"), make_result("las:queues=3")], tmp_path)
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert [run["name"] for run in runs] == ["fifo", "las:queues=3"]
    assert runs[1]["files"]["jobs"] == "jobs-las-queues-3.parquet"
    assert all((tmp_path / name).is_file() for run in runs for name in run["files"].values())


def test_names_that_meet_in_a_file_name_are_kept_apart(make_result: MakeResult, tmp_path: Path) -> None:
    write([make_result(), make_result()], tmp_path, names=["a=b", "a:b"])
    assert len(list(tmp_path.glob("jobs-*.parquet"))) == 2


def test_the_summary_has_no_nan_and_no_infinity(make_result: MakeResult, tmp_path: Path) -> None:
    write(make_result(mean_jct_s=float("nan"), worst_fairness=float("inf")), tmp_path)
    run = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)["runs"][0]
    assert run["mean_jct_s"] is None
    assert run["worst_fairness"] is None


def test_the_page_stands_alone_and_is_well_formed(make_result: MakeResult, tmp_path: Path) -> None:
    write([make_result("fifo"), make_result("las", slowness=2.0)], tmp_path)
    parser = _Balanced()
    text = (tmp_path / "report.html").read_text()
    parser.feed(text)
    assert not parser.open
    assert not parser.sources
    assert not re.search(r"@import|url\(", text)


def test_the_page_says_the_setting_and_how_to_run_it_again(make_result: MakeResult, tmp_path: Path) -> None:
    write([make_result("fifo"), make_result("las")], tmp_path, command="fairlead compare --seed 3")
    text = (tmp_path / "report.html").read_text()
    assert "fairlead compare --seed 3" in text
    assert "sizing=fixed,ordering=las,placing=packed,sharing=exclusive" in text
    assert "16 nodes x 4 V100, 64 GPUs" in text


def test_everything_on_the_page_is_escaped(make_result: MakeResult, tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"&"
    result = make_result()
    hostile = Result(evil, evil, evil, result.summary, result.jobs, result.timeline, (evil,))
    write([hostile, hostile], tmp_path, names=[evil, "other"], command=evil)
    text = (tmp_path / "report.html").read_text()
    assert "alert('x')</script>" not in text
    assert re.findall(r"<script[^>]*>", text) == ['<script type="application/json" id="data">', "<script>", "<script>"]


def test_without_matplotlib_all_but_the_plots_is_written(
    make_result: MakeResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    written = write(make_result(), tmp_path)
    assert written.plots == ()
    assert written.hint == plots.INSTALL_HINT
    assert 'id="lines"' in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "plots").exists()


def test_a_folder_that_is_a_file_or_under_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "below"):
        with pytest.raises(InputError, match="cannot write results into"):
            prepare(out)
    assert file.read_text() == "mine"
