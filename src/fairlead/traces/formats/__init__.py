"""The formats that can be read, one file each. A new one is a file here and a line in `FORMATS`."""

from __future__ import annotations

from fairlead.traces.formats.acme import ACME
from fairlead.traces.formats.alibaba_2020 import ALIBABA_2020
from fairlead.traces.formats.chronus import CHRONUS
from fairlead.traces.formats.format import Format
from fairlead.traces.formats.gavel import GAVEL
from fairlead.traces.formats.helios import HELIOS
from fairlead.traces.formats.kubernetes import KUBERNETES
from fairlead.traces.formats.lucid import LUCID
from fairlead.traces.formats.openb import OPENB
from fairlead.traces.formats.own import FAIRLEAD
from fairlead.traces.formats.philly_csv import PHILLY_CSV
from fairlead.traces.formats.philly_json import PHILLY_JSON
from fairlead.traces.formats.plain import plain
from fairlead.traces.formats.pollux import POLLUX
from fairlead.traces.formats.sacct import SACCT
from fairlead.traces.formats.sia_philly import SIA_PHILLY
from fairlead.traces.formats.tiresias import TIRESIAS

_NAMED: tuple[Format, ...] = (
    FAIRLEAD,
    PHILLY_CSV,
    PHILLY_JSON,
    SIA_PHILLY,
    POLLUX,
    CHRONUS,
    OPENB,
    HELIOS,
    ACME,
    LUCID,
    ALIBABA_2020,
    TIRESIAS,
    GAVEL,
    SACCT,
    KUBERNETES,
)
FORMATS: tuple[Format, ...] = (*_NAMED, plain(_NAMED))
"""The last takes what none of the others does."""
__all__ = ["FORMATS", "Format"]
