"""Reports of jobs, however they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.node.progress import Progress, ReportFile


def write(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")


def test_the_last_report_counts_and_epochs_are_timed_between_reports(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    assert not report.look()
    assert report.progress is None
    write(tmp_path / "r", {"epoch": 3, "of": 90, "at_s": 100.0, "loss": 0.5, "samples_per_s": 800, "batch": 256})
    assert report.look()
    assert report.progress == Progress(3, 90, None, 100.0, 0.5, 800.0, 256)
    write(tmp_path / "r", {"epoch": 4, "at_s": 110.0}, {"epoch": 6, "at_s": 150.0})
    assert report.look()
    assert report.progress == Progress(6, 90, 15.0, 150.0)
    assert not report.look()


def test_the_mean_is_over_the_last_five(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    moments = [0.0, 1000.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0]
    write(tmp_path / "r", *({"epoch": i, "at_s": at_s} for i, at_s in enumerate(moments)))
    report.look()
    assert report.progress is not None
    assert report.progress.epoch_s == 1.0


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    write(
        tmp_path / "r",
        '{"epoch": 1, "at_s"{"epoch": 2, "at_s": 5.0}\n',
        "[" * 100_000 + "\n",
        "7\n",
        "\0\xff nonsense\n",
        {"epoch": -1, "at_s": 1.0},
        {"epoch": 1.5, "at_s": 1.0},
        {"epoch": True, "at_s": 1.0},
        {"epoch": 2},
        '{"epoch": 3, "at_s": NaN}\n',
        {"epoch": 2, "at_s": 7.0, "loss": "low", "batch": -3, "samples_per_s": None},
        '{"epoch": 9, "at_s": 8.0',
    )
    assert report.look()
    assert report.progress == Progress(2, None, None, 7.0)
    write(tmp_path / "r", "}\n")
    assert report.look()
    assert report.progress is not None
    assert report.progress.epochs_done == 9


def test_finished_is_remembered(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    write(tmp_path / "r", {"epoch": 1, "at_s": 1.0}, {"finished": True, "at_s": 2.0})
    report.look()
    assert report.progress == Progress(1, at_s=2.0, has_finished=True)


def test_a_job_that_went_back_to_a_checkpoint_is_timed_from_there(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    write(tmp_path / "r", {"epoch": 8, "at_s": 10.0}, {"epoch": 2, "at_s": 500.0}, {"epoch": 3, "at_s": 510.0})
    report.look()
    assert report.progress is not None
    assert (report.progress.epochs_done, report.progress.epoch_s) == (3, 10.0)


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_report_read_in_pieces_or_anew_says_the_same(tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "r"
    report = ReportFile(path)
    text = "".join(json.dumps({"epoch": i, "at_s": float(i * i)}) + "\n" for i in range(20))
    step = len(text) // pieces + 1
    for at in range(0, len(text), step):
        write(path, text[at : at + step])
        report.look()
    again = ReportFile(path)
    again.look()
    assert report.progress == again.progress
