"""Alibaba's gpu-v2020 (PAI): pai_task_table.csv, with the header that its readme gives or, as published, without.

A job has several roles (ps, worker, ...), each a row with `inst_num` instances of `plan_gpu` percent of a GPU. The job
runs from its earliest start to its latest end on the GPUs of all of them. pai_job_table.csv has no GPUs in it.
"""

from __future__ import annotations

import polars as pl

from fairlead.errors import InputError
from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Reading, from_zero, or_more, own
from fairlead.traces.rows import LINE
from fairlead.traces.source import Source

TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_STATUSES = {"Terminated", "Failed", "Running", "Waiting", "Interrupted"}
_JOB_TABLE_WIDTH = 6
_FIELDS = [
    own("job_id", "job_name"),
    or_more("inst_num", "instances", 0, "a number of instances", optional=True),
    or_more("start_time", "submit_s", 0, "a number of seconds", optional=True),
    or_more("end_time", "end_s", 0, "a number of seconds", optional=True),
    or_more("plan_gpu", "percent", 0, "percent of a GPU", optional=True),
]


def _headless(source: Source) -> bool:
    """A first row with a status where the task table, or the job table, has it."""
    row = source.header
    is_job_table = len(row) == _JOB_TABLE_WIDTH and (row[3] in _STATUSES or "inst_id" in row)
    return is_job_table or (len(row) == len(TASK_COLUMNS) and row[3] in _STATUSES)


def _read(reading: Reading) -> pl.DataFrame:
    header = reading.source.header
    if len(header) == _JOB_TABLE_WIDTH:
        raise InputError(
            f"{reading.source.name} is Alibaba's pai_job_table, which says nothing of GPUs",
            hint="give pai_task_table.csv",
        )
    headless = "job_name" not in header
    rows = reading.values(_FIELDS, names=TASK_COLUMNS if headless else None, has_header=not headless)
    timed = reading.leave_out(
        rows, pl.col("submit_s").is_null() | pl.col("end_s").is_null(), "rows without a start or an end"
    )
    # The sum of percents, divided once, so that four quarters are exactly one GPU.
    asked = (pl.col("instances").fill_null(1.0) * pl.col("percent").fill_null(0.0)).sum() / 100.0
    jobs = timed.group_by("job_id", maintain_order=True).agg(
        pl.col(LINE).first(), asked.alias("asked"), pl.col("submit_s").min(), pl.col("end_s").max()
    )
    shaped = jobs.with_columns(
        pl.col("asked").ceil().cast(pl.Int64).alias("gpus"),
        pl.when(pl.col("asked") < 1).then("asked").otherwise(1.0).alias("gpu_frac"),
        (pl.col("end_s") - pl.col("submit_s")).alias("duration_s"),
    )
    return from_zero(reading.without_run_time(reading.without_gpus(shaped)))


ALIBABA_2020 = Format(
    "alibaba-2020",
    "Alibaba gpu-v2020, pai_task_table.csv",
    ("job_name", "inst_num", "start_time", "end_time", "plan_gpu"),
    _read,
    without_header=_headless,
    id_column="job_name",
)
