"""The raw Philly log (msr-fiddle/philly-traces, cluster_job_log): a JSON list of jobs with their attempts.

A job's duration is the sum of its attempts' run times; its GPUs are those of its first attempt that got any. Times are
`YYYY-MM-DD HH:MM:SS`, and null or the word None where something never happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import text, whole
from fairlead.traces.reading import Field, Reading, from_zero, moment, or_more, own
from fairlead.traces.rows import LINE, Sheet

_TEXT_KEYS = ("jobid", "user", "vc", "submitted_time")
_NEVER = (None, "None")
_FIELDS = [
    own("job_id", "jobid"),
    own("user", optional=True),
    own("vc", optional=True),
    moment("submitted_time"),
    or_more("gpus", "gpus", 0, "GPUs", parse=whole),
    Field("attempts", "wrong", text, "attempts with times like 2017-10-09 07:01:55", pl.col("wrong").is_null(), True),
    or_more("duration_s", "duration_s", 0, "a number of seconds"),
]


def _read(reading: Reading) -> pl.DataFrame:
    rows = [_row(number, entry) for number, entry in reading.source.entries]
    schema = {
        LINE: pl.Int64,
        "jobid": pl.String,
        "user": pl.String,
        "vc": pl.String,
        "submitted_time": pl.String,
        "gpus": pl.Int64,
        "duration_s": pl.Float64,
        "attempts": pl.String,
    }
    frame = reading.values_of([Sheet(pl.DataFrame(rows, schema=schema, orient="row"))], _FIELDS)
    started = reading.leave_out(frame, pl.col("gpus") == 0, "jobs that never started")
    return from_zero(reading.without_run_time(started))


def _row(number: int, entry: Any) -> tuple[object, ...]:
    """One job as text and numbers; `attempts` holds what was wrong with them."""
    if not isinstance(entry, dict):
        return (number, None, None, None, None, 0, 0.0, repr(entry))
    named = tuple(None if entry.get(k) is None else str(entry[k]) for k in _TEXT_KEYS)
    try:
        attempts = entry.get("attempts") or []
        run_s = sum(_run_times_s(attempts), 0.0)
        gpus = next((n for n in (_gpus(attempt) for attempt in attempts) if n), 0)
    except (ValueError, TypeError, AttributeError) as error:
        return (number, *named, 0, 0.0, str(error))
    return (number, *named, gpus, run_s, None)


def _run_times_s(attempts: list[dict[str, Any]]) -> Iterator[float]:
    for attempt in attempts:
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if start not in _NEVER and end not in _NEVER:
            run = datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))
            yield max(0.0, run.total_seconds())


def _gpus(attempt: dict[str, Any]) -> int:
    return sum(len(node.get("gpus") or ()) for node in attempt.get("detail") or ())


PHILLY_JSON = Format(
    "philly-json",
    "Microsoft Philly's raw cluster_job_log",
    ("jobid", "attempts", "submitted_time"),
    _read,
    kinds=("json",),
    id_column="jobid",
)
