"""Pollux workloads (petuum/adaptdl): name, time, application, num_replicas, batch_size.

They have no durations: how long a job takes follows from its application and width. The table below is the seconds a
whole job takes on k T4 GPUs with the best batch size at each moment and no rescaling (docs/papers/boa.md), so the
batch that was asked for plays no part in it. Jobs are elastic.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from fairlead.model.profile import Profile, Table, profile_named
from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, own

WIDTHS = (1, 4, 8, 16, 64)
WHOLE_JOB_S = {
    "bert": (13542, 3312, 2460, 1324, 1014),
    "cifar10": (3723, 1104, 767, 437, 634),
    "deepspeech2": (16732, 4901, 3246, 1958, 1661),
    "yolov3": (33736, 13143, 15109, 8913, 7241),
    "imagenet": (532439, 151320, 81770, 42508, 15371),
    # Not in that table; from the same measurements. On one GPU: the ten epochs' progress over their goodput (45.9 s).
    # Wider: times the goodput model's step time at the largest batch (32,768, the best one already on one GPU, so that
    # efficiency cancels) over that on one GPU, with 4 GPUs in a node. Steps of 26 ms don't scale beyond one node.
    "ncf": (45.9, 28.2, 48.0, 54.0, 99.7),
}
MAX_GPUS = WIDTHS[-1]
_FIELDS = [
    own("job_id", "name"),
    own("submit_s", "time", parse=number),
    own("gpus", "num_replicas", parse=whole),
    own("batch", "batch_size", parse=whole),
    Field(
        "application", "profile", text, f"one of {', '.join(WHOLE_JOB_S)}", pl.col("profile").is_in(list(WHOLE_JOB_S))
    ),
]


@cache
def whole_job_s(application: str) -> tuple[float, ...]:
    """Seconds on 1, 2, ... 64 GPUs: the table, straight lines in log-log between its widths."""
    widths = np.arange(1, MAX_GPUS + 1)
    return tuple(np.exp(np.interp(np.log(widths), np.log(WIDTHS), np.log(WHOLE_JOB_S[application]))).tolist())


@cache
def profiles() -> dict[str, Profile]:
    """Its applications as profiles, with their measured speedups."""
    found = {}
    for name in WHOLE_JOB_S:
        seconds = whole_job_s(name)
        speedup = Table(tuple(map(float, range(1, MAX_GPUS + 1))), tuple(seconds[0] / s for s in seconds))
        found[name] = replace(profile_named(name), name=name, speedup=speedup)
    return found


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.values(_FIELDS)
    reading.profiles = profiles()
    reading.notes.append("durations and speedups are those measured on T4 GPUs at the best batch size")
    if (frame["profile"] == "ncf").any():
        reading.notes.append("ncf's times beyond one GPU come from the fitted goodput model")
    seconds = pl.DataFrame(
        [(name, k, s) for name in WHOLE_JOB_S for k, s in enumerate(whole_job_s(name), start=1)],
        schema={"profile": pl.String, "width": pl.Int64, "duration_s": pl.Float64},
        orient="row",
    )
    # Wider than was measured: no faster, as `Table` has it.
    wide = frame.with_columns(
        pl.min_horizontal("gpus", pl.lit(MAX_GPUS)).alias("width"),
        pl.lit(1).alias("min_gpus"),
        pl.max_horizontal("gpus", pl.lit(MAX_GPUS)).alias("max_gpus"),
    )
    return wide.join(seconds, on=["profile", "width"], how="left", maintain_order="left").drop("width")


POLLUX = Format(
    "pollux",
    "Pollux workloads",
    ("name", "time", "application", "num_replicas", "batch_size"),
    _read,
    id_column="name",
)
