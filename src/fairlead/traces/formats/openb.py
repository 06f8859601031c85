"""Alibaba's gpu-v2023 pod list: name, num_gpu, gpu_milli, qos, creation_time, deletion_time, scheduled_time ...

Times are seconds since the trace's start. A pod runs from when it was scheduled (created, where it never was) until it
was deleted. Latency-sensitive pods (qos LS) are services. The column `memory_mib` is the host's memory, not the GPU's.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Field, Reading, number, or_more, own, text, whole

_FIELDS = [
    own("job_id", "name"),
    or_more("num_gpu", "gpus", 0, "a whole number of GPUs", parse=whole),
    Field(
        "gpu_milli", "milli", number, "a number from 1 to 1000 where num_gpu is 1 or more",
        (pl.col("milli") <= 1000) & ((pl.col("milli") > 0) | (pl.col("gpus") == 0)),
    ),
    Field("qos", "qos", text, "a name", optional=True),
    or_more("creation_time", "submit_s", 0, "a number of seconds"),
    or_more("deletion_time", "end_s", 0, "a number of seconds"),
    or_more("scheduled_time", "start_s", 0, "a number of seconds", optional=True),
]  # fmt: skip


def _read(reading: Reading) -> pl.DataFrame:
    sheet = reading.source.sheet()
    frame = reading.without_gpus(reading.values(sheet, _FIELDS), "pods")
    if "gpu_spec" in sheet.frame.columns and sheet.frame["gpu_spec"].null_count() < sheet.frame.height:
        reading.notes.append("ignored gpu_spec: which GPU models a pod accepts")
    jobs = frame.with_columns(
        (pl.col("end_s") - pl.coalesce("start_s", "submit_s")).alias("duration_s"),
        pl.when(pl.col("gpus") == 1).then(pl.col("milli") / 1000.0).otherwise(1.0).alias("gpu_frac"),
        pl.when(pl.col("qos") == "LS").then(pl.lit("service")).otherwise(pl.lit("training")).alias("kind"),
    )
    return reading.without_run_time(jobs, "pods")


OPENB = Format(
    "openb",
    "Alibaba gpu-v2023 pods",
    ("name", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time"),
    _read,
    id_column="name",
)
