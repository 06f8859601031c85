"""Reports of jobs, however they are written."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.node import progress
from fairlead.node.guard.control_page import UsagePage
from fairlead.node.progress import Progress, ReportFile
from tests.patience import PATIENCE_S


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


def test_epochs_are_timed_by_a_clock_that_nobody_sets_where_there_is_one(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    moments = [(100.0, 5.0), (3700.0, 7.0), (104.0, 9.0)]  # the time of day was set, and set back
    write(tmp_path / "r", *({"epoch": i, "at_s": at_s, "clock_s": s} for i, (at_s, s) in enumerate(moments)))
    report.look()
    assert report.progress is not None
    assert (report.progress.epoch_s, report.progress.at_s) == (2.0, 104.0)


def test_processes_say_that_they_were_asked_to_stop(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    assert not report.has_been_asked
    write(tmp_path / "r", {"asked_to_stop": True, "pid": 7, "processes": 2})
    report.look()
    assert report.progress is None
    assert report.has_been_asked
    assert not report.have_all_been_asked(5), "one of two: a launcher that has seen another one fail"
    assert report.have_all_been_asked(7), "the main process has no launcher but us"
    write(tmp_path / "r", {"asked_to_stop": True, "pid": 8, "processes": 2})
    report.look()
    assert report.have_all_been_asked(5)


def test_without_a_launcher_the_main_process_counts(tmp_path: Path) -> None:
    report = ReportFile(tmp_path / "r")
    write(tmp_path / "r", {"asked_to_stop": True, "pid": 7, "processes": 0}, {"asked_to_stop": True, "pid": "x"})
    report.look()
    assert (report.have_all_been_asked(5), report.have_all_been_asked(7)) == (False, True)


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


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "socket", "device-link", "nothing"])
def test_what_stands_in_place_of_a_report_neither_holds_up_nor_leads_elsewhere(tmp_path: Path, kind: str) -> None:
    path, secret = tmp_path / "report.jsonl", tmp_path / "another-users"
    secret.write_text('{"epoch": 7, "at_s": 1}\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "link":
                path.symlink_to(secret)
            case "device-link":
                path.symlink_to("/dev/zero")
            case "socket":
                made.bind(str(path))
        report = ReportFile(path)
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(report.look()), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
    assert found == [False]
    assert report.progress is None


HOSTILE = [
    b"\xff\xfe\x00\x01", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b'{"epoch": %s, "at_s": 1}' % (b"9" * 5000),
    b'{"epoch": %s, "at_s": 1}' % (b"9" * 4000), b'{"epoch": -1, "at_s": 1}', b'{"epoch": 1.5, "at_s": 1}',
    b'{"epoch": NaN, "at_s": 1}', b'{"epoch": 2, "at_s": 1e308}', b'{"epoch": 2, "at_s": -1e308}',
    b'{"epoch": 2, "at_s": %s}' % (b"9" * 4000), b'{"epoch": 2, "at_s": Infinity}', b'{"epoch": true, "at_s": 1}',
    b'{"finished": 1}', b"null", b'"x"', b"", b"x" * 300_000,
]  # fmt: skip


def test_hostile_lines_are_passed_over_and_what_is_told_stays_finite(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    good = b'{"epoch": 1, "at_s": 5, "loss": Infinity, "batch": -4, "samples_per_s": 1e999, "of": 1e400}'
    path.write_bytes(b"\n".join([*HOSTILE, good, *HOSTILE]) + b"\n")
    report = ReportFile(path)
    while report.look():
        pass
    assert report.progress is not None
    assert report.progress.epochs_done == 1
    json.dumps(dataclasses.asdict(report.progress), allow_nan=False)


def test_of_a_flood_of_reports_the_last_count_and_the_file_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_MOST_BYTES", 8 << 20)
    path = tmp_path / "report.jsonl"
    line = b'{"epoch": %d, "at_s": %d, "x": "%s"}\n'
    with path.open("ab") as file:
        for i in range(1, 10_001):
            file.write(line % (i, i, b"x" * 900))
    report, looks = ReportFile(path), 0
    while report.look():
        looks += 1
    assert looks <= 5, "four mebibytes are read, not ten"
    assert report.progress is not None
    assert report.progress.epochs_done == 10_000
    assert path.stat().st_size == 0
    path.write_bytes(line % (10_001, 10_001, b""))
    assert report.look()
    assert report.progress.epochs_done == 10_001


def test_a_usage_page_that_is_none_is_known_to_be_none(tmp_path: Path) -> None:
    page = UsagePage.create(tmp_path / "usage")
    assert page.processes() == []
    with page.path.open("ab") as file:
        file.write(b"x" * (1 << 20))
    assert page.processes() == []
    assert page.path.stat().st_size < 1 << 20, "its user may write it, but not fill the disk by it"
    page.path.write_bytes(os.urandom(10_000))
    with pytest.raises(InputError):
        page.processes()
    page.path.unlink()
    os.mkfifo(page.path)
    with pytest.raises(OSError, match="no plain file"):
        page.processes()
