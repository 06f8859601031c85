"""A world at the size that the page is made for: a thousand GPUs and ten thousand jobs."""

from __future__ import annotations

import random
import time
from pathlib import Path

from fairlead.live.engines.engine import GpuReading
from tests.live.scripted import World

GPUS, JOBS = 1000, 10_000


def big_world(folder: Path) -> World:
    """A job on every GPU as soon as it runs, and nine thousand that wait."""
    world = World(folder, "fifo-greedy", "125x8")
    columns = "user, name, request, submit_s, submitted_at_s, state"
    sql = f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, 0.0, 1.7e9, 'waiting')"
    request = '{"command": ["train"], "estimate_s": 600.0}'
    made = [(f"user-{n % 20}", f"job-{n}", request) for n in range(JOBS)]
    world.database.write(lambda connection: connection.executemany(sql, made) and None).result()
    world.close()
    world = World(folder, "fifo-greedy", "125x8")
    read_all(world, random.Random(1))
    return world


def read_all(world: World, rng: random.Random) -> None:
    """Other readings of every GPU."""
    for gpu in range(GPUS):
        busy_frac = rng.random()
        memory_mib, power_w, temperature_c = 30_000.0 * rng.random(), 80.0 + 300.0 * busy_frac, 35.0 + 40.0 * busy_frac
        reading = GpuReading(
            gpu, time.time(), busy_frac, None, memory_mib, power_w, 0.0, temperature_c, guard_state="healthy"
        )
        world.engine.readings[gpu] = reading
