"""Fairlead's own format: a csv or parquet file with the columns of a trace, in any order.

`job_id, submit_s, gpus, duration_s` are needed; `model, kind, min_gpus, max_gpus, memory_mib, gpu_frac, deadline_s,
priority, user` may be left out or empty. `submit_s` is kept as given.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.reading import Parse, Reading, number, own, text, whole
from fairlead.traces.trace import REQUIRED, SCHEMA

_PARSE: dict[type[pl.DataType], Parse] = {pl.String: text, pl.Float64: number, pl.Int64: whole}
_FIELDS = [own(name, parse=_PARSE[dtype], optional=name not in REQUIRED) for name, dtype in SCHEMA.items()]


def _read(reading: Reading) -> pl.DataFrame:
    extra = [column for column in reading.source.header if column not in SCHEMA]
    if extra:
        reading.notes.append(f"ignored unknown columns: {', '.join(extra)}")
    return reading.values(reading.source.sheet(), _FIELDS)


FAIRLEAD = Format("fairlead", "our own: csv or parquet", REQUIRED, _read, kinds=("csv", "parquet"))
