"""Fairlead's own format: a csv or parquet file with the columns of a trace, in any order.

`job_id, submit_s, gpus, duration_s` are needed; `profile, kind, min_gpus, max_gpus, memory_mib, gpu_frac, deadline_s,
priority, user, batch, group, cpus, ram_mib, vc` may be left out or empty; `model` is read for `profile`. `submit_s` is
kept as given.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.parsing import Parse, number, text, whole
from fairlead.traces.reading import Reading, own
from fairlead.traces.trace import REQUIRED, SCHEMA

_PARSE: dict[type[pl.DataType], Parse] = {pl.String: text, pl.Float64: number, pl.Int64: whole}
_FIELDS = [
    own(name, "profile|model" if name == "profile" else None, parse=_PARSE[dtype], optional=name not in REQUIRED)
    for name, dtype in SCHEMA.items()
]


def _read(reading: Reading) -> pl.DataFrame:
    header = reading.source.header
    known = {*SCHEMA, "model"} if "profile" not in header else set(SCHEMA)
    extra = [column for column in header if column not in known]
    if extra:
        reading.notes.append(f"ignored unknown columns: {', '.join(extra)}")
    return reading.values(_FIELDS)


FAIRLEAD = Format("fairlead", "our own: csv or parquet", REQUIRED, _read, kinds=("csv", "parquet"))
