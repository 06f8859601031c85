"""A ResNet-50 service beside a saturating ResNet-50 training: alone, taking turns, under MPS, with priority, guarded.

    PYTHONPATH=src python bench/gpu/guarded.py --out bench/gpu/results

The client is open-loop (Poisson, the same moments in every block) and measures from the planned moment of a request to
its answer. One service process answers the blocks of all MPS runs, alone and beside a training by turns, so that what
differs between them is the training. The last two blocks end with a burst of five times the load. The guard's SLO is
1.25 times the service's p99 alone. Service, client and training have CPU cores of their own. `paired.py` compares alone
and guarded with far less noise.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from agents import Running, running
from common import (
    Stage,
    begin_training,
    latencies,
    moments,
    pinned,
    solo_step_s,
    steps,
    summarised,
    table,
    training,
    wait_until,
    word,
    write,
)  # fmt: skip

from fairlead.node import shim
from fairlead.node.gpu.nvml import NvmlMeter
from fairlead.node.gpu.recordings import RecordingMeter

SOLO_S, WARM_S, AFTER_S = 8.0, 3.0, 4.0
SLO_RATIO = 1.25


class Experiment:
    def __init__(self, stage: Stage, options: argparse.Namespace) -> None:
        self.stage = stage
        self.options = options
        self.socket = stage.folder / "service.sock"
        self.blocks: list[dict[str, Any]] = []
        self.solo_s = 0.0
        self.about: dict[str, Any] = {}

    def service(self) -> list[str]:
        self.socket.unlink(missing_ok=True)
        return pinned(0, 4, word("service.py", "--socket", self.socket))

    def ready(self) -> None:
        wait_until(self.socket.exists, 90, "the service")

    def block(self, name: str, path: Path | None = None, *, burst: bool = False) -> dict[str, Any]:
        """Run the client, and keep what it saw."""
        o = self.options
        parts = [(WARM_S, o.rate), (o.seconds, o.rate)]
        if burst:
            parts += [(o.burst_s, 5 * o.rate), (AFTER_S, o.rate)]
        answers = self.stage.path("client.json")
        text = ",".join(f"{seconds}:{rate}" for seconds, rate in parts)
        command = word("client.py", "--socket", self.socket, "--load", text, "--out", answers, "--seed", o.seed)
        client = self.stage.start(pinned(1, 4, command), self.stage.environment(mps=False), "client")
        client.wait(sum(seconds for seconds, _ in parts) + 90)
        self.stage.running.remove(client)
        found = latencies(answers)
        edges = [edge_s for edge_s, _ in found["edges"]]
        steady = (edges[1], edges[1] + o.seconds)
        both = list(zip(found["planned_s"], found["latency_s"], strict=True))
        run: dict[str, Any] = {
            "name": name,
            "edges": edges,
            "steady": summarised(found, *steady),
            "latency_ms": [
                None if x is None else round(1e3 * x, 2) for at_s, x in both if steady[0] <= at_s < steady[1]
            ],
        }
        if path is not None:
            run["training"] = steps(path, *steady)
            run["training_kept_frac"] = self.solo_s / run["training"]["mean_s"]
        if burst:
            run["burst_first_second"] = summarised(found, edges[2], edges[2] + 1.0)
            run["burst_after_a_second"] = summarised(found, edges[2] + 1.0, edges[3])
            run["after_the_burst"] = summarised(found, edges[3] + 1.0, edges[3] + AFTER_S)
            if path is not None:
                run["training_in_burst"] = steps(path, edges[2] + 1.0, edges[3])
        self.blocks.append(run)
        self.save()
        print(name, {k: round(v, 2) for k, v in run["steady"].items()}, run.get("training_kept_frac"), flush=True)
        return run

    def save(self) -> None:
        o = self.options
        found = {"gpu": self.stage.gpu.name, "solo_step_ms": 1e3 * self.solo_s, "rate": o.rate, "seconds": o.seconds}
        write(o.out, "guarded.json", {**found, **self.about, "blocks": self.blocks})

    def sliced(self) -> float:
        """Without MPS. Gives the service's p99 alone."""
        service = self.stage.start(self.service(), self.stage.environment(mps=False), "service")
        self.ready()
        alone = self.block("alone-no-mps")
        path = self.stage.path("sliced.steps")
        job = begin_training(self.stage, self.stage.environment(mps=False), path)
        self.block("sliced", path)
        self.stage.end(job, service)
        return float(alone["steady"]["p99_ms"]) / 1e3

    def shared(self, alone_p99_s: float) -> None:
        """Under MPS, all with one service process."""
        slo_s = SLO_RATIO * alone_p99_s
        self.about["slo_ms"] = 1e3 * slo_s
        recording = self.stage.folder / "samples.jsonl"
        with running(self.stage, meter=RecordingMeter(NvmlMeter(), recording)) as node:
            node.start("service", self.service(), "service", slo_s=slo_s)
            self.ready()
            self.block("alone")
            self.guarded(node, "guard-1", burst=False)
            self.block("alone")
            for name, priority in (("priority", 1), ("mps", None)):
                self.unguarded(node, name, priority)
            self.block("alone", burst=True)
            self.guarded(node, "guard-2", burst=True)
            self.about["events"] = node.events()
            self.about["joules"] = node.joules()
        self.save()
        (self.options.out / "guarded-samples.jsonl").write_bytes(recording.read_bytes())

    def unguarded(self, node: Running, name: str, priority: int | None) -> None:
        path = self.stage.path(f"{name}.steps")
        # The shim without a page limits nothing; it is there so that ending the training cannot hurt the service.
        env = self.stage.environment(mps=False) | node.node_gpu.mps.client_env(priority=priority)
        job = begin_training(self.stage, env | shim.environment(self.stage.library), path)
        self.block(name, path)
        self.stage.end(job)

    def guarded(self, node: Running, name: str, *, burst: bool) -> None:
        path = self.stage.path(f"{name}.steps")
        node.start(name, training(path))
        wait_until(lambda: len(moments(path)) > 60, 90, "the training's first steps")
        # Without requests nothing is known of the latency, and the rate does not rise: some, until it has.
        answers = self.stage.path("rise.json")
        command = word("client.py", "--socket", self.socket, "--load", f"7:{self.options.rate}", "--out", answers)
        rise = self.stage.start(pinned(1, 4, command), self.stage.environment(mps=False), "rise")
        rise.wait(60)
        self.stage.running.remove(rise)
        run = self.block(name, path, burst=burst)
        edges = run["edges"]
        shown = [r for r in node.rates if edges[1] <= r[0] <= edges[1] + self.options.seconds]
        run["mean_rate_frac"] = sum(r[1] for r in shown) / len(shown)
        run["cuts"] = sum(1 for a, b in itertools.pairwise(shown) if b[1] < a[1] - 1e-9)
        running_job = node.job(name)
        run["usage"] = [] if running_job is None else [str(process) for process in running_job.usage.processes()]
        if burst:
            run["rates"] = [
                (round(at_s - edges[2], 2), round(rate, 3), None if latency is None else round(1e3 * latency, 2))
                for at_s, rate, latency in node.rates
                if edges[2] - 2.0 <= at_s <= edges[3] + AFTER_S
            ]
            before = [rate for at_s, rate, _ in node.rates if at_s < edges[2]][-1]
            low = [at_s for at_s, rate, _ in node.rates if at_s >= edges[2] and rate <= 0.5 * before]
            floor = [at_s for at_s, rate, _ in node.rates if at_s >= edges[2] and rate <= 0.15]
            run["rate_halved_after_s"] = low[0] - edges[2] if low else None
            run["rate_low_after_s"] = floor[0] - edges[2] if floor else None
        if running_job is not None:
            node.agent.stop(running_job.id)
            wait_until(lambda: node.job(name) is None, 30, "the training's end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--burst-s", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with Stage() as stage:
        made = Experiment(stage, options)
        made.solo_s = solo_step_s(stage, SOLO_S)
        made.shared(made.sliced())
    heads = ("block", "requests", "failed", "p50 ms", "p90 ms", "p99 ms", "training kept")
    rows = [
        (b["name"], *(b["steady"][key] for key in ("requests", "failed", "p50_ms", "p90_ms", "p99_ms")),
         b.get("training_kept_frac", "-"))
        for b in made.blocks
    ]  # fmt: skip
    table(heads, rows)
    for b in made.blocks:
        if "burst_after_a_second" in b:
            print(b["name"], "burst", b["burst_first_second"], b["burst_after_a_second"], b.get("rate_halved_after_s"))


if __name__ == "__main__":
    main()
