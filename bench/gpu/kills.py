"""An offline job that is killed in the middle of a kernel, again and again, beside a service under MPS.

    PYTHONPATH=src python bench/gpu/kills.py --out bench/gpu/results

First fifty and one each by SIGINT, by SIGTERM and by the agent's eviction: clients that keep 8192 x 8192 matrix
products queued, seventeen at a time, killed one after the other. Half of those that get SIGINT have its default action,
half Python's handler. The service must not fail a single request. Then what nobody can be protected from: SIGKILL, a
segmentation fault, an illegal address and a device assert; here the service must come back by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from agents import Running, running
from common import Stage, latencies, pinned, table, wait_until, word, write

from fairlead.node.identity import LaunchId
from fairlead.node.process.launch import LaunchState
from fairlead.policy.guarding import GuardConfig, RateConfig

BATCH = 17
RESTORED_S = 40.0
FAULTS = ("illegal-address", "sigkill", "device-assert", "segfault", "illegal-address", "sigkill")


class Client:
    """The open-loop client, for as long as needed."""

    def __init__(self, stage: Stage, socket: Path, rate: float, timeout_s: float) -> None:
        self.stage = stage
        self.answers, self.stop_file = stage.path("client.json"), stage.path("stop")
        self.alive = stage.path("alive")
        command = word(
            "client.py", "--socket", socket, "--load", f"1:{rate}", "--stop-file", self.stop_file,
            "--out", self.answers, "--timeout-s", timeout_s, "--alive", self.alive,
        )  # fmt: skip
        self.process = stage.start(pinned(1, 4, command), stage.environment(mps=False), "client")

    def is_answered(self, since_s: float) -> bool:
        """Whether the service has answered after that moment."""
        try:
            return float(self.alive.read_text()) > since_s
        except (OSError, ValueError):
            return False

    def end(self) -> dict[str, Any]:
        self.stop_file.touch()
        self.process.wait(100)
        self.stage.running.remove(self.process)
        return latencies(self.answers)


def failures(found: dict[str, Any], begin_s: float, end_s: float) -> list[float]:
    both = zip(found["planned_s"], found["latency_s"], strict=True)
    return [at_s for at_s, latency in both if latency is None and begin_s <= at_s < end_s]


def start_clients(node: Running, stage: Stage, prefix: str, count: int, *options: object) -> list[str]:
    names = [f"{prefix}-{i}" for i in range(count)]
    ready = {name: stage.path(f"{name}.ready") for name in names}
    for i, name in enumerate(names):
        handlers = "default" if i % 2 else "python"
        command = word("products.py", "--ready", ready[name], "--handlers", handlers, *options)
        node.start(name, pinned(1, 4, command, parts=3))
    wait_until(lambda: all(path.exists() for path in ready.values()), 90, f"the clients of {prefix}")
    return names


def kill_batch(node: Running, stage: Stage, kind: str, number: int, draw: random.Random) -> list[dict[str, Any]]:
    names = start_clients(node, stage, f"{kind}{number}", BATCH)
    time.sleep(0.5)
    told: dict[str, float] = {}
    for name in names:
        time.sleep(draw.uniform(0.05, 0.25))  # anywhere within a product
        told[name] = time.monotonic()
        if kind == "evict":
            node.agent.evict(node.attempts[name], "for the test")
        else:
            pid = node.status(name).pid
            assert pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT if kind == "sigint" else signal.SIGTERM)
    gone: dict[str, float] = {}
    until_s = time.monotonic() + 60.0
    while len(gone) < len(names) and time.monotonic() < until_s:
        for name in names:
            if name not in gone and node.status(name).state is LaunchState.ENDED:
                gone[name] = time.monotonic()
        time.sleep(0.02)
    out = []
    for name in names:
        status = node.status(name)
        after_s = gone[name] - told[name] if name in gone else None
        out.append({"job": name, "exit_code": status.exit_code, "signal": status.signal, "gone_after_s": after_s})
    return out


def fault(node: Running, stage: Stage, kind: str, number: int, socket: Path, rate: float) -> dict[str, Any]:
    """One fault, and what became of the service."""
    client = Client(stage, socket, rate, 15.0)
    options = ("--end", "never" if kind == "sigkill" else kind, "--after-s", 1.0)
    before = len(node.agent.events)
    wait_until(lambda: node.job("service"), RESTORED_S, "the service")
    launch = service_launch(node)
    (name,) = start_clients(node, stage, f"{kind}{number}", 1, *options)
    begin_s = time.monotonic()
    if kind == "sigkill":
        time.sleep(1.0)
        node.agent.launcher.kill(LaunchId(node.attempts[name]))
    wait_until(lambda: node.status(name).state is LaunchState.ENDED, 30, f"the end of {name}")
    ended_s = time.monotonic()
    time.sleep(4.0)  # long enough for the agent to notice

    def is_back() -> bool:
        is_there = node.job("service") is not None and not node.node_gpu.is_mending
        return is_there and client.is_answered(time.monotonic() - 0.3)

    with contextlib.suppress(SystemExit):  # what it did not reach shows in what the client saw
        wait_until(is_back, RESTORED_S, "the service")
    time.sleep(1.0)
    is_new = service_launch(node) != launch
    found = client.end()
    failed = failures(found, begin_s, float("inf"))
    answered = [
        at_s + latency
        for at_s, latency in zip(found["planned_s"], found["latency_s"], strict=True)
        if latency is not None and (not failed or at_s > failed[-1])
    ]
    restored_s = (min(answered) - failed[0]) if failed and answered else None
    status = node.status(name)
    return {
        "kind": kind,
        "exit_code": status.exit_code,
        "stderr": status.stderr.read_text(errors="replace").strip().splitlines()[-1:],
        "requests": len([at_s for at_s in found["planned_s"] if at_s >= begin_s]),
        "failed": len(failed),
        "restored_after_s": restored_s if failed else 0.0,
        "is_restored": bool(answered),
        "service_was_restarted": is_new,
        "after_end_s": [round(failed[0] - ended_s, 2), round(failed[-1] - ended_s, 2)] if failed else [],
        "events": [
            {"at_s": round(e["at_s"] - begin_s, 2), "what": e["what"], "job": e["attempt"], "about": e["about"]}
            for e in node.events()[before:]
            if e["what"] != "started" or e["attempt"] == "service"
        ],
    }


def service_launch(node: Running) -> int | None:
    """How often the service has been restarted; None while it does not run."""
    found = node.job("service")
    return None if found is None else found.launch.number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--rate", type=float, default=8.0)
    parser.add_argument("--limit-s", type=float, default=400.0)
    options = parser.parse_args()
    began_s = time.monotonic()
    draw = random.Random(5)
    kills: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    about: dict[str, Any] = {}

    def save() -> None:
        write(options.out, "kills.json", {"kills": kills, "faults": faults, **about})

    # Rate 1 all the time: the clients shall be busy when they are killed.
    guard = GuardConfig(rate=RateConfig(floor_frac=1.0))
    with Stage() as stage, running(stage, guard) as node:
        socket = stage.folder / "service.sock"
        command = pinned(0, 4, word("service.py", "--socket", socket, "--model", "resnet18", "--batch", 1))
        node.start("service", command, "service")
        wait_until(socket.exists, 90, "the service")
        for kind in ("sigint", "sigterm", "evict"):
            client = Client(stage, socket, options.rate, 60.0)
            begin_s = time.monotonic()
            found: list[dict[str, Any]] = []
            for number in range(-(-options.kills // BATCH)):
                try:
                    found += kill_batch(node, stage, kind, number, draw)
                except SystemExit as error:
                    about.setdefault("errors", []).append(f"{kind} {number}: {error}")
            seen = client.end()
            failed = failures(seen, begin_s, float("inf"))
            longest = max((x for x in seen["latency_s"] if x is not None), default=None)
            one = {
                "kind": kind, "kills": found, "requests": len(seen["planned_s"]), "failed": len(failed),
                "seconds": time.monotonic() - begin_s, "longest_latency_s": longest,
                "service_launch": service_launch(node),
            }  # fmt: skip
            kills.append(one)
            save()
            codes = sorted({str(k["exit_code"]) for k in found})
            print(kind, len(found), "kills, exit codes", codes, one["requests"], "requests", len(failed), "failed",
                  f"{one['seconds']:.0f} s", flush=True)  # fmt: skip
        about["events"] = [e for e in node.events() if e["what"] not in ("started", "ended", "evicting", "freeze")]
        for number, kind in enumerate(options.faults.split(",")):
            if time.monotonic() - began_s > options.limit_s:
                print("no time left for", kind, flush=True)
                continue
            try:
                faults.append(fault(node, stage, kind, number, socket, options.rate))
            except SystemExit as error:
                faults.append({"kind": kind, "error": str(error), "events": node.events()[-20:]})
            save()
            print({k: v for k, v in faults[-1].items() if k not in ("events",)}, flush=True)
        about["mps_log"] = (node.node_gpu.mps.log_folder / "server.log").read_text(errors="replace").splitlines()[-60:]
        save()
    rows = [(k["kind"], len(k["kills"]), k["requests"], k["failed"], "-") for k in kills]
    rows += [
        (f["kind"], 1, f.get("requests", "-"), f.get("failed", "-"), f.get("restored_after_s", "-")) for f in faults
    ]
    table(("how", "times", "requests", "failed", "restored after s"), rows)


if __name__ == "__main__":
    main()
