"""Lucid's logs (S-Lab-System-Group/Lucid, cluster_log.csv and cluster_full_log.csv): job_id, user, vc, jobname, ...

They are Helios's and Philly's, cut to some weeks, with a `jobname` and, in the full ones, what each job trains
(`model`, `dataset`, `batchsize`, `amp`) and the memory that it was measured to use (`gmem`, in MiB). Philly's have no
`job_id`: there the `jobname` is it. `submit_time` is a date or a number of seconds.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, timestamp_or_s, whole
from fairlead.traces.reading import Reading, moment, or_more, own

_FIELDS = [
    own("job_id", "job_id|jobname"),
    own("user", optional=True),
    own("vc", optional=True),
    own("profile", "model", optional=True),
    own("memory_mib", "gmem", parse=number, optional=True),
    or_more("gpu_num", "gpus", 0, "a whole number of GPUs", parse=whole),
    moment("submit_time", parse=timestamp_or_s),
    or_more("duration", "duration_s", 0, "a number of seconds"),
]


def _read(reading: Reading) -> pl.DataFrame:
    def ran(frame: pl.DataFrame) -> pl.DataFrame:
        return reading.without_run_time(reading.without_gpus(frame))

    return reading.on_its_clock(reading.values(_FIELDS, then=ran), "submit_time")


LUCID = Format(
    "lucid",
    "Lucid's logs of Helios and Philly",
    ("job_id|jobname", "vc", "gpu_num", "submit_time", "duration", "jobname|dataset"),
    _read,
    without=("type",),
)
