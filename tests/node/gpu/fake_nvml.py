"""A stand-in for NVIDIA's Python module: what is not in `answers` is refused, as any call may be on a real GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


NOT_SUPPORTED, NOT_FOUND, GPU_IS_LOST, TIMEOUT = 3, 6, 15, 10


class FakeNvml:
    """One GPU. `answers` maps a call to its answer, a function of its arguments, or an error to raise."""

    NVMLError = NVMLError
    NVML_SUCCESS, NVML_ERROR_NOT_FOUND, NVML_ERROR_GPU_IS_LOST = 0, NOT_FOUND, GPU_IS_LOST
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 3, 10
    NVML_GPM_METRICS_GET_VERSION = 1
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "nvmlInit": True,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": lambda i: f"handle{i}",
            "nvmlDeviceGetUUID": "GPU-1",
            **answers,
        }
        self.freed = 0

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(nvmlReturn=0, value=0.0, metricId=0) for _ in range(16)])

    def nvmlGpmSampleFree(self, sample: Any) -> None:  # noqa: N802
        self.freed += 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            answer = self.answers.get(name, NVMLError(NOT_SUPPORTED))
            if isinstance(answer, Exception):
                raise answer
            return answer(*args) if callable(answer) else answer

        return call


def full() -> FakeNvml:
    """A GPU that has everything."""
    taken = iter(range(1000))
    events = [SimpleNamespace(device="h", eventType=8, eventData=79)]

    def wait(*_: Any) -> Any:
        if not events:
            raise NVMLError(TIMEOUT)
        return events.pop()

    def metrics(query: Any) -> Any:
        assert query.sample1["taken"] < query.sample2["taken"]
        for one in query.metrics[: query.numMetrics]:
            one.value = 10.0 * one.metricId
        query.metrics[query.numMetrics - 1].nvmlReturn = NOT_SUPPORTED
        return query

    return FakeNvml(
        nvmlSystemGetDriverVersion="580.65.06",
        nvmlSystemGetCudaDriverVersion_v2=13000,
        nvmlDeviceGetName=b"NVIDIA H200",
        nvmlDeviceGetMemoryInfo=SimpleNamespace(total=141 << 30, used=3 << 30),
        nvmlDeviceGetPowerUsage=123_400,
        nvmlDeviceGetEnforcedPowerLimit=700_000,
        nvmlDeviceGetTotalEnergyConsumption=987_654,
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=42),
        nvmlDeviceGetClockInfo=lambda _, kind: 1980 if kind == 1 else 3201,
        nvmlDeviceGetMaxClockInfo=lambda _, kind: 1980 if kind == 1 else 3201,
        nvmlDeviceGetMaxCustomerBoostClock=1755,
        nvmlDeviceGetTemperature=41,
        nvmlDeviceGetComputeRunningProcesses=[
            SimpleNamespace(pid=7, usedGpuMemory=512 << 20),
            SimpleNamespace(pid=8, usedGpuMemory=None),
        ],
        nvmlDeviceGetProcessUtilization=lambda _, since: [
            SimpleNamespace(pid=7, smUtil=30, timeStamp=5_000_000),
            SimpleNamespace(pid=7, smUtil=50, timeStamp=5_100_000),
            SimpleNamespace(pid=7, smUtil=4_000_000_000, timeStamp=5_200_000),
            SimpleNamespace(pid=7, smUtil=0, timeStamp=1_000_000),
        ],
        nvmlEventSetCreate="events",
        nvmlDeviceGetSupportedEventTypes=0xFF,
        nvmlDeviceRegisterEvents=None,
        nvmlEventSetWait_v2=wait,
        nvmlEventSetFree=None,
        nvmlShutdown=None,
        nvmlGpmQueryDeviceSupport=SimpleNamespace(isSupportedDevice=1),
        nvmlGpmSampleAlloc=dict,
        nvmlGpmSampleGet=lambda _, sample: sample.update(taken=next(taken)) or sample,
        nvmlGpmMetricsGet=metrics,
    )
