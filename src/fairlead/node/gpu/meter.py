"""What is known of the GPUs of this machine at a moment: the interface of every meter, real, recorded or fake.

A value that the GPU, its driver or our permissions do not give is None, which reads 'unknown'; it is never 0.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from fairlead.errors import FairleadError
from fairlead.model.cluster import GPU_MODELS


class MeterError(FairleadError):
    """This machine's GPUs cannot be read; the message says why, the hint what to do."""


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """What does not change while the driver is loaded."""

    index: int
    uuid: str
    name: str
    """As the driver says it."""
    memory_total_mib: float | None = None
    max_sm_clock_mhz: float | None = None
    reference_sm_clock_mhz: float | None = None
    """What the SMs run at when nothing holds them back; clock loss is measured against it."""
    max_memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    has_energy_counter: bool = False
    has_gpm: bool = False
    has_process_utilisation: bool = False
    has_xid_events: bool = False
    is_fake: bool = False

    @property
    def model(self) -> str:
        """The name that clusters and profiles use: `H200`."""
        return model_name(self.name)


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process on one GPU."""

    pid: int
    sm_frac: float | None = None
    """Of the time, a kernel of it was running."""
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment."""

    at_s: float
    """On the meter's clock, which only runs forward; not the time of day."""
    index: int
    uuid: str
    memory_used_mib: float | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    """Millijoules since the driver was loaded."""
    utilisation_frac: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    # Through GPM, as means since the reading before; unknown at the first one.
    sm_activity_frac: float | None = None
    sm_occupancy_frac: float | None = None
    dram_activity_frac: float | None = None
    tensor_activity_frac: float | None = None
    fp64_activity_frac: float | None = None
    fp32_activity_frac: float | None = None
    fp16_activity_frac: float | None = None
    xids: tuple[int, ...] | None = None
    """Errors since the reading before; empty is none, None is unknown."""
    processes: tuple[ProcessSample, ...] | None = None
    """Empty is nobody, None is unknown or not asked for."""
    is_lost: bool = False
    """It has fallen off the bus; nothing else is known of it."""

    @property
    def pids(self) -> frozenset[int]:
        """Processes that are known to be on it."""
        return frozenset(p.pid for p in self.processes or ())


class Meter(Protocol):
    """Reads all GPUs of a machine. One reader per meter: counters 'since the reading before' are its own."""

    @property
    def is_fake(self) -> bool:
        """Whether these GPUs are made up."""
        ...

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs of this machine, by index."""
        ...

    def read(self, *, processes: bool = True, brief: bool = False) -> tuple[GpuSample, ...]:
        """One sample of each, by index.

        `brief` is SM clock and utilisation alone, for the ten times a second of the launch rate: on an H200 in a
        virtual machine a whole reading took 5 to 7 ms, and the driver's locks are everybody's.
        """
        ...

    def close(self) -> None:
        """Give the device back; nothing may be read after it."""
        ...


def model_name(name: str) -> str:
    """The driver's `Tesla V100-SXM2-32GB` is a V100; what is not among our models keeps its own name."""
    words = re.split(r"[\s\-_/]+", name)
    return next((word.upper() for word in words if word.upper() in GPU_MODELS), name.removeprefix("NVIDIA "))


def info_as_json(info: GpuInfo) -> dict[str, Any]:
    """What is known of a GPU, in plain types."""
    return asdict(info)


def sample_as_json(sample: GpuSample) -> dict[str, Any]:
    """Plain types; what is unknown is left out, so that a recording stays small."""
    return {key: value for key, value in asdict(sample).items() if value is not None and value is not False}


def info_from_json(found: dict[str, Any]) -> GpuInfo:
    """The reverse of `info_as_json`; fields of a later version are passed over."""
    return GpuInfo(**_known(GpuInfo, found))


def sample_from_json(found: dict[str, Any]) -> GpuSample:
    """A sample from what `sample_as_json` made."""
    values = _known(GpuSample, found)
    if values.get("xids") is not None:
        values["xids"] = tuple(values["xids"])
    if values.get("processes") is not None:
        values["processes"] = tuple(ProcessSample(**_known(ProcessSample, one)) for one in values["processes"])
    return GpuSample(**values)


def _known(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in found.items() if key in names}
