from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from fairlead.model.cluster import parse_shape
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.report.whatif import SHOWN_JOBS, comparison_table, prediction_table
from fairlead.whatif import predict, whatif


def _printed(renderable: object, width: int = 160) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(renderable)
    return text.getvalue()


def _queue() -> Snapshot:
    runs = SnapshotJob(
        1, "[b]runs", "ann", 0.0, 4, 4, 4, state="running", placement=(0, 1, 2, 3), starts=1, left_s=7200.0
    )
    wide = SnapshotJob(2, "wide", "bob", 1.0, 8, 8, 8, left_s=600.0, deadline_s=60.0)
    unknown = SnapshotJob(3, "unknown", "eve", 2.0, 1, 1, 1, profile="BERT")
    return Snapshot(100.0, "fifo", parse_shape("2x4"), (runs, wide, unknown))


def _line(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if name in line)


def test_a_prediction_is_told_from_now_on() -> None:
    text = _printed(prediction_table(predict(_queue())))
    assert "[b]runs (1)" in text
    assert "runs" in _line(text, "[b]runs")
    assert "in 2.00 h" in _line(text, "[b]runs")
    assert "in 2.17 h" in _line(text, "wide (2)")
    assert "no" in _line(text, "wide (2)").split()
    assert "? its run time is a guess" in text
    assert "unknown (3) ?" in text
    assert "2 nodes x 4 V100" in text


def test_a_job_that_never_starts_and_fake_gpus_are_told() -> None:
    text = _printed(prediction_table(predict(replace(_queue(), down=(1,), is_fake=True))))
    assert _line(text, "wide (2)").count("never") == 2
    assert "(fake GPUs)" in text


def test_a_comparison_shows_both_futures_and_only_the_jobs_that_differ() -> None:
    text = _printed(comparison_table(whatif(_queue(), policy="fifo-greedy", jobs=[{"gpus": 2, "duration_s": 60}])))
    assert "what if: policy fifo-greedy, 1 job more" in text
    assert "-2.17 h" in _line(text, "unknown (3) ?")
    assert "now" in _line(text, "new-1 (4)")
    assert "2 jobs start and end as before" in text
    assert "wide (2)" not in text
    assert "until the last job ends" in text


def test_long_tables_are_cut() -> None:
    jobs = tuple(SnapshotJob(i, f"j{i}", "ann", 1.0, 1, 1, 1, left_s=60.0) for i in range(SHOWN_JOBS + 7))
    text = _printed(prediction_table(predict(replace(_queue(), jobs=jobs))))
    assert "... and 7 more; --json has them all" in text
