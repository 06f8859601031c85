"""Meters: real through a stand-in library, recorded, and fake; unknown is None and never 0."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fairlead.errors import InputError
from fairlead.model.cluster import GPU_MODELS
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import GpuSample, Meter, MeterError, ProcessSample, model_name
from fairlead.node.gpu.nvml import NvmlMeter, load_library
from fairlead.node.gpu.recordings import RecordingEndedError, RecordingMeter, ReplayMeter
from tests.node.gpu.fake_nvml import GPU_IS_LOST, NOT_FOUND, FakeNvml, NVMLError, full


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_gpu_that_has_everything_is_read_whole() -> None:
    clock = Clock()
    meter = NvmlMeter(full(), clock)
    (info,) = meter.gpus
    assert (info.uuid, info.name, info.model) == ("GPU-1", "NVIDIA H200", "H200")
    assert (info.memory_total_mib, info.power_limit_w) == (141 * 1024, 700.0)
    assert (info.max_sm_clock_mhz, info.reference_sm_clock_mhz) == (1980, 1755)
    assert info.has_energy_counter
    assert info.has_gpm
    assert info.has_process_utilisation
    assert info.has_xid_events
    assert (meter.driver_version(), meter.cuda_version()) == ("580.65.06", "13.0")
    (first,) = meter.read()
    assert first == GpuSample(
        at_s=0.0,
        index=0,
        uuid="GPU-1",
        memory_used_mib=3 * 1024,
        power_w=123.4,
        energy_mj=987_654,
        utilisation_frac=0.42,
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=41,
        xids=(79,),
        processes=(ProcessSample(7, 0.4, 512.0), ProcessSample(8, None, None)),
    )
    clock.now_s = 1.0
    (second,) = meter.read(processes=False)
    assert (second.sm_activity_frac, second.sm_occupancy_frac) == (0.2, 0.3)
    assert second.dram_activity_frac is None, "a metric that was refused by itself is unknown"
    assert second.tensor_activity_frac is None
    assert (second.xids, second.processes) == ((), None)


def test_utilisation_per_process_holds_between_the_drivers_own_samples_and_then_goes() -> None:
    clock = Clock()
    meter = NvmlMeter(full(), clock)
    meter.read()
    clock.now_s = 1.5
    assert meter.read()[0].processes == (ProcessSample(7, 0.4, 512.0), ProcessSample(8, None, None))
    clock.now_s = 4.0
    assert meter.read()[0].processes == (ProcessSample(7, None, 512.0), ProcessSample(8, None, None))


def test_a_gpu_that_refuses_everything_is_unknown_not_zero() -> None:
    meter = NvmlMeter(FakeNvml())
    (sample,) = meter.read()
    known = {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
    assert {name for name, value in known.items() if value is not None} == {"at_s", "index", "uuid", "is_lost"}
    (info,) = meter.gpus
    assert info.memory_total_mib is None
    has = (info.has_energy_counter, info.has_gpm, info.has_process_utilisation, info.has_xid_events)
    assert not any(has)
    assert meter.driver_version() is None
    meter.close()


@pytest.mark.parametrize("name", sorted(full().answers))
def test_any_one_refusal_breaks_nothing_else(name: str) -> None:
    library = full()
    library.answers[name] = NVMLError(3)
    meter = NvmlMeter(library)
    for _ in range(3):
        meter.read()
    meter.close()


def test_no_processes_is_not_unknown() -> None:
    library = full()
    for code in (NOT_FOUND, 0):
        library.answers["nvmlDeviceGetProcessUtilization"] = NVMLError(code)
        library.answers["nvmlDeviceGetComputeRunningProcesses"] = []
        meter = NvmlMeter(library)
        assert meter.gpus[0].has_process_utilisation
        assert meter.read()[0].processes == ()


def test_a_lost_gpu_is_told() -> None:
    library = full()
    meter = NvmlMeter(library)
    library.answers["nvmlDeviceGetTemperature"] = NVMLError(GPU_IS_LOST)
    (sample,) = meter.read()
    assert sample.is_lost
    assert sample.power_w is None


def test_gpm_samples_are_given_back() -> None:
    library = full()
    meter = NvmlMeter(library)
    for _ in range(5):
        meter.read()
    meter.close()
    assert library.freed == 2


def test_without_the_library_or_the_driver_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MeterError, match="nvidia-ml-py"):
        load_library()
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(MeterError, match="not NVIDIA's"):
        load_library()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(nvmlInit=NVMLError(9)))  # type: ignore[arg-type]
    with pytest.raises(MeterError, match="driver does not answer: error 9"):
        load_library()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
    ],
)
def test_model_names(name: str, model: str) -> None:
    assert model_name(name) == model


def test_a_recording_gives_back_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    real = NvmlMeter(full())
    recorder: Meter = RecordingMeter(real, path)
    seen = [recorder.read() for _ in range(3)]
    infos = recorder.gpus
    recorder.close()
    replay = ReplayMeter(path)
    assert replay.gpus == infos
    assert not replay.is_fake
    assert list(replay.readings()) == seen
    with pytest.raises(RecordingEndedError):
        replay.read()


def test_a_recorder_that_was_killed_leaves_a_good_recording(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    recorder = RecordingMeter(FakeMeter(2), path)
    recorder.read()
    recorder.close()
    with path.open("a") as file:
        file.write('{"samples": [{"at')
    assert len(list(ReplayMeter(path).readings())) == 1
    assert ReplayMeter(path).is_fake


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no recording"),
        ("{}\n", "no recording"),
        ("[]\n", "line 1: expected an object"),
        ("{bad\n", "line 1"),
        ('{"format":"fairlead-gpu-samples","version":9,"gpus":[]}\n', "version 9"),
        ('{"format":"fairlead-gpu-samples","version":1,"gpus":[{}]}\n', "line 1"),
        ('{"format":"fairlead-gpu-samples","version":1,"gpus":[]}\n{"samples":[{}]}\n', "line 2: no reading"),
        ('{"format":"fairlead-gpu-samples","version":1,"gpus":[]}\n{}\n', "line 2: no reading"),
    ],
)
def test_a_file_that_is_no_recording_is_told_so(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        list(ReplayMeter(path).readings())
    with pytest.raises(InputError, match="No such file"):
        ReplayMeter(tmp_path / "absent")


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    recorder = RecordingMeter(FakeMeter(1), path)
    seen = recorder.read()
    recorder.close()
    head, line = path.read_text().splitlines()
    found = json.loads(line)
    found["samples"][0]["colour"] = "green"
    path.write_text(f"{head}\n{json.dumps(found)}\n")
    assert ReplayMeter(path).read() == seen


def test_fake_gpus_say_so_and_obey_the_power_equation() -> None:
    clock = Clock()
    meter: FakeMeter = FakeMeter(2, "V100", clock)
    assert meter.is_fake
    assert all(info.is_fake and "fake" in info.name and "FAKE" in info.uuid for info in meter.gpus)
    assert [info.model for info in meter.gpus] == ["V100", "V100"]
    meter.set_load(0, 7, 1.0)
    clock.now_s = 10.0
    busy, idle = meter.read()
    assert busy.energy_mj == pytest.approx(10_000 * GPU_MODELS["V100"].peak_w, abs=1)
    assert idle.energy_mj == pytest.approx(10_000 * GPU_MODELS["V100"].idle_w, abs=1)
    assert (busy.utilisation_frac, idle.utilisation_frac) == (1.0, 0.0)
    assert busy.pids == {7}
    meter.clear_load(0, 7)
    meter.raise_xid(1, 79)
    meter.set_clock_frac(0, 0.5)
    still, faulty = meter.read()
    assert still.power_w == GPU_MODELS["V100"].idle_w
    assert (faulty.xids, meter.read()[1].xids) == ((79,), ())


def test_fake_gpus_that_cannot_be() -> None:
    with pytest.raises(InputError, match="at least 1"):
        FakeMeter(0)
    with pytest.raises(InputError, match="did you mean") as caught:
        FakeMeter(1, "V10")
    assert "V100" in str(caught.value)
