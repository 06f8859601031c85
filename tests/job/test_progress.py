"""Reports are lines of JSON, and whatever becomes of them the training goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead import job
from tests.job.conftest import lines


def test_an_epoch_is_one_line(report: Path) -> None:
    before_s = time.time()
    job.epoch(3, of=90, loss=0.5, samples_per_s=800.0, batch=256)
    (line,) = lines(report)
    assert before_s <= line.pop("at_s") <= time.time()
    assert line.pop("clock_s") <= time.monotonic()
    assert line == {"epoch": 3, "of": 90, "loss": 0.5, "samples_per_s": 800.0, "batch": 256}
    assert report.read_bytes().endswith(b"}\n")


def test_what_is_not_given_is_not_in_the_line(report: Path) -> None:
    job.epoch(1)
    assert [set(line) for line in lines(report)] == [{"epoch", "at_s", "clock_s"}]


def test_the_last_epoch_says_finished(report: Path) -> None:
    job.epoch(1, of=2)
    job.epoch(2, of=2)
    first, last, end = lines(report)
    assert (first["epoch"], last["epoch"]) == (1, 2)
    assert end == {"finished": True, "at_s": last["at_s"]}


def test_a_job_can_finish_early(report: Path) -> None:
    job.finished()
    (line,) = lines(report)
    assert line["finished"] is True
    assert line["at_s"] == pytest.approx(time.time(), abs=600)


class Tensor:
    """Like a number of NumPy or PyTorch."""

    def __init__(self, value: float, is_scalar: bool = True) -> None:
        self.value = value
        self.is_scalar = is_scalar

    def __float__(self) -> float:
        if not self.is_scalar:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.value

    def __int__(self) -> int:
        return int(float(self))


def test_tensors_are_numbers(report: Path) -> None:
    job.epoch(Tensor(2.0), loss=Tensor(0.25), batch=Tensor(64.0))  # type: ignore[arg-type]
    (line,) = lines(report)
    assert (line["epoch"], line["loss"], line["batch"]) == (2, 0.25, 64)
    assert isinstance(line["epoch"], int)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_json_cannot_hold_is_left_out(report: Path, loss: float, caplog: pytest.LogCaptureFixture) -> None:
    job.epoch(1, loss=loss)
    assert [set(line) for line in lines(report)] == [{"epoch", "at_s", "clock_s"}]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ({"done": -1}, "epoch=-1"),
        ({"done": 1.5}, "epoch=1.5"),
        ({"done": "three"}, "epoch='three'"),
        ({"done": None}, "epoch=None"),
        ({"done": 91, "of": 90}, "of=90"),
    ],
)
def test_a_count_that_makes_no_sense_is_warned_of_once_and_not_reported(
    report: Path, call: dict[str, Any], word: str, caplog: pytest.LogCaptureFixture
) -> None:
    job.epoch(**call)
    job.epoch(**call)
    assert not report.exists()
    (record,) = caplog.records
    assert word in record.getMessage()


@pytest.mark.parametrize(
    "wrong", [{"loss": "low"}, {"loss": Tensor(0, False)}, {"samples_per_s": -1}, {"batch": -1}, {"of": -1}]
)
def test_a_value_that_makes_no_sense_is_left_out(
    report: Path, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    job.epoch(1, **wrong)
    assert [set(line) for line in lines(report)] == [{"epoch", "at_s", "clock_s"}]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("path", ["missing/report.jsonl", ".", "a\0b"])
def test_a_report_that_cannot_be_written_is_lost_and_nothing_else(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # An environment cannot hold a NUL, so this is what the code sees.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fairlead.job.progress.os.environ", {"FAIRLEAD_REPORT": path})
    job.epoch(1, of=2)
    job.epoch(2, of=2)
    job.finished()
    (record,) = caplog.records
    assert "the job goes on" in record.getMessage()


def test_a_full_disk_is_no_error(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_REPORT", "/dev/full")
    job.epoch(1)


def test_outside_fairlead_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job.epoch(1, of=1)
    job.finished()
    assert list(tmp_path.iterdir()) == []


def test_only_the_first_process_writes(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    job.epoch(1, of=1)
    job.finished()
    assert not report.exists()


def test_lines_of_two_threads_do_not_mix(report: Path) -> None:
    def work(batch: int) -> None:
        for done in range(1, 301):
            job.epoch(done, loss=0.5, batch=batch)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(report)
    for batch in (1, 2):
        assert [line["epoch"] for line in found if line["batch"] == batch] == list(range(1, 301))
