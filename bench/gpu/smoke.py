"""A first look at a machine, under four minutes: does every part work here? Prints what it finds as it goes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from common import Metering, Stage, beating, latencies, pinned, steps, summarised, wait_until, word, write

from fairlead.node.doctor import examine
from fairlead.node.guard.control_page import ControlPage, GpuOrder, UsagePage

GIB = 1 << 30


def attempt(name: str, call: object, found: dict[str, object]) -> None:
    began_s = time.monotonic()
    try:
        found[name] = call()  # type: ignore[operator]
    except BaseException:
        found[name] = {"error": traceback.format_exc()[-1500:]}
    print(f"== {name} ({time.monotonic() - began_s:.1f} s): {json.dumps(found[name], default=str)[:1500]}", flush=True)


def quota(stage: Stage) -> dict[str, object]:
    out: dict[str, object] = {}
    for path in ("info", "torch", "alloc", "pitch", "managed", "ordered", "created", "array"):
        env = stage.environment(mps=False, shimmed=True, quota_bytes=4 * GIB, log=stage.folder / "quota.log")
        done = subprocess.run(word("quota.py", path), env=env, capture_output=True, text=True, timeout=60, check=False)
        out[path] = done.stdout.strip() or done.stderr[-300:]
    out["log"] = (stage.folder / "quota.log").read_text()[-800:] if (stage.folder / "quota.log").exists() else ""
    return out


def launches(stage: Stage) -> dict[str, object]:
    built = stage.folder / "launches"
    source = str(Path(__file__).parent / "workloads" / "launches.cu")
    subprocess.run(["nvcc", "-O2", "-arch=native", "-o", str(built), source], check=True, timeout=90)
    with ControlPage.create(stage.folder / "cost.page") as page, beating(page):
        out: dict[str, object] = {}
        for name, env in (
            ("bare", stage.environment(mps=False)),
            ("shim", stage.environment(mps=False, shimmed=True, page=page.path, usage=stage.folder / "cost.usage")),
            ("bare-again", stage.environment(mps=False)),
        ):
            done = subprocess.run([str(built)], env=env, capture_output=True, text=True, timeout=60, check=False)
            out[name] = (done.stdout + done.stderr).strip()[-300:]
        return out


def together(stage: Stage, metering: Metering, seconds: float) -> dict[str, object]:
    """The service alone, then beside a training under MPS with the shim, at rate 1 and at rate 0.3."""
    out: dict[str, object] = {}
    socket = stage.folder / "service.sock"
    service = stage.start(word("service.py", "--socket", socket), stage.environment(mps=True, priority=0), "service")
    wait_until(lambda: socket.exists() or service.poll() is not None, 60, "the service")

    def load(name: str, rate: float, for_s: float) -> dict[str, object]:
        answers = stage.path("client.json")
        command = word("client.py", "--socket", socket, "--load", f"{for_s}:{rate}", "--out", answers)
        client = stage.start(pinned(1, 4, command), stage.environment(mps=False), "client")
        client.wait(for_s + 60)
        stage.running.remove(client)
        found = latencies(answers)
        write(stage.folder / "kept", f"{name}.json", found)
        begun_s = found["edges"][0][0]
        window = (begun_s, begun_s + for_s)
        return {**summarised(found, *window), "meter": metering.summary(*window), "window": window}

    out["alone-40"] = load("alone-40", 40, seconds)
    out["alone-200"] = load("alone-200", 200, 6)
    page = ControlPage.create(stage.folder / "page", [stage.gpu.uuid])
    with page, beating(page):
        usage = UsagePage.create(stage.folder / "usage")
        for name, command in (("training", word("training.py", "--out", stage.folder / "steps")),):
            env = stage.environment(
                mps=True, priority=1, shimmed=True, page=page.path, usage=usage.path, log=stage.folder / "shim.log"
            )
            training = stage.start(command, env, name)
            wait_until(
                lambda: (stage.folder / "steps").exists() and (stage.folder / "steps").stat().st_size > 3000,
                60,
                "steps",
            )
            for rate in (1.0, 0.3):
                page.write(GpuOrder(rate_frac=rate), stage.gpu.uuid)
                time.sleep(1.0)
                one = load(f"beside-{rate}", 40, seconds)
                one["steps"] = steps(stage.folder / "steps", *one["window"])  # type: ignore[misc]
                one["usage"] = [asdict(p) for p in usage.processes()]
                out[f"beside at rate {rate}"] = one
            page.write(GpuOrder(rate_frac=1.0), stage.gpu.uuid)
            out["mps status"] = asdict(stage.mps.status())
            out["processes"] = [asdict(s) for s in metering.samples if s.processes][-1:]
            out["pids"] = {"service": service.pid, "training": training.pid}
            stage.end(service)
            time.sleep(0.5)
            begin_s = time.monotonic() + 0.5
            time.sleep(5.0)
            solo = steps(stage.folder / "steps", begin_s, time.monotonic() - 0.4)
            out["training alone, with the shim"] = {**solo, "meter": metering.summary(begin_s, time.monotonic())}
            began_s = time.monotonic()
            stage.end(training)
            out["training ended"] = {"code": training.returncode, "after_s": time.monotonic() - began_s}
    out["shim log"] = (stage.folder / "shim.log").read_text()[-1500:] if (stage.folder / "shim.log").exists() else ""
    out["mps log"] = stage.mps.new_log_lines()[-30:]
    for one in sorted(stage.folder.glob("*.log")):
        text = one.read_text(errors="replace").strip()
        if text and "shim" not in one.name:
            out[f"log {one.name}"] = text[-600:]
    return out


def stalled(stage: Stage, metering: Metering) -> dict[str, object]:
    path = stage.folder / "stalled"
    job = stage.start(
        word("training.py", "--model", "resnet18", "--batch", 32, "--stall-ms", 25, "--out", path),
        stage.environment(mps=False), "stalled",
    )  # fmt: skip
    wait_until(lambda: path.exists() and path.stat().st_size > 400, 60, "steps")
    begin_s = time.monotonic() + 1.0
    time.sleep(6.0)
    out = {**steps(path, begin_s, begin_s + 4.5), "meter": metering.summary(begin_s, begin_s + 4.5)}
    stage.end(job)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found: dict[str, object] = {}
    attempt("doctor", lambda: asdict(examine()), found)
    with Stage() as stage:
        metering = Metering(stage.meter)
        attempt("quota", lambda: quota(stage), found)
        attempt("launches", lambda: launches(stage), found)
        attempt("stalled", lambda: stalled(stage, metering), found)
        attempt("together", lambda: together(stage, metering, 10.0), found)
        metering.stop()
        kept = stage.folder / "kept"
        raw = {one.stem: json.loads(one.read_text()) for one in kept.glob("*.json")} if kept.exists() else {}
        write(options.out, "smoke-latencies.json", raw)
    write(options.out, "smoke.json", found)
    sys.exit(0)


if __name__ == "__main__":
    main()
