"""Tiresias's job lists and their relatives: job_id, num_gpu, submit_time, iterations, model_name, duration, interval.

Tiresias (SymbioticLab/Tiresias) has times in seconds since the start. Muri (Rivendile/Muri) adds `iteration_time` and
`resource_time_*`, and all its times are milliseconds; its `priority` 1 is a job that gives way to one of 0. ElasticFlow
(pkusys/ElasticFlow, microsoft/elasticflow-traces) has `iteration` or `num_iteration`, and `ddl` or `deadline`: a moment
on the same clock as the submission. `duration` is the seconds on the GPUs asked for, in all of them.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, whole
from fairlead.traces.reading import Field, Reading, or_more, own

ITERATIONS = "iterations|iteration|num_iteration"
_FIELDS = [
    own("job_id"),
    own("user", optional=True),
    or_more("num_gpu|num_gpus", "gpus", 0, "a whole number of GPUs", parse=whole),
    or_more("submit_time|submission_time", "submit_s", 0, "a number since the start"),
    or_more("duration", "duration_s", 0, "a run time"),
    own("profile", "model_name", optional=True),
    Field("ddl|deadline", "due_s", number, "a moment", optional=True),
    Field("best_effort", "best_effort", whole, "0 or 1", pl.col("best_effort").is_in([0, 1]), optional=True),
    own("priority", parse=whole, optional=True),
]


def _read(reading: Reading) -> pl.DataFrame:
    in_ms = "iteration_time" in reading.source.header

    def ran(frame: pl.DataFrame) -> pl.DataFrame:
        frame = reading.without_run_time(reading.without_gpus(frame))
        if not in_ms:
            return _with_deadlines(frame.drop("priority", strict=False))
        times = [name for name in ("submit_s", "duration_s", "due_s") if name in frame.columns]
        frame = frame.with_columns(pl.col(times) / 1000.0)
        if "priority" in frame.columns:
            # Muri's numbers say who is pushed aside first; ours say who goes first.
            frame = frame.with_columns(-pl.col("priority"))
        return _with_deadlines(frame)

    frame = reading.values(_FIELDS, then=ran)
    if in_ms:
        reading.notes.append("times are taken for milliseconds, as in Muri's traces, whose iteration_time they have")
    return frame


def _with_deadlines(frame: pl.DataFrame) -> pl.DataFrame:
    """Deadlines that lie after the submission, counted from it; a job of best effort has none."""
    if "due_s" not in frame.columns:
        return frame.drop("best_effort", strict=False)
    left_s = pl.col("due_s") - pl.col("submit_s")
    counts = left_s > 0
    if "best_effort" in frame.columns:
        counts &= pl.col("best_effort").fill_null(0) == 0
    return frame.with_columns(pl.when(counts).then(left_s).alias("deadline_s")).drop(
        "due_s", "best_effort", strict=False
    )


TIRESIAS = Format(
    "tiresias",
    "job lists of Tiresias, Muri and ElasticFlow",
    ("job_id", "num_gpu|num_gpus", "submit_time|submission_time", "model_name", "duration", f"{ITERATIONS}|interval"),
    _read,
    without=("expect_time_list",),
)
