"""What the experiments share: processes on the GPU in one of three ways, a meter in a thread, windows of time.

Needs a GPU, PyTorch, torchvision and nvidia-ml-py; `PYTHONPATH=src` runs it from a checkout.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairlead.node import shim
from fairlead.node.gpu.meter import GpuSample
from fairlead.node.gpu.nvml import NvmlMeter
from fairlead.node.guard.control_page import ControlPage
from fairlead.node.mps.daemon import MpsDaemon

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORKLOADS = HERE / "workloads"


def word(name: str, *options: object) -> list[str]:
    """The command of a workload."""
    return [sys.executable, str(WORKLOADS / name), *map(str, options)]


def cores() -> list[set[int]]:
    """The CPUs of this machine by physical core."""
    found: dict[str, set[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(path.read_text().strip() if path.exists() else str(cpu), set()).add(cpu)
    return list(found.values())


def pinned(part: int, of: int, command: Sequence[str], parts: int = 1) -> list[str]:
    """The command on its own part of the cores, so that what is measured is the GPU and not the host's scheduler."""
    groups = cores()
    size = max(len(groups) // of, 1)
    mine = sorted(cpu for group in groups[part * size : (part + parts) * size] or groups for cpu in group)
    code = f"import os, sys; os.sched_setaffinity(0, {mine}); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", code, *command]


class Metering:
    """Reads the meter ten times a second, once a second with processes, and keeps everything."""

    def __init__(self, meter: NvmlMeter) -> None:
        self.meter = meter
        self.samples: list[GpuSample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(0.1):
            self.samples.append(self.meter.read(processes=turn % 10 == 0)[0])
            turn += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> list[GpuSample]:
        return [s for s in self.samples if begin_s <= s.at_s <= end_s]

    def summary(self, begin_s: float, end_s: float) -> dict[str, Any]:
        found = self.between(begin_s, end_s)
        first, last = found[0], found[-1]
        assert first.energy_mj is not None
        assert last.energy_mj is not None
        joules = (last.energy_mj - first.energy_mj) / 1000.0
        names = ("utilisation_frac", "sm_activity_frac", "sm_occupancy_frac", "dram_activity_frac", "sm_clock_mhz")
        means = {}
        for name in names:
            values = [v for s in found if (v := getattr(s, name)) is not None]
            means[name] = statistics.fmean(values) if values else None
        return {
            "seconds": last.at_s - first.at_s,
            "joules": joules,
            "watts": joules / (last.at_s - first.at_s),
            **means,
        }


class Stage:
    """One GPU, its MPS daemon, the shim, a folder for everything; ends what it started when left."""

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="fl-")
        self.folder = Path(self._made.name)
        self.meter = NvmlMeter()
        self.gpu = self.meter.gpus[0]
        self.mps = MpsDaemon(self.gpu.uuid, self.folder / "mps")
        self.library = shim.build(self.folder / "shim")
        self.running: list[subprocess.Popen[bytes]] = []
        self._count = 0

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *about: object) -> None:
        self.end_all()
        with contextlib.suppress(Exception):
            self.mps.stop()
        with contextlib.suppress(Exception):
            self.meter.close()
        self._made.cleanup()

    def path(self, name: str) -> Path:
        self._count += 1
        return self.folder / f"{self._count:03d}-{name}"

    def environment(
        self, *, mps: bool, priority: int | None = None, share_pct: float | None = None, shimmed: bool = False,
        page: Path | None = None, usage: Path | None = None, quota_bytes: int | None = None, log: Path | None = None,
    ) -> dict[str, str]:  # fmt: skip
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_MPS", "FAIRLEAD"))}
        env["CUDA_VISIBLE_DEVICES"] = self.gpu.uuid
        env["OMP_NUM_THREADS"] = "2"
        if mps:
            self.mps.start()
            env |= self.mps.client_env(share_pct=share_pct, priority=priority)
        if shimmed:
            env |= shim.environment(self.library, page=page, usage=usage, quota_bytes=quota_bytes, log=log)
        return env

    def start(self, command: Sequence[str], env: dict[str, str], name: str = "job") -> subprocess.Popen[bytes]:
        log = self.path(f"{name}.log")
        with log.open("wb") as out:
            made = subprocess.Popen(command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        made.log = log  # type: ignore[attr-defined]
        self.running.append(made)
        return made

    def end(self, *processes: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        for one in processes:
            if one.poll() is None:
                one.send_signal(number)
        for one in processes:
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait(10)
            if one in self.running:
                self.running.remove(one)

    def end_all(self) -> None:
        self.end(*self.running)


@contextlib.contextmanager
def beating(page: ControlPage) -> Iterator[None]:
    """A heartbeat for a page that no agent writes."""
    stopping = threading.Event()

    def beat() -> None:
        while not stopping.wait(0.5):
            page.heartbeat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def moments(path: Path) -> array.array[float]:
    """Of the steps' ends."""
    found = array.array("d")
    if path.exists():
        raw = path.read_bytes()
        found.frombytes(raw[: len(raw) // 8 * 8])
    return found


def steps(path: Path, begin_s: float, end_s: float) -> dict[str, float]:
    """Steps that ended within a window, and the mean and median time of one."""
    inside = [at_s for at_s in moments(path) if begin_s <= at_s <= end_s]
    gaps = [after - before for before, after in itertools.pairwise(inside)]
    if not gaps:
        return {"steps": 0, "step_s": math.nan, "median_s": math.nan, "mean_s": math.nan}
    mean_s = (inside[-1] - inside[0]) / len(gaps)
    # What fell into the window, the broken steps at both ends included.
    return {"steps": (end_s - begin_s) / mean_s, "mean_s": mean_s, "median_s": statistics.median(gaps)}


def training(path: Path) -> list[str]:
    """The saturating training, on the half of the cores that service and client do not use."""
    return pinned(1, 2, word("training.py", "--out", path))


def solo_step_s(stage: Stage, seconds: float) -> float:
    """Its step by itself, without MPS and shim: what the others are measured against."""
    path = stage.path("solo.steps")
    job = begin_training(stage, stage.environment(mps=False), path)
    begin_s = time.monotonic()
    time.sleep(seconds)
    found = steps(path, begin_s, time.monotonic() - 0.3)["mean_s"]
    stage.end(job)
    return found


def begin_training(stage: Stage, env: dict[str, str], path: Path) -> subprocess.Popen[bytes]:
    """Start it, and wait until it is under way."""
    made = stage.start(training(path), env, "training")
    wait_until(lambda: len(moments(path)) > 60 or made.poll() is not None, 90, "the training's first steps")
    return made


def wait_until(what: Any, timeout_s: float, why: str) -> None:
    until_s = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > until_s:
            raise SystemExit(f"waited {timeout_s:g} s in vain for {why}")
        time.sleep(0.05)


def percentile(values: Sequence[float], fraction: float) -> float:
    ordered = sorted(values)
    if not ordered:
        return math.nan
    at = fraction * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summarised(found: dict[str, Any], begin_s: float, end_s: float) -> dict[str, Any]:
    """Of the requests that were planned within a window."""
    both = zip(found["planned_s"], found["latency_s"], strict=True)
    inside = [latency for at_s, latency in both if begin_s <= at_s < end_s]
    got = [latency for latency in inside if latency is not None]
    out: dict[str, Any] = {"requests": len(inside), "failed": len(inside) - len(got)}
    for name, part in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
        out[name] = 1e3 * percentile(got, part)
    out["mean_ms"] = 1e3 * statistics.fmean(got) if got else math.nan
    return out


def latencies(path: Path) -> dict[str, Any]:
    """What a client wrote."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(folder: Path, name: str, value: Any, *, indent: int | None = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=indent, separators=None if indent else (",", ":"), default=str)
    (folder / name).write_text(text + "\n", encoding="utf-8")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = [heads, *[[f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(heads))]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), flush=True)
