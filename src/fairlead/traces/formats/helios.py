"""SenseTime Helios (HeliosData, cluster_log.csv): job_id, user, vc, gpu_num, submit_time, duration, state ...

`duration` is the seconds a job ran; 0 for one that was cancelled before it started.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Reading, from_zero, moment, or_more, own, whole

LOG_FIELDS = [
    own("job_id"),
    own("user", optional=True),
    or_more("gpu_num", "gpus", 0, "a whole number of GPUs", parse=whole),
    moment("submit_time"),
    or_more("duration", "duration_s", 0, "a number of seconds"),
]
"""What Helios's and Acme's logs have in common; both come from the same accounting database."""


def read_log(reading: Reading) -> pl.DataFrame:
    """Jobs that used a GPU for some time, on a clock that starts with the first of them."""
    frame = reading.without_gpus(reading.values(reading.source.sheet(), LOG_FIELDS))
    return from_zero(reading.without_run_time(frame))


HELIOS = Format(
    "helios",
    "SenseTime Helios",
    ("job_id", "user", "vc", "gpu_num", "node_num", "state", "submit_time", "duration"),
    read_log,
)
