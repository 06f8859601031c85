"""Sia-Philly traces as PAL's artifact has them: job_id, num_gpus, submit_time, duration, model.

`duration` is an iteration count there. The traces are meant to be run with arrivals that go on after the last row, so
that the cluster stays loaded while the measured jobs finish: see `Wrap`.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Field, Reading, number, own, text, whole
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
        "model", "model", text, f"one of {', '.join(SECONDS_PER_ITERATION)}",
        pl.col("model").is_in(list(SECONDS_PER_ITERATION)),
    ),
]  # fmt: skip


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.values(reading.source.sheet(), _FIELDS)
    reading.wrap = _WRAP
    per_iteration_s = pl.col("model").replace_strict(SECONDS_PER_ITERATION, return_dtype=pl.Float64)
    return frame.with_columns((pl.col("iterations") * per_iteration_s).alias("duration_s"))


SIA_PHILLY = Format(
    "sia-philly",
    "Sia-Philly traces of PAL's artifact",
    ("job_id", "num_gpus", "submit_time", "duration", "model"),
    _read,
)
