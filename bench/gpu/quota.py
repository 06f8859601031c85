"""Every way to take device memory, past a quota, beside a service; and what the shim costs.

PYTHONPATH=src python bench/gpu/quota.py --out bench/gpu/results
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from common import Stage, beating, latencies, moments, pinned, steps, summarised, table, wait_until, word, write

from fairlead.node.guard.control_page import ControlPage, UsagePage

QUOTA = 4 << 30
PATHS = (
    ("torch", "torch", {}),
    ("torch, expandable segments", "torch", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("torch, cudaMallocAsync", "torch", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    ("cuMemAlloc", "alloc", {}),
    ("cuMemAllocPitch", "pitch", {}),
    ("cuMemAllocManaged", "managed", {}),
    ("cuMemAllocAsync", "ordered", {}),
    ("cuMemCreate", "created", {}),
    ("cuArrayCreate", "array", {}),
)


def paths(stage: Stage) -> dict[str, Any]:
    """Each under MPS, with a service as the neighbour."""
    socket = stage.folder / "service.sock"
    service = stage.start(
        pinned(0, 4, word("service.py", "--socket", socket)), stage.environment(mps=True, priority=0), "service"
    )
    wait_until(socket.exists, 90, "the service")
    answers, stop = stage.path("client.json"), stage.path("stop")
    command = word("client.py", "--socket", socket, "--load", "1:30", "--stop-file", stop, "--out", answers)
    client = stage.start(pinned(1, 4, command), stage.environment(mps=False), "client")
    time.sleep(1.0)
    begun = []
    for name, path, extra in PATHS:  # all at once: each process has a quota of its own
        env = stage.environment(mps=True, priority=1, shimmed=True, quota_bytes=QUOTA) | extra
        command = pinned(1, 4, word("quota.py", path), parts=3)
        begun.append(
            (name, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        )
    rows = []
    for name, process in begun:
        out, complaints = process.communicate(timeout=90)
        try:
            found = json.loads(out)
        except ValueError:
            found = {"taken_bytes": None, "said": (out + complaints)[-300:]}
        said = str(found["said"])
        is_refused = found["taken_bytes"] is not None and "out of memory" in said.lower()
        within = found["taken_bytes"] is not None and found["taken_bytes"] <= QUOTA
        rows.append({"path": name, **found, "is_refused": is_refused, "within_quota": within})
    stop.touch()
    client.wait(60)
    seen = latencies(answers)
    neighbour = {**summarised(seen, 0.0, float("inf")), "alive": service.poll() is None}
    stage.end(service)
    return {"quota_bytes": QUOTA, "paths": rows, "neighbour": neighbour}


def launches(stage: Stage) -> dict[str, Any]:
    """Nanoseconds a launch, with and without the shim by turns."""
    built = stage.folder / "launches"
    source = str(Path(__file__).parent / "workloads" / "launches.cu")
    subprocess.run(["nvcc", "-O2", "-arch=native", "-o", str(built), source], check=True, timeout=90)
    out: dict[str, list[float]] = {"bare": [], "shim": []}
    with ControlPage.create(stage.folder / "cost.page") as page, beating(page):
        usage = UsagePage.create(stage.folder / "cost.usage")
        for _ in range(3):
            for name, env in (
                ("bare", stage.environment(mps=False)),
                ("shim", stage.environment(mps=False, shimmed=True, page=page.path, usage=usage.path)),
            ):
                command = pinned(0, 4, [str(built)])
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
                out[name].append(float(done.stdout))
    added = statistics.median(out["shim"]) - statistics.median(out["bare"])
    return {**out, "added_ns": added}


def stepping(stage: Stage, model: str, batch: int, rounds: int, turn_s: float) -> dict[str, Any]:
    """Step time with and without the shim: two processes, one stopped while the other runs, by turns."""
    with ControlPage.create(stage.path("steps.page")) as page, beating(page):
        usage = UsagePage.create(stage.path("steps.usage"))
        envs = {
            "bare": stage.environment(mps=False),
            "shim": stage.environment(mps=False, shimmed=True, page=page.path, usage=usage.path),
        }
        paths = {name: stage.path(f"{name}.steps") for name in envs}
        jobs = {}
        for name, env in envs.items():
            command = word("training.py", "--model", model, "--batch", batch, "--out", paths[name])
            jobs[name] = stage.start(pinned(1, 2, command), env, "training")
        wait_until(lambda: all(len(moments(path)) > 60 for path in paths.values()), 60, "steps")
        times: dict[str, list[float]] = {name: [] for name in envs}
        for turn in range(2 * rounds):
            mine = list(envs)[turn % 2]
            for name, job in jobs.items():
                job.send_signal(signal.SIGCONT if name == mine else signal.SIGSTOP)
            begin_s = time.monotonic() + 0.4
            time.sleep(turn_s)
            end_s = time.monotonic()
            time.sleep(0.3)  # for the last steps to be written
            times[mine].append(1e3 * steps(paths[mine], begin_s, end_s)["median_s"])
        for job in jobs.values():
            job.send_signal(signal.SIGCONT)
        stage.end(*jobs.values())
        launched = [process.launches for process in usage.processes()]
    added = statistics.median(times["shim"]) / statistics.median(times["bare"]) - 1.0
    return {"model": model, "batch": batch, "step_ms": times, "added_frac": added, "launches": launched}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with Stage() as stage:
        found["quota"] = paths(stage)
        stage.mps.stop()
        write(options.out, "quota.json", found)
        found["launches"] = launches(stage)
        write(options.out, "quota.json", found)
        found["steps"] = [stepping(stage, "resnet50", 128, options.rounds, 2.5)]
        write(options.out, "quota.json", found)
    rows = [(r["path"], r["taken_bytes"], r["is_refused"], r["said"][:40]) for r in found["quota"]["paths"]]
    table(("path", "bytes", "refused", "said"), rows)
    print("neighbour:", found["quota"]["neighbour"])
    print(f"a launch: {found['launches']['added_ns']:+.0f} ns;", found["launches"])
    for one in found["steps"]:
        print(f"{one['model']}, batch {one['batch']}: {100 * one['added_frac']:+.2f} % a step", one["step_ms"])


if __name__ == "__main__":
    main()
