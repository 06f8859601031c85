"""Traces of Gavel (stanford-futuredata/gavel) and Shockwave (uw-mad-dash/shockwave): rows between tabs, no header.

    job type, command, working directory, steps argument, needs data, steps, scale factor, [mode,] weight, SLO,
    [duration,] arrival

Shockwave has the parts in brackets. Gavel's older files lack the directory (9 cells), or end in arrival and scale
factor without weight and SLO (7 cells, 6 without the data flag). The scale factor is the GPUs. Where the duration is
not in the file it is the steps over the steps per second at that width (throughputs.py). An SLO is a multiple of the
duration, none where it is negative. Jobs have no names, so each is called by its row, 0 being the first.
"""

from __future__ import annotations

import polars as pl

from fairlead.errors import InputError
from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, or_more
from fairlead.traces.rows import LINE
from fairlead.traces.source import Source
from fairlead.traces.throughputs import Throughputs, find_throughputs, load_throughputs, profile_name

_SHORT = ("job_type", "command", "steps_arg")
_LONG = ("job_type", "command", "working_directory", "steps_arg")
LAYOUTS = {
    len(names): names
    for names in (
        (*_SHORT, "total_steps", "arrival_time", "scale_factor"),
        (*_SHORT, "needs_data_dir", "total_steps", "arrival_time", "scale_factor"),
        (*_SHORT, "needs_data_dir", "total_steps", "scale_factor", "priority_weight", "SLO", "arrival_time"),
        (*_LONG, "needs_data_dir", "total_steps", "scale_factor", "priority_weight", "SLO", "arrival_time"),
        (*_LONG, "needs_data_dir", "total_steps", "scale_factor", "mode", "priority_weight", "SLO", "arrival_time"),
        (
            *_LONG, "needs_data_dir", "total_steps", "scale_factor", "mode", "priority_weight", "SLO", "duration",
            "arrival_time",
        ),
    )
}  # fmt: skip
"""The columns of a file by how many there are."""
_FIELDS = [
    Field("job_type", "job_type", text, "a job type"),
    or_more("total_steps", "steps", 0, "a number of steps"),
    or_more("scale_factor", "gpus", 0, "a whole number of GPUs", parse=whole),
    or_more("arrival_time", "submit_s", 0, "a number of seconds"),
    or_more("duration", "duration_s", 0, "a number of seconds", optional=True),
    Field("SLO", "slo", number, "a multiple of the duration, or -1", optional=True),
    Field("priority_weight", "weight", number, "a number", optional=True),
    Field("mode", "mode", text, "a mode", optional=True),
]


def _is_gavel(source: Source) -> bool:
    """A first row with a number wherever a layout of that many cells has one."""
    names = LAYOUTS.get(len(source.header))
    if source.delimiter != "\t" or names is None:
        return False
    row = dict(zip(names, source.header, strict=True))
    return all(_is_number(row[name]) for name in ("total_steps", "scale_factor", "arrival_time"))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read(reading: Reading) -> pl.DataFrame:
    header = reading.source.header
    headless = "job_type" not in header
    names = LAYOUTS[len(header)] if headless else header
    frame = reading.without_gpus(reading.values(_FIELDS, names=names, has_header=not headless))
    frame = frame.with_columns((pl.col(LINE) - (1 if headless else 2)).cast(pl.String).alias("job_id"))
    table = _table(reading, needed="duration_s" not in frame.columns)
    if table is not None:
        reading.profiles = table.profiles()
        what = "speedups" if "duration_s" in frame.columns else "step rates and speedups"
        reading.notes.append(f"{what} are those of {table.gpu} in {table.path}")
    if "duration_s" not in frame.columns:
        assert table is not None
        frame = _timed(reading, frame, table)
    if "mode" in frame.columns and (changing := int((frame["mode"].str.to_lowercase() != "static").sum())):
        reading.notes.append(f"jobs that change their batch while they train: {changing:,} run as they begin")
    return reading.without_run_time(_as_trace(frame))


def _table(reading: Reading, *, needed: bool) -> Throughputs | None:
    """The table that the user names, else the one that lies near the trace."""
    chosen = reading.throughputs or find_throughputs(reading.source.path)
    if chosen is not None:
        return load_throughputs(chosen)
    if needed:
        raise InputError(
            f"{reading.source.name} counts steps, and how long a step takes is in another file",
            hint="give the table of step rates with --throughputs, for example simulation_throughputs.json of Gavel",
        )
    return None


def _timed(reading: Reading, frame: pl.DataFrame, table: Throughputs) -> pl.DataFrame:
    """With durations: steps over the rate of that job type at that width."""
    rates = pl.DataFrame(
        [(job_type, width, rate) for (job_type, width), rate in table.steps_per_s.items()],
        schema={"job_type": pl.String, "gpus": pl.Int64, "rate": pl.Float64},
        orient="row",
    )
    joined = frame.join(rates, on=["job_type", "gpus"], how="left", maintain_order="left")
    unknown = joined.filter(pl.col("rate").is_null())
    if unknown.height:
        row = unknown.row(0, named=True)
        expected = f"a job type with a rate on {row['gpus']} GPUs in {table.path}"
        reading.reject(
            unknown.height, (row[LINE], f", column job_type: found {row['job_type']!r}, expected {expected}")
        )
    timed = joined.filter(pl.col("rate").is_not_null())
    return timed.with_columns((pl.col("steps") / pl.col("rate")).alias("duration_s")).drop("rate")


def _as_trace(frame: pl.DataFrame) -> pl.DataFrame:
    names = {job_type: profile_name(job_type) for job_type in frame["job_type"].unique()}
    columns = [pl.col("job_type").replace_strict(names, return_dtype=pl.String).alias("profile")]
    if "slo" in frame.columns:
        columns.append(pl.when(pl.col("slo") > 0).then(pl.col("slo") * pl.col("duration_s")).alias("deadline_s"))
    if "weight" in frame.columns:
        columns.append(pl.col("weight").round().cast(pl.Int64).alias("priority"))
    return frame.with_columns(columns).drop("job_type", "steps", "slo", "weight", "mode", strict=False)


GAVEL = Format(
    "gavel",
    "traces of Gavel and Shockwave",
    ("job_type", "total_steps", "scale_factor", "arrival_time"),
    _read,
    without_header=_is_gavel,
    id_column="job_type",
)
