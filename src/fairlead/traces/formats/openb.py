"""Alibaba's gpu-v2023 pod list: name, cpu_milli, memory_mib, num_gpu, gpu_milli, qos, creation_time, deletion_time ...

Times are seconds since the trace's start. A pod runs from when it was scheduled (created, where it never was) until it
was deleted. Latency-sensitive pods (qos LS) are services. `cpu_milli` and `memory_mib` are of the host; they count on
a cluster that says what its nodes have.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, or_more, own

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
    or_more("cpu_milli", "cpu_milli", 0, "thousandths of a CPU core", optional=True),
    or_more("memory_mib", "ram_mib", 0, "a number of MiB", optional=True),
    Field("gpu_spec", "gpu_spec", text, "GPU models", optional=True),
]  # fmt: skip


def _read(reading: Reading) -> pl.DataFrame:
    frame = reading.without_gpus(reading.values(_FIELDS), "pods")
    if "gpu_spec" in frame.columns and frame["gpu_spec"].null_count() < frame.height:
        reading.notes.append("ignored gpu_spec: which GPU models a pod accepts")
    if "cpu_milli" in frame.columns:
        frame = frame.with_columns((pl.col("cpu_milli") / 1000.0).alias("cpus"))
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
