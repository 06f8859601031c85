"""The formats that can be read, one file each. A new one is a file here and a line in `FORMATS`."""

from __future__ import annotations

from fairlead.traces.formats.acme import ACME
from fairlead.traces.formats.alibaba_2020 import ALIBABA_2020
from fairlead.traces.formats.chronus import CHRONUS
from fairlead.traces.formats.format import Format
from fairlead.traces.formats.helios import HELIOS
from fairlead.traces.formats.openb import OPENB
from fairlead.traces.formats.own import FAIRLEAD
from fairlead.traces.formats.philly_csv import PHILLY_CSV
from fairlead.traces.formats.philly_json import PHILLY_JSON
from fairlead.traces.formats.pollux import POLLUX
from fairlead.traces.formats.sia_philly import SIA_PHILLY

FORMATS: tuple[Format, ...] = (
    FAIRLEAD,
    PHILLY_CSV,
    PHILLY_JSON,
    SIA_PHILLY,
    POLLUX,
    CHRONUS,
    OPENB,
    HELIOS,
    ACME,
    ALIBABA_2020,
)
__all__ = ["FORMATS", "Format"]
