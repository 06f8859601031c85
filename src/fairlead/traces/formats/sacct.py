"""Slurm's accounts, as `sacct --parsable2` prints them: cells between bars, a header, any columns in any order.

    sacct -a -X --parsable2 -S 2024-01-01 -o JobID,User,Account,Partition,Submit,Start,End,ElapsedRaw,State,AllocTRES

GPUs are `gres/gpu=N` of AllocTRES, or of ReqTRES where nothing was allocated; where only models are counted
(`gres/gpu:a100=4`), their sum. The run time is ElapsedRaw or Elapsed, from which Slurm leaves out what a job was
suspended; without either it is End less Start. Steps (`12.batch`) are parts of a job and left out; the tasks of an
array (`12_3`) and the parts of a heterogeneous job (`12+1`) are jobs. A job that was requeued stands in several rows
where sacct was asked for them (`-D`): their run times are added up, as the attempts of a Philly job are.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, span_s, text, timestamp_or_s
from fairlead.traces.reading import Field, Reading, from_zero, moment, or_more, own
from fairlead.traces.rows import LINE
from fairlead.traces.source import Source

_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT")
_WAITING = ("PENDING", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT")
_ABSENT = {
    "alloc_tres": pl.String, "req_tres": pl.String, "state": pl.String, "start_s": pl.Float64, "end_s": pl.Float64,
    "elapsed_raw_s": pl.Float64, "elapsed_s": pl.Float64,
}  # fmt: skip
_FIELDS = [
    own("job_id", "jobid|jobidraw"),
    own("user", "user|uid", optional=True),
    own("group", "account", optional=True),
    own("vc", "partition", optional=True),
    moment("submit", "submit_s", parse=timestamp_or_s, optional=True),
    moment("start", "start_s", parse=timestamp_or_s, optional=True),
    moment("end", "end_s", parse=timestamp_or_s, optional=True),
    or_more("elapsedraw", "elapsed_raw_s", 0, "a number of seconds", parse=number, optional=True),
    Field("elapsed", "elapsed_s", span_s, "a time like 1-02:03:04", optional=True),
    Field("state", "state", text, "a state", optional=True),
    Field("alloctres", "alloc_tres", text, "resources", optional=True),
    Field("reqtres", "req_tres", text, "resources", optional=True),
]
NEEDS = ("JobID|JobIDRaw", "Submit", "AllocTRES|ReqTRES", "ElapsedRaw|Elapsed|End")


def _gpus(tres: str) -> pl.Expr:
    """How many GPUs a list of resources counts; 0 where none, null where there is no list."""
    cells = pl.col(tres)
    in_all = cells.str.extract(r"(?:^|,)gres/gpu=(\d+)").cast(pl.Int64, strict=False)
    models = cells.str.extract_all(r"(?:^|,)gres/gpu:[^=,]+=\d+").list.eval(
        pl.element().str.extract(r"=(\d+)$").cast(pl.Int64, strict=False)
    )
    return pl.coalesce(in_all, pl.when(cells.is_not_null()).then(models.list.sum()))


def _read(reading: Reading) -> pl.DataFrame:
    names = [name.lower() or f"(column {number})" for number, name in enumerate(reading.source.header, start=1)]

    def ended(frame: pl.DataFrame) -> pl.DataFrame:
        jobs = frame.filter(~pl.col("job_id").str.contains(".", literal=True))
        absent = (pl.lit(None, dtype).alias(name) for name, dtype in _ABSENT.items() if name not in frame.columns)
        ran_s = pl.coalesce("elapsed_raw_s", "elapsed_s", pl.col("end_s") - pl.col("start_s"))
        jobs = jobs.with_columns(absent).with_columns(
            pl.coalesce(_gpus("alloc_tres"), _gpus("req_tres"), 0).alias("gpus"),
            ran_s.alias("duration_s"),
            pl.col("state").str.extract(r"^\s*(\w+)").str.to_uppercase(),
        )
        jobs = reading.without_gpus(jobs)
        never = pl.col("state").is_in(_WAITING) | pl.col("submit_s").is_null()
        jobs = reading.leave_out(jobs, never.fill_null(False), "jobs that never started")
        no_end = pl.col("end_s").is_null() & pl.lit("end" in names) & (pl.col("duration_s").fill_null(1.0) > 0)
        runs = pl.col("state").is_in(_RUNNING).fill_null(False) | (pl.col("state").is_null() & no_end)
        jobs = reading.leave_out(jobs, runs, "jobs that still run")
        jobs = reading.leave_out(jobs, pl.col("duration_s").is_null(), "jobs that never started")
        return reading.without_run_time(jobs).drop(*_ABSENT, strict=False)

    return from_zero(_runs_added_up(reading, reading.values(_FIELDS, then=ended, names=names)))


def _runs_added_up(reading: Reading, frame: pl.DataFrame) -> pl.DataFrame:
    """One row per job, where those that were requeued have several."""
    if frame["job_id"].n_unique() == frame.height:
        return frame
    last = [pl.col(name).last() for name in frame.columns if name not in ("job_id", LINE, "submit_s", "duration_s")]
    once = frame.group_by("job_id", maintain_order=True).agg(
        pl.col(LINE).first(), pl.col("submit_s").min(), pl.col("duration_s").sum(), *last, pl.len().alias("runs")
    )
    requeued = once.filter(pl.col("runs") > 1).height
    reading.notes.append(f"jobs that were requeued: {requeued:,}, each with its runs added up")
    return once.drop("runs")


def _has_all(source: Source) -> bool:
    """Whether the columns are there, however they are capitalised."""
    have = {name.lower() for name in source.header}
    return all(any(name.lower() in have for name in column.split("|")) for column in NEEDS)


SACCT = Format("sacct", "Slurm's accounts, sacct --parsable2", NEEDS, _read, without_header=_has_all, id_column="JobID")
