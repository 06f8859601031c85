"""Sia-Philly traces as PAL's artifact has them: job_id, num_gpus, submit_time, duration, model.

`duration` is an iteration count there, which no column says: other people write seconds under the same header. So only
a file with all the marks of the artifact's is taken for one: exactly these columns in this order, jobs that are counted
from 0, the artifact's six models, and whole counts that its tools wrote as fractions (`1481.0`). All else with such a
header is read as seconds (plain.py), unless the user names this format.

The traces are meant to be run with arrivals that go on after the last row, so that the cluster stays loaded while the
measured jobs finish: see `Wrap`.
"""

from __future__ import annotations

import re

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, own
from fairlead.traces.source import Source
from fairlead.traces.trace import Wrap

# docs/papers/pal.md, "Trace detail": the artifact's seconds per iteration on a median GPU.
SECONDS_PER_ITERATION = {
    "BERT": 0.179,
    "DCGAN": 0.0469266931,
    "GPT2": 3.5714,
    "PointNet": 0.28125,
    "resnet50": 0.17540429367763434,
    "vgg19": 0.300610341,
}
COLUMNS = ("job_id", "num_gpus", "submit_time", "duration", "model")
_COUNT = re.compile(r"\d+(\.0)?")
_WRAP = Wrap(rate_per_h=2.0, seed=1)
_FIELDS = [
    own("job_id"),
    own("gpus", "num_gpus", parse=whole),
    own("submit_s", "submit_time", parse=number),
    Field(
        "duration", "iterations", number, "a number of iterations above 0",
        pl.col("iterations").is_finite() & (pl.col("iterations") > 0),
    ),
    Field(
        "model", "profile", text, f"one of {', '.join(SECONDS_PER_ITERATION)}",
        pl.col("profile").is_in(list(SECONDS_PER_ITERATION)),
    ),
]  # fmt: skip


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.values(_FIELDS)
    reading.wrap = _WRAP
    per_iteration_s = pl.col("profile").replace_strict(SECONDS_PER_ITERATION, return_dtype=pl.Float64)
    return frame.with_columns((pl.col("iterations") * per_iteration_s).alias("duration_s"))


def _against(source: Source) -> str | None:
    if source.header != COLUMNS:
        return f"its columns are {', '.join(COLUMNS)}, in this order and no others"
    if source.sampled("job_id") != [str(number) for number in range(len(source.sample))]:
        return "its jobs are counted 0, 1, 2"
    if others := set(source.sampled("model")) - set(SECONDS_PER_ITERATION):
        return f"it has no model {min(others)!r}"
    counts = source.sampled("duration")
    if any(_COUNT.fullmatch(cell) is None for cell in counts) or not any(cell.endswith(".0") for cell in counts):
        return f"its iteration counts are whole and written like 1481.0, found {counts[0]!r}"
    return None


SIA_PHILLY = Format("sia-philly", "Sia-Philly traces of PAL's artifact", COLUMNS, _read, against=_against)
