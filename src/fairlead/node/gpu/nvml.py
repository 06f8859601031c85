"""The GPUs of this machine through NVML. The only file that knows NVIDIA's library, and it is loaded on first use.

Any call may be refused: by an old driver, by a GPU that lacks the counter, in a container, without permission. Each
refusal makes one value unknown and nothing else.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

from fairlead.node.gpu.meter import GpuInfo, GpuSample, MeterError, ProcessSample

_MIB = 1024.0 * 1024.0
_HOLD_S = 2.0
"""The driver renews utilisation per process about once a second; between two of its samples the last one holds."""
_MOST_XIDS = 64
_GPM_FIELDS = {
    "sm_activity_frac": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_frac": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "dram_activity_frac": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "tensor_activity_frac": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "fp64_activity_frac": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32_activity_frac": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16_activity_frac": "NVML_GPM_METRIC_FP16_UTIL",
}


def load_library() -> Any:
    """NVIDIA's Python module, initialised; an error in words where there is no driver."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise MeterError(
            "GPUs cannot be read without the Python package nvidia-ml-py", hint="pip install 'fairlead[live]'"
        ) from None
    if not hasattr(library, "nvmlInit"):
        raise MeterError("the module pynvml is not NVIDIA's", hint="pip install --force-reinstall nvidia-ml-py")
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise MeterError(
            f"the NVIDIA driver does not answer: {error}", hint="is it installed and loaded? try nvidia-smi"
        ) from None
    return library


class NvmlMeter:
    """All GPUs that NVML shows."""

    is_fake = False

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = load_library() if library is None else library
        self._clock = clock
        count = self._ask("nvmlDeviceGetCount") or 0
        handles = [(i, self._ask("nvmlDeviceGetHandleByIndex", i)) for i in range(count)]
        self._events = self._ask("nvmlEventSetCreate")
        self._devices = [_Device(self, i, handle) for i, handle in handles if handle is not None]
        if self._events is not None and not any(d.info.has_xid_events for d in self._devices):
            self._ask("nvmlEventSetFree", self._events)
            self._events = None

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that NVML shows, by index."""
        return tuple(device.info for device in self._devices)

    def driver_version(self) -> str | None:
        """For example 580.65.06."""
        found = self._ask("nvmlSystemGetDriverVersion")
        return None if found is None else _text(found)

    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver serves, for example 13.0."""
        found = self._ask("nvmlSystemGetCudaDriverVersion_v2")
        return None if found is None else f"{found // 1000}.{found % 1000 // 10}"

    def read(self, *, processes: bool = True, brief: bool = False) -> tuple[GpuSample, ...]:
        """One sample of each GPU."""
        if brief:
            return tuple(device.read_brief(self._clock()) for device in self._devices)
        xids = self._new_xids()
        return tuple(device.read(self._clock(), xids, processes) for device in self._devices)

    def close(self) -> None:
        """Free what NVML holds for us."""
        for device in self._devices:
            device.free()
        self._devices = []
        if self._events is not None:
            self._ask("nvmlEventSetFree", self._events)
            self._events = None
        self._ask("nvmlShutdown")

    def _ask(self, name: str, *args: Any) -> Any:
        """What the library answers, or None where it refuses or has no such call."""
        call = getattr(self._nvml, name, None)
        if call is None:
            return None
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None

    def _constant(self, name: str) -> Any:
        return getattr(self._nvml, name, None)

    def _new_xids(self) -> dict[str, list[int]]:
        """Xids by UUID. An event names a device by a handle of its own, so it is asked for its UUID."""
        found: dict[str, list[int]] = {}
        if self._events is None:
            return found
        for _ in range(_MOST_XIDS):
            event = self._ask("nvmlEventSetWait_v2", self._events, 0)  # a timeout is a refusal: no more events
            if event is None:
                break
            uuid = self._ask("nvmlDeviceGetUUID", event.device)
            if uuid is not None and event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.setdefault(_text(uuid), []).append(int(event.eventData))
        return found


class _Device:
    """One GPU, and what was seen of it before."""

    def __init__(self, meter: NvmlMeter, index: int, handle: Any) -> None:
        self._meter = meter
        self._ask = meter._ask
        self._constant = meter._constant
        self._handle = handle
        self._earlier_sample: Any = None
        self._spare_sample: Any = None
        self._seen_us = 0
        self._sm_by_pid: dict[int, float] = {}
        self._sm_at_s = -math.inf
        self.info = self._describe(index)

    def read(self, at_s: float, xids: dict[str, list[int]], processes: bool) -> GpuSample:
        """A sample; empty but for `is_lost` where the GPU has fallen off the bus."""
        info, ask, handle = self.info, self._ask, self._handle
        if self._is_lost():
            return GpuSample(at_s, info.index, info.uuid, xids=tuple(xids.get(info.uuid, ())), is_lost=True)
        rates = ask("nvmlDeviceGetUtilizationRates", handle)
        power_mw = ask("nvmlDeviceGetPowerUsage", handle)
        memory = self._memory()
        return GpuSample(
            at_s=at_s,
            index=info.index,
            uuid=info.uuid,
            memory_used_mib=None if memory is None else memory.used / _MIB,
            power_w=None if power_mw is None else power_mw / 1000.0,
            energy_mj=ask("nvmlDeviceGetTotalEnergyConsumption", handle) if info.has_energy_counter else None,
            utilisation_frac=None if rates is None else rates.gpu / 100.0,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, self._constant("NVML_CLOCK_SM")),
            memory_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, self._constant("NVML_CLOCK_MEM")),
            temperature_c=ask("nvmlDeviceGetTemperature", handle, self._constant("NVML_TEMPERATURE_GPU")),
            xids=tuple(xids.get(info.uuid, ())) if info.has_xid_events else None,
            processes=self._processes(at_s) if processes else None,
            **self._activity(),
        )

    def read_brief(self, at_s: float) -> GpuSample:
        """A sample with clock and utilisation alone, which is quick."""
        rates = self._ask("nvmlDeviceGetUtilizationRates", self._handle)
        return GpuSample(
            at_s=at_s,
            index=self.info.index,
            uuid=self.info.uuid,
            utilisation_frac=None if rates is None else rates.gpu / 100.0,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self._handle, self._constant("NVML_CLOCK_SM")),
        )

    def free(self) -> None:
        """Give the GPM samples back."""
        for sample in (self._earlier_sample, self._spare_sample):
            if sample is not None:
                self._ask("nvmlGpmSampleFree", sample)
        self._earlier_sample = self._spare_sample = None

    def _describe(self, index: int) -> GpuInfo:
        ask, handle = self._ask, self._handle
        sm, memory_clock = self._constant("NVML_CLOCK_SM"), self._constant("NVML_CLOCK_MEM")
        max_sm = ask("nvmlDeviceGetMaxClockInfo", handle, sm)
        memory = self._memory()
        limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        gpm = ask("nvmlGpmQueryDeviceSupport", handle)
        return GpuInfo(
            index=index,
            uuid=_text(ask("nvmlDeviceGetUUID", handle) or f"unknown-{index}"),
            name=_text(ask("nvmlDeviceGetName", handle) or "unknown"),
            memory_total_mib=None if memory is None else memory.total / _MIB,
            max_sm_clock_mhz=max_sm,
            # What the user may have at most, which on some boards is below the chip's maximum.
            reference_sm_clock_mhz=ask("nvmlDeviceGetMaxCustomerBoostClock", handle, sm) or max_sm,
            max_memory_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, memory_clock),
            power_limit_w=None if limit_mw is None else limit_mw / 1000.0,
            has_energy_counter=ask("nvmlDeviceGetTotalEnergyConsumption", handle) is not None,
            has_gpm=gpm is not None and bool(gpm.isSupportedDevice),
            has_process_utilisation=self._utilisation_samples(0) is not None,
            has_xid_events=self._register_xids(),
        )

    def _register_xids(self) -> bool:
        events, wanted = self._meter._events, self._constant("nvmlEventTypeXidCriticalError")
        supported = self._ask("nvmlDeviceGetSupportedEventTypes", self._handle)
        if events is None or wanted is None or not (supported or 0) & wanted:
            return False
        try:
            self._meter._nvml.nvmlDeviceRegisterEvents(self._handle, wanted, events)
        except self._meter._nvml.NVMLError:
            return False
        return True

    def _is_lost(self) -> bool:
        lost = self._constant("NVML_ERROR_GPU_IS_LOST")
        try:
            self._meter._nvml.nvmlDeviceGetUUID(self._handle)
            self._meter._nvml.nvmlDeviceGetTemperature(self._handle, self._constant("NVML_TEMPERATURE_GPU"))
        except self._meter._nvml.NVMLError as error:
            return lost is not None and getattr(error, "value", None) == lost
        return False

    def _memory(self) -> Any:
        """Version 2 tells what the driver keeps for itself apart from what jobs use."""
        second = self._constant("nvmlMemory_v2")
        found = None if second is None else self._ask("nvmlDeviceGetMemoryInfo", self._handle, second)
        return self._ask("nvmlDeviceGetMemoryInfo", self._handle) if found is None else found

    def _activity(self) -> dict[str, Any]:
        """GPM compares two samples: this one and the one of the reading before."""
        if not self.info.has_gpm:
            return {}
        fresh = self._spare_sample or self._ask("nvmlGpmSampleAlloc")
        self._spare_sample = None
        if fresh is None or self._ask("nvmlGpmSampleGet", self._handle, fresh) is None:
            self._spare_sample = fresh
            return {}
        earlier, self._earlier_sample = self._earlier_sample, fresh
        if earlier is None:
            return {}
        self._spare_sample = earlier
        return self._compare(earlier, fresh)

    def _compare(self, earlier: Any, fresh: Any) -> dict[str, float]:
        asked = [(field, self._constant(metric)) for field, metric in _GPM_FIELDS.items()]
        wanted = [(field, metric) for field, metric in asked if metric is not None]
        query = self._meter._nvml.c_nvmlGpmMetricsGet_t()
        query.version = self._constant("NVML_GPM_METRICS_GET_VERSION")
        query.numMetrics = len(wanted)
        query.sample1, query.sample2 = earlier, fresh
        for i, (_, metric) in enumerate(wanted):
            query.metrics[i].metricId = metric
        if self._ask("nvmlGpmMetricsGet", query) is None:
            return {}
        got = [(field, query.metrics[i]) for i, (field, _) in enumerate(wanted)]
        return {field: one.value / 100.0 for field, one in got if one.nvmlReturn == 0 and math.isfinite(one.value)}

    def _utilisation_samples(self, since_us: int) -> list[Any] | None:
        """Samples per process since then; empty where there are none, None where the GPU cannot tell."""
        nvml = self._meter._nvml
        call = getattr(nvml, "nvmlDeviceGetProcessUtilization", None)
        if call is None:
            return None
        try:
            return list(call(self._handle, since_us))
        except nvml.NVMLError as error:
            # 'Not found', and an error that says success, both mean: nothing new.
            nothing = (self._constant("NVML_SUCCESS"), self._constant("NVML_ERROR_NOT_FOUND"))
            return [] if getattr(error, "value", None) in nothing else None

    def _processes(self, at_s: float) -> tuple[ProcessSample, ...] | None:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle)
        clients = self._ask("nvmlDeviceGetMPSComputeRunningProcesses", self._handle)  # older drivers tell them apart
        if self.info.has_process_utilisation:
            self._renew_utilisation(at_s)
        if running is None and clients is None and not self._sm_by_pid:
            return None
        memory: dict[int, float | None] = dict.fromkeys(self._sm_by_pid)
        for one in (*(clients or ()), *(running or ())):
            memory[one.pid] = None if one.usedGpuMemory is None else one.usedGpuMemory / _MIB
        return tuple(ProcessSample(pid, self._sm_by_pid.get(pid), mib) for pid, mib in sorted(memory.items()))

    def _renew_utilisation(self, at_s: float) -> None:
        fresh = self._utilisation_samples(self._seen_us) or []
        # Now and then the driver answers with stale rows and with values that are no percentage.
        good = [s for s in fresh if s.timeStamp > self._seen_us and 0 <= s.smUtil <= 100 and s.pid > 0]
        if good:
            newest_us = max(s.timeStamp for s in good)
            if self._seen_us == 0:  # the first answer holds minutes of history
                good = [s for s in good if s.timeStamp > newest_us - 1_000_000]
            self._seen_us = newest_us
            rows: dict[int, list[int]] = {}
            for s in good:
                rows.setdefault(s.pid, []).append(s.smUtil)
            self._sm_by_pid = {pid: sum(values) / len(values) / 100.0 for pid, values in rows.items()}
            self._sm_at_s = at_s
        elif at_s - self._sm_at_s > _HOLD_S:
            self._sm_by_pid = {}


def _text(found: str | bytes) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else found
