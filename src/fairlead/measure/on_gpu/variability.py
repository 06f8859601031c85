"""Every GPU of this machine through the kernel suites, one after the other, as runs that `import_runs` reads."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.errors import RunError
from fairlead.measure.on_gpu.kernels import SUITES
from fairlead.node.gpu.meter import GpuInfo

CLASSES = {"A": "compute", "B": "mixed", "C": "memory"}
"""From the most to the least sensitive to a slow clock, as `measure classes` finds them."""
_TIMEOUT_S = 900.0

Timed = Callable[[str, int], dict[str, list[float]]]


def time_gpu(uuid: str, repeats: int) -> dict[str, list[float]]:
    """One GPU's suites, in a process of its own."""
    command = [sys.executable, "-m", "fairlead.measure.on_gpu.kernels", "--repeats", str(repeats)]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(f"{uuid}: the kernels did not end within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()
        message = next((line for line in said if line.startswith("error: ")), said[-1]).removeprefix("error: ")
        hint = next((line.removeprefix("hint: ") for line in said if line.startswith("hint: ")), None)
        raise RunError(f"{uuid}: {message}", hint=hint)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measure_here(
    gpus: Sequence[GpuInfo], out: Path, repeats: int, *, node: str | None = None, timed: Timed = time_gpu
) -> Path:
    """Time every GPU; writes `OUT.runs.csv`, one row per repeat, and gives its path."""
    path = out.with_suffix(".runs.csv")
    name = node or socket.gethostname().split(".")[0]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("exp", "uuid", "node", "device", "perf"))
        for gpu in gpus:
            times = timed(gpu.uuid, repeats)
            for suite in SUITES:
                rows.writerows((suite, gpu.uuid, name, gpu.index, repr(seconds)) for seconds in times[suite])
    return path
