"""SenseTime Helios (HeliosData, cluster_log.csv): job_id, user, vc, gpu_num, submit_time, duration, state ...

A job ran from `start_time` to `end_time`; `duration` says the same where one of them is missing, 0 for a job that was
cancelled before it started.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import text, whole
from fairlead.traces.reading import Field, Reading, from_zero, moment, or_more, own

LOG_FIELDS = [
    own("job_id"),
    own("user", optional=True),
    own("vc", optional=True),
    or_more("gpu_num", "gpus", 0, "a whole number of GPUs", parse=whole, optional=True),
    Field("state", "state", text, "a state", optional=True),
    moment("submit_time"),
    moment("start_time", "start_s", optional=True),
    moment("end_time", "end_s", optional=True),
    or_more("duration", "duration_s", 0, "a number of seconds", optional=True),
]
"""What Helios's and Acme's logs have in common; both come from accounting databases of the same make."""
_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING")
_WAITING = ("PENDING", "QUEUED", "WAITING")
_ABSENT = {"state": pl.String, "start_s": pl.Float64, "end_s": pl.Float64, "duration_s": pl.Float64}


def read_log(reading: Reading, *, trusts_duration: bool = True) -> pl.DataFrame:
    """Jobs that used a GPU for some time, on a clock that starts with the first of them.

    Without `trusts_duration` that column counts only in a file that has no `start_time` or no `end_time`.
    """
    ran_s = pl.col("end_s") - pl.col("start_s")
    if trusts_duration or not {"start_time", "end_time"} <= set(reading.source.header):
        ran_s = pl.coalesce(ran_s, "duration_s")
    else:
        # Cancelled in the queue: it has an end and no start, and its duration is the time it waited.
        ran_s = pl.when(pl.col("start_s").is_null() & pl.col("end_s").is_not_null()).then(0.0).otherwise(ran_s)

    def ended(frame: pl.DataFrame) -> pl.DataFrame:
        absent = (pl.lit(None, dtype).alias(name) for name, dtype in _ABSENT.items() if name not in frame.columns)
        asked = frame.with_columns(pl.col("gpus").fill_null(0), *absent)
        timed = reading.without_gpus(asked).with_columns(ran_s.alias("duration_s"))
        state, no_end = pl.col("state").str.to_uppercase(), pl.col("duration_s").is_null()
        runs = state.is_in(_RUNNING).fill_null(False) | (no_end & pl.col("start_s").is_not_null())
        timed = reading.leave_out(timed, runs, "jobs that still run")
        timed = reading.leave_out(timed, state.is_in(_WAITING).fill_null(False) | no_end, "jobs that never started")
        return reading.without_run_time(timed).drop("state", "start_s", "end_s")

    return from_zero(reading.values(LOG_FIELDS, then=ended))


HELIOS = Format(
    "helios",
    "SenseTime Helios",
    ("job_id", "vc", "gpu_num", "state", "submit_time", "duration"),
    read_log,
    without=("jobname", "dataset", "type"),
)
