"""Shanghai AI Lab's Acme (AcmeTrace, trace_seren.csv and trace_kalos.csv): like Helios's log, with a job `type`.

Timestamps carry their zone: `2023-03-01 09:12:34+08:00`. In Kalos `duration` counts from submission, the time in the
queue included, so a job's run time is `end_time` less `start_time` in both files; a job without a start never ran, and
one without an end still runs.
"""

from __future__ import annotations

import polars as pl

from fairlead.traces.formats.format import Format
from fairlead.traces.formats.helios import read_log
from fairlead.traces.reading import Reading


def _read(reading: Reading) -> pl.DataFrame:
    return read_log(reading, trusts_duration=False)


ACME = Format(
    "acme",
    "Acme, LLM development at Shanghai AI Lab",
    ("job_id", "gpu_num", "type", "state", "submit_time", "start_time|duration", "end_time|duration"),
    _read,
)
