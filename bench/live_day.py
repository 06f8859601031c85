"""A day of the live controller on a virtual clock: what it costs, and whether its memory grows with finished jobs.

Jobs come at random through the store, run for a while on a scripted engine and end; every event is one turn of the
control loop, with everything on the disk. Then the idle cost of a controller with a real local engine on fake GPUs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.live.rig import Rig
from tests.live.scripted import AtOnce, Hands, World

MEAN_S = 400.0
"""20,000 jobs a day of two GPUs each on average keep 256 GPUs three quarters busy."""
MOST_GROWTH_MIB = 20.0
MOST_IDLE = 0.02


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def day(policy: str, jobs: int, hours: float) -> dict[str, Any]:
    rng, hands = random.Random(0), Hands()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), policy, "32x8", hands=hands, workers=AtOnce())
        ends: list[tuple[float, tuple[int, int]]] = []
        begun: set[tuple[int, int]] = set()
        arrivals = sorted(rng.uniform(0.0, hours * 3600.0) for _ in range(jobs))
        steps_s, rss, hour = [], [], 0
        began_s = time.process_time()
        while arrivals or ends:
            next_s = min([*arrivals[:1], *(e[0] for e in ends[:1])])
            hands.now_s = max(hands.now_s, next_s)
            if arrivals and arrivals[0] <= hands.now_s:
                arrivals.pop(0)
                world.submit(gpus=rng.choice((1, 1, 2, 4)), profile=rng.choice(("AlexNet", "ResNet-18")))
            while ends and ends[0][0] <= hands.now_s:
                world.engine.end(heapq.heappop(ends)[1])
            for _ in range(2):
                at_s = time.perf_counter()
                world.step()
                steps_s.append(time.perf_counter() - at_s)
            for key in world.engine.running - begun:
                begun.add(key)
                heapq.heappush(ends, (hands.now_s + rng.expovariate(1.0 / MEAN_S), key))
            if hands.now_s >= hour * 3600.0:
                _forget(world, begun)
                rss.append((hour, round(rss_mib(), 1)))
                hour += 1
        cpu_s = time.process_time() - began_s
        world.close()
    percent = quantiles(steps_s, n=100)
    return {
        "policy": policy, "jobs": jobs, "hours": hours, "steps": len(steps_s), "step_p50_s": percent[49],
        "step_p99_s": percent[98], "cpu_s_per_job": cpu_s / jobs, "rss_mib_by_hour": rss,
        "growth_mib": rss[-1][1] - rss[len(rss) // 4][1],
    }  # fmt: skip


def _forget(world: World, begun: set[tuple[int, int]]) -> None:
    """What the scripted engine keeps for tests is none of the controller's memory."""
    engine = world.engine
    begun &= engine.running
    engine.orders = {key: order for key, order in engine.orders.items() if key in engine.attempts}
    engine.gpus = {key: gpus for key, gpus in engine.gpus.items() if key in engine.attempts}
    for kept in (engine.started, engine.stopped, engine.forgotten):
        kept.clear()


def idle(seconds: float) -> dict[str, float]:
    """Of the controller's process, and of its agent's."""
    rig = Rig("fifo", fake_gpus=8)
    try:
        time.sleep(3.0)
        before = time.process_time()
        time.sleep(seconds)
        return {"controller_idle_cores": (time.process_time() - before) / seconds}
    finally:
        rig.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--idle-s", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, Any] = {"day": day("fifo-greedy", asked.jobs, asked.hours), **idle(asked.idle_s)}
    if asked.json:
        print(json.dumps(found))
    else:
        one = found["day"]
        p50_ms, p99_ms = 1e3 * one["step_p50_s"], 1e3 * one["step_p99_s"]
        print(f"{one['jobs']:,} jobs in {one['hours']:g} h: {one['steps']:,} turns of the loop")
        print(
            f"a turn: {p50_ms:.1f} ms (median), {p99_ms:.1f} ms (p99); a job: {1e3 * one['cpu_s_per_job']:.1f} ms CPU"
        )
        print(f"memory {one['rss_mib_by_hour'][0][1]} MiB at first, {one['rss_mib_by_hour'][-1][1]} MiB at the end")
        print(f"idle: {100 * found['controller_idle_cores']:.2f} % of a core")
    if found["day"]["growth_mib"] > MOST_GROWTH_MIB or found["controller_idle_cores"] > MOST_IDLE:
        sys.exit("not within bounds")


if __name__ == "__main__":
    main()
