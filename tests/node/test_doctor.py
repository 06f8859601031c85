"""What the doctor makes of GPUs that have much, little or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.node.doctor import Finding, examine
from fairlead.node.gpu.nvml import NvmlMeter
from tests.node.gpu.fake_nvml import FakeNvml, full
from tests.node.mps import fake_mps


def findings(library: FakeNvml, mps_binary: str = "no-such-program", try_mps: bool = True) -> dict[str, Finding]:
    found = examine(open_meter=lambda: NvmlMeter(library), mps_binary=mps_binary, try_mps=try_mps)
    return {one.name: one for one in found.findings}


def test_a_gpu_with_everything() -> None:
    found = findings(full())
    assert found["driver"].found == "580.65.06, CUDA 13.0"
    for name in ("GPUs", "energy counter", "GPM", "utilisation per process", "Xid events"):
        assert found[name].works
        assert not found[name].costs


def test_a_gpu_with_nothing_says_what_that_costs() -> None:
    found = findings(FakeNvml())
    for name in ("energy counter", "GPM", "utilisation per process", "Xid events"):
        assert found[name].works is False
        assert found[name].costs


def test_no_gpus() -> None:
    assert findings(FakeNvml(nvmlDeviceGetCount=0))["GPUs"].found == "the driver shows none"


def test_an_mps_daemon_is_really_started(tmp_path: Path) -> None:
    program = str(fake_mps.install(tmp_path / "bin"))
    assert findings(full(), program)["MPS"].works
    assert findings(full(), program, try_mps=False)["MPS"].works is None
    assert findings(FakeNvml(nvmlDeviceGetCount=0), program)["MPS"].works is None
    (tmp_path / "bin" / "broken").touch()
    broken = findings(full(), program)["MPS"]
    assert broken.works is False
    assert "internal error" in broken.found
    assert broken.costs


def test_jobs_can_be_run_here() -> None:
    assert findings(full())["jobs"].works


def test_jobs_that_cannot_be_run_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlead.node.process import launcher

    monkeypatch.setattr(launcher, "_SUPERVISOR", "raise SystemExit(1)")
    assert findings(full())["jobs"].works is False
