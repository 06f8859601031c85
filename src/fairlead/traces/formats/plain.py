"""A csv with one row per job under names that explain themselves: job_id, num_gpus, submit_time, duration, ...

For files of nobody in particular (and microsoft/elasticflow-traces' raw ones): submissions are seconds or dates,
durations are seconds. It is taken only where no other format is, and says so in a note. Where a file has both
`start_time` and `end_time`, a job's run time is what lies between them.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import timestamp_or_s, whole
from fairlead.traces.reading import Reading, moment, or_more, own
from fairlead.traces.source import Source

_ID = "job_id|jobid|job|id|name|job_name"
_GPUS = "num_gpus|num_gpu|gpus|gpu_num|n_gpus|ngpus|gpu_count"
_SUBMIT = "submit_time|submission_time|submit_s|submit|arrival_time|arrival|timestamp"
_DURATION = "duration|duration_s|runtime|run_time|runtime_s|run_time_s"
_FIELDS = [
    own("job_id", _ID),
    or_more(_GPUS, "gpus", 0, "a whole number of GPUs", parse=whole),
    moment(_SUBMIT, parse=timestamp_or_s),
    or_more(_DURATION, "duration_s", 0, "a number of seconds"),
    moment("start_time", "start_s", parse=timestamp_or_s, optional=True),
    moment("end_time", "end_s", parse=timestamp_or_s, optional=True),
    own("profile", "model|model_name", optional=True),
    own("user", "user", optional=True),
    own("vc", "vc|partition", optional=True),
]


def plain(others: tuple[Format, ...]) -> Format:
    """The format of all that none of the others takes."""

    def against(source: Source) -> str | None:
        taker = next((other for other in others if other.recognises(source)), None)
        return None if taker is None else f"it is {taker.name}"

    def read(reading: Reading) -> pl.DataFrame:
        frame = reading.values(_FIELDS, then=lambda rows: _ran(reading, rows))
        source = reading.source
        column = next(name for name in _DURATION.split("|") if name in source.header)
        nearly = [f"{o.name}, but {why}" for o in others if o.fits(source) and (why := o.why_not(source))]
        nearest = f" (nearest is {nearly[0]})" if nearly else ""
        reading.notes.append(f"{column} is taken for seconds, since no other format fits{nearest}")
        return reading.on_its_clock(frame, _SUBMIT)

    return Format("plain", "any csv of jobs in seconds", (_ID, _GPUS, _SUBMIT, _DURATION), read, against=against)


def _ran(reading: Reading, frame: pl.DataFrame) -> pl.DataFrame:
    frame = reading.without_gpus(frame)
    if {"start_s", "end_s"} <= set(frame.columns):
        run_s = pl.coalesce(pl.col("end_s") - pl.col("start_s"), "duration_s")
        frame = frame.with_columns(run_s.alias("duration_s"))
    return reading.without_run_time(frame).drop("start_s", "end_s", strict=False)
