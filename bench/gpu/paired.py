"""A ResNet-50 service by turns alone and beside a guarded training, with the same requests at the same moments.

    PYTHONPATH=src python bench/gpu/paired.py --out bench/gpu/results

One service, one client and one training through the whole run; every few seconds the training is stopped or continued
(SIGSTOP, SIGCONT), and the two turns of a pair have the same Poisson moments: neither drift nor luck in the arrivals
counts. Which turn of a pair comes first changes from pair to pair. Then the same with bursts of five times the load.

Evictions are switched off (`slo_windows`, `util_over_windows`), so that what is measured is MPS, shim and launch rate.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import Running, running
from common import Stage, latencies, moments, pinned, solo_step_s, steps, summarised, training, wait_until, word, write

from fairlead.policy.guarding import GuardConfig

NAMES = ("alone", "guard")
SOLO_S = 10.0
RISE_S = 8.0
"""Until the launch rate is up."""
SETTLE_S = 0.3
"""Requests so soon after a change of turns are left out."""
CALM_S, BURST_S, AFTER_S = 6.0, 3.0, 1.0
NEVER = 10**6


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch of time with or without the training."""

    name: str
    pair: int
    begin_s: float
    parts: tuple[tuple[float, float], ...]
    """Seconds and requests a second, one after the other."""

    @property
    def end_s(self) -> float:
        return self.begin_s + sum(seconds for seconds, _ in self.parts)

    def load(self, seed: int) -> str:
        return ",".join(f"{s}:{rate}:{1000 * seed + 10 * self.pair + i}" for i, (s, rate) in enumerate(self.parts))


def schedule(begin_s: float, options: argparse.Namespace) -> tuple[list[Turn], list[Turn]]:
    """The steady turns, and those with a burst."""
    calm = ((options.turn_s, options.rate),)
    burst = ((CALM_S, options.rate), (BURST_S, 5 * options.rate), (AFTER_S, options.rate))
    made: list[Turn] = []
    for pair, parts in enumerate([calm] * options.pairs + [burst] * options.bursts):
        for name in NAMES if pair % 2 == 0 else NAMES[::-1]:
            made.append(Turn(name, pair, made[-1].end_s if made else begin_s, parts))
    return made[: 2 * options.pairs], made[2 * options.pairs :]


def play(stage: Stage, node: Running, options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Service, training and client from beginning to end; gives latencies and launch rates by turn."""
    socket = stage.folder / "service.sock"
    node.start("service", pinned(0, 4, word("service.py", "--socket", socket)), "service", slo_s=options.slo_ms / 1e3)
    node.start("guard", training(path), sm_share=1.0 if options.share is None else options.share / 100.0)
    wait_until(socket.exists, 90, "the service")
    wait_until(lambda: len(moments(path)) > 60, 90, "the training's first steps")
    pid = node.status("guard").pid
    rise_s = time.monotonic() + 1.0
    calm, bursts = schedule(rise_s + RISE_S, options)
    load = ",".join([f"{RISE_S}:{options.rate}", *(turn.load(options.seed) for turn in calm + bursts)])
    answers = stage.path("client.json")
    command = word("client.py", "--socket", socket, "--load", load, "--out", answers, "--begin-s", rise_s)
    client = stage.start(pinned(1, 4, command), stage.environment(mps=False), "client")
    for turn in calm + bursts:
        time.sleep(max(turn.begin_s - time.monotonic(), 0.0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT if turn.name == "guard" else signal.SIGSTOP)
    client.wait((calm + bursts)[-1].end_s - time.monotonic() + 30.0)
    stage.running.remove(client)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    found = latencies(answers)
    return {
        "turns": [steady(turn, found, path, node.rates) for turn in calm],
        "bursts": [burst(turn, found, path, node.rates) for turn in bursts],
        "events": node.events(),
        "joules": node.joules(),
    }


def steady(turn: Turn, found: dict[str, Any], path: Path, rates: list[Any]) -> dict[str, Any]:
    begin_s = turn.begin_s + SETTLE_S
    out: dict[str, Any] = {"name": turn.name, "pair": turn.pair, "latency_ms": between(found, begin_s, turn.end_s)}
    shown = [rate for at_s, rate, _ in rates if begin_s <= at_s < turn.end_s]
    out["mean_rate_frac"] = sum(shown) / len(shown)
    if turn.name == "guard":
        out["step_ms"] = 1e3 * steps(path, begin_s, turn.end_s)["mean_s"]
    return out


def burst(turn: Turn, found: dict[str, Any], path: Path, rates: list[Any]) -> dict[str, Any]:
    begin_s = turn.begin_s + CALM_S
    end_s = begin_s + BURST_S
    before = [rate for at_s, rate, _ in rates if at_s < begin_s][-1]
    out: dict[str, Any] = {
        "name": turn.name,
        "pair": turn.pair,
        "before": between(found, turn.begin_s + SETTLE_S, begin_s),
        "first_second": between(found, begin_s, begin_s + 1.0),
        "rest": between(found, begin_s + 1.0, end_s),
        "after": between(found, end_s, turn.end_s),
        "rates": [
            (round(at_s - begin_s, 2), round(rate, 3), None if latency is None else round(1e3 * latency, 2))
            for at_s, rate, latency in rates
            if begin_s - 1.0 <= at_s <= turn.end_s
        ],
    }
    low = [at_s for at_s, rate, _ in rates if begin_s <= at_s < turn.end_s and rate <= 0.5 * before]
    out["rate_halved_after_s"] = low[0] - begin_s if low else None
    if turn.name == "guard":
        out["step_ms"] = 1e3 * steps(path, begin_s, end_s)["mean_s"]
    return out


def between(found: dict[str, Any], begin_s: float, end_s: float) -> list[float | None]:
    """Latencies in ms of the requests planned then; None is one that failed."""
    both = zip(found["planned_s"], found["latency_s"], strict=True)
    return [None if x is None else round(1e3 * x, 2) for at_s, x in both if begin_s <= at_s < end_s]


def say(made: dict[str, Any]) -> None:
    for name in NAMES:
        mine = [x for turn in made["turns"] if turn["name"] == name for x in turn["latency_ms"]]
        print(name, summary(mine))
        for part in ("before", "first_second", "rest", "after"):
            mine = [x for turn in made["bursts"] if turn["name"] == name for x in turn[part]]
            print(name, "burst", part, summary(mine))
    each = [turn["step_ms"] for turn in made["turns"] if turn["name"] == "guard"]
    print("training keeps", made["solo_step_ms"] * sum(1.0 / step_ms for step_ms in each) / len(each))
    print("mean rate", [round(turn["mean_rate_frac"], 3) for turn in made["turns"] if turn["name"] == "guard"])
    print("rate halved after", [(turn["name"], turn["rate_halved_after_s"]) for turn in made["bursts"]])


def summary(latency_ms: list[float | None]) -> dict[str, float]:
    seconds = [None if x is None else x / 1e3 for x in latency_ms]
    found = summarised({"planned_s": [0.0] * len(seconds), "latency_s": seconds}, 0.0, 1.0)
    return {key: round(value, 2) for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--pairs", type=int, default=38)
    parser.add_argument("--turn-s", type=float, default=5.0)
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument(
        "--share", type=float, default=90.0, help="Of the SMs, in percent; 90 is what the policy gives."
    )
    parser.add_argument("--slo-ms", type=float, default=12.5)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with Stage() as stage:
        solo_s = solo_step_s(stage, SOLO_S)
        path = stage.path("guard.steps")
        with running(stage, GuardConfig(slo_windows=NEVER, util_over_windows=NEVER)) as node:
            made = play(stage, node, options, path)
        about = {"gpu": stage.gpu.name, "solo_step_ms": 1e3 * solo_s}
        about |= {name: getattr(options, name) for name in ("rate", "turn_s", "share", "slo_ms", "seed")}
    made = {**about, **made}
    write(options.out, "paired.json", made, indent=None)
    say(made)


if __name__ == "__main__":
    main()
