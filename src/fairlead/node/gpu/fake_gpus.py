"""GPUs that are made up, for machines without any: `--fake-gpus N`.

They obey the power equation of `model/`, so watts, joules and clocks follow from the load that they are told of. Every
name says that they are fake.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.errors import InputError, did_you_mean
from fairlead.model.cluster import GPU_MODELS
from fairlead.model.power import gpu_power_w
from fairlead.node.gpu.meter import GpuInfo, GpuSample, ProcessSample

FAKE_UUID = "FAKE-GPU-"
_SM_CLOCK_MHZ, _MEMORY_CLOCK_MHZ, _IDLE_CLOCK_MHZ = 1980.0, 3201.0, 345.0
_AMBIENT_C, _RISE_C = 30.0, 45.0
CONTEXT_MIB = 500.0


@dataclass(frozen=True, slots=True)
class _Load:
    sm_frac: float
    memory_mib: float


@dataclass(slots=True)
class _FakeGpu:
    info: GpuInfo
    loads: dict[int, _Load] = field(default_factory=dict)
    xids: list[int] = field(default_factory=list)
    energy_mj: float = 0.0
    metered_s: float = 0.0
    clock_frac: float = 1.0


class FakeMeter:
    """N GPUs of one model; who is on them is told with `set_load`."""

    is_fake = True

    def __init__(
        self, count: int, model: str = "H200", clock: Callable[[], float] = time.monotonic, *, first: int = 0
    ) -> None:
        """`first` is where their UUIDs begin, so that those of several made-up machines differ."""
        if count < 1:
            raise InputError(f"--fake-gpus {count}: expected at least 1")
        if model not in GPU_MODELS:
            raise InputError(f"no GPU model {model!r}", hint=did_you_mean(model, GPU_MODELS))
        self._model = GPU_MODELS[model]
        self._clock = clock
        self._is_asleep = False
        now_s = clock()
        self._gpus = [_FakeGpu(self._info(i, first + i), metered_s=now_s) for i in range(count)]

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The made-up GPUs, by index."""
        return tuple(gpu.info for gpu in self._gpus)

    def set_load(self, index: int, pid: int, sm_frac: float, memory_mib: float = CONTEXT_MIB) -> None:
        """From now on this process keeps that part of the GPU busy."""
        self._advance(self._gpus[index])
        self._gpus[index].loads[pid] = _Load(min(max(sm_frac, 0.0), 1.0), memory_mib)

    def clear_load(self, index: int, pid: int) -> None:
        """The process has left the GPU, or never was there."""
        self._advance(self._gpus[index])
        self._gpus[index].loads.pop(pid, None)

    def set_asleep(self, is_asleep: bool) -> None:
        """The machine sleeps: its GPUs draw nothing, what it draws itself is a matter of the whole node."""
        for gpu in self._gpus:
            self._advance(gpu)
        self._is_asleep = is_asleep

    def set_clock_frac(self, index: int, clock_frac: float) -> None:
        """What is left of the SM clock, as if power or heat held it back."""
        self._gpus[index].clock_frac = clock_frac

    def raise_xid(self, index: int, xid: int) -> None:
        """An error that the next reading shows."""
        self._gpus[index].xids.append(xid)

    def read(self, *, processes: bool = True, brief: bool = False) -> tuple[GpuSample, ...]:
        """A sample of each made-up GPU, by the loads that were set."""
        if brief:
            return tuple(self._brief(gpu) for gpu in self._gpus)
        return tuple(self._sample(gpu, processes) for gpu in self._gpus)

    def close(self) -> None:
        """Do nothing: no device is held."""

    def _info(self, index: int, number: int) -> GpuInfo:
        return GpuInfo(
            index=index,
            uuid=f"{FAKE_UUID}{number:04d}",
            name=f"fake {self._model.name}",
            memory_total_mib=self._model.memory_mib,
            max_sm_clock_mhz=_SM_CLOCK_MHZ,
            reference_sm_clock_mhz=_SM_CLOCK_MHZ,
            max_memory_clock_mhz=_MEMORY_CLOCK_MHZ,
            power_limit_w=self._model.peak_w,
            has_energy_counter=True,
            has_gpm=True,
            has_process_utilisation=True,
            has_xid_events=True,
            is_fake=True,
        )

    def _power_w(self, gpu: _FakeGpu) -> float:
        if self._is_asleep:
            return 0.0
        return gpu_power_w(self._model, _busy_frac(gpu)) if gpu.loads else self._model.idle_w

    def _advance(self, gpu: _FakeGpu) -> float:
        now_s = self._clock()
        gpu.energy_mj += 1000.0 * self._power_w(gpu) * (now_s - gpu.metered_s)
        gpu.metered_s = now_s
        return now_s

    def _brief(self, gpu: _FakeGpu) -> GpuSample:
        clock_mhz = _SM_CLOCK_MHZ * gpu.clock_frac if gpu.loads else _IDLE_CLOCK_MHZ
        return GpuSample(
            self._advance(gpu),
            gpu.info.index,
            gpu.info.uuid,
            utilisation_frac=_busy_frac(gpu),
            sm_clock_mhz=clock_mhz,
        )

    def _sample(self, gpu: _FakeGpu, processes: bool) -> GpuSample:
        now_s = self._advance(gpu)
        busy = _busy_frac(gpu)
        xids, gpu.xids = tuple(gpu.xids), []
        return GpuSample(
            at_s=now_s,
            index=gpu.info.index,
            uuid=gpu.info.uuid,
            memory_used_mib=sum(load.memory_mib for load in gpu.loads.values()),
            power_w=self._power_w(gpu),
            energy_mj=int(gpu.energy_mj),
            utilisation_frac=busy,
            sm_clock_mhz=_SM_CLOCK_MHZ * gpu.clock_frac if gpu.loads else _IDLE_CLOCK_MHZ,
            memory_clock_mhz=_MEMORY_CLOCK_MHZ,
            temperature_c=_AMBIENT_C + _RISE_C * busy,
            sm_activity_frac=0.8 * busy,
            sm_occupancy_frac=0.4 * busy,
            dram_activity_frac=0.3 * busy,
            xids=xids,
            processes=_processes(gpu) if processes else None,
        )


def _busy_frac(gpu: _FakeGpu) -> float:
    return min(sum(load.sm_frac for load in gpu.loads.values()), 1.0)


def _processes(gpu: _FakeGpu) -> tuple[ProcessSample, ...]:
    return tuple(ProcessSample(pid, load.sm_frac, load.memory_mib) for pid, load in sorted(gpu.loads.items()))
