"""Shanghai AI Lab's Acme (AcmeTrace, trace_seren.csv and trace_kalos.csv): like Helios's log, with a job `type`.

Timestamps carry their zone: `2023-03-01 09:12:34+08:00`.
"""

from __future__ import annotations

from fairlead.traces.formats.format import Format
from fairlead.traces.formats.helios import read_log

ACME = Format(
    "acme",
    "Acme, LLM development at Shanghai AI Lab",
    ("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time", "duration"),
    read_log,
)
