"""The Philly trace as one csv (petuum/adaptdl): timestamp, duration, num_gpus, gpu_time, cluster.

Durations are whole seconds, the file is in no order and ends in a blank line. Jobs have no names, so each is called by
its row, 0 being the first below the header; the virtual cluster stands for the user, too.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, whole
from fairlead.traces.reading import Reading, from_zero, moment, own
from fairlead.traces.rows import LINE

_FIELDS = [
    moment("timestamp"),
    own("duration_s", "duration", parse=number),
    own("gpus", "num_gpus", parse=whole),
    own("user", "cluster", optional=True),
]


def _read(reading: Reading) -> pl.DataFrame:
    named = reading.values(_FIELDS).with_columns((pl.col(LINE) - 2).cast(pl.String).alias("job_id"))
    return from_zero(named.with_columns(pl.col("user").alias("vc")))


PHILLY_CSV = Format(
    "philly-csv", "Microsoft Philly as one csv", ("timestamp", "duration", "num_gpus", "cluster"), _read
)
