"""Chronus's Philly trace with deadlines: job_id, user, num_gpu, submit_time, model_name, duration, expect_time_list ...

All times are minutes. Checked on the published file: submissions span 20,151 = two weeks in minutes, and the work
offered is 1,097 busy GPUs (65,800 if only submissions were in seconds). Every `expect_time_list` is 1.1 to 5 times the
duration and most are smaller than `submit_time`: it counts from submission. Where it lists several times (a soft
deadline: the value of the job falls at each), the last is the deadline, after which the job is worth nothing. A
best-effort job has none.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, or_more, own

_MINUTE_S = 60.0


def _last_number(cells: pl.Series) -> pl.Series:
    """The last of one or more numbers, whatever stands between them."""
    return text(cells).str.extract(r"(\d+(?:\.\d+)?)[\s\])}]*$").cast(pl.Float64, strict=False)


_FIELDS = [
    own("job_id"),
    own("user", optional=True),
    or_more("num_gpu", "gpus", 0, "a whole number of GPUs", parse=whole),
    or_more("submit_time", "submit_s", 0, "a number of minutes"),
    Field(
        "duration", "duration_s", number, "a number of minutes above 0",
        pl.col("duration_s").is_finite() & (pl.col("duration_s") > 0),
    ),
    own("profile", "model_name", optional=True),
    Field("expect_time_list", "deadline_s", _last_number, "minutes above 0", pl.col("deadline_s") > 0, optional=True),
    Field("best_effort", "best_effort", whole, "0 or 1", pl.col("best_effort").is_in([0, 1])),
]  # fmt: skip


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.values(_FIELDS, then=reading.without_gpus)
    times = frame.with_columns(pl.col("submit_s", "duration_s", "deadline_s") * _MINUTE_S)
    return times.with_columns(pl.when(pl.col("best_effort") == 0).then("deadline_s"))


CHRONUS = Format(
    "chronus",
    "Chronus's Philly trace with deadlines",
    ("job_id", "num_gpu", "submit_time", "duration", "model_name", "expect_time_list", "best_effort"),
    _read,
)
