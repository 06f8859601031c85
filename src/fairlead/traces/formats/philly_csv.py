"""The Philly trace as one csv (petuum/adaptdl): timestamp, duration, num_gpus, gpu_time, cluster.

Durations are whole seconds, the file is in no order and ends in a blank line. Jobs have no names, so each is called by
its row, 0 being the first below the header; the virtual cluster stands for the user.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Reading, from_zero, moment, number, own, whole
from fairlead.traces.source import LINE

_FIELDS = [
    moment("timestamp"),
    own("duration_s", "duration", parse=number),
    own("gpus", "num_gpus", parse=whole),
    own("user", "cluster", optional=True),
]


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.values(reading.source.sheet(), _FIELDS)
    return from_zero(frame).with_columns((pl.col(LINE) - 2).cast(pl.String).alias("job_id"))


PHILLY_CSV = Format(
    "philly-csv", "Microsoft Philly as one csv", ("timestamp", "duration", "num_gpus", "cluster"), _read
)
