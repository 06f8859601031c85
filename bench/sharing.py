"""How long EaCO takes to decide about one arrival on a large shared cluster.

20,000 GPUs with 30,000 jobs on them, half of the GPUs shared; the bound is 50 ms for one arrival, whether it finds
company at once, has to look at many groups, or needs several GPUs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.policy import registry
from fairlead.policy.view import JobState, View

PROFILES = [Profile(f"p{i}", activity_frac=0.1 + 0.05 * i, memory_mib=1000.0 * (i + 1)) for i in range(12)]


class Reports:
    """Epochs as jobs would report them: nothing ends while we measure."""

    def done(self, state: JobState) -> int:
        return 0

    def next_end_s(self, state: JobState) -> float:
        return 1e9

    def left_s(self, state: JobState) -> float:
        return 3600.0

    def kept_speed(self, state: JobState) -> float:
        return 1.0

    def utilisation(self, gpu: int) -> float:
        return 0.5


def full_view(gpus: int, jobs: int) -> View:
    rng = random.Random(1)
    view = View(parse_shape(f"{gpus // 8}x8"), epochs=Reports())
    for number, gpu in enumerate([*range(gpus), *rng.sample(range(gpus), jobs - gpus)]):
        job = Job(number, str(number), 0.0, 1, rng.choice(PROFILES), deadline_s=rng.choice((None, 1e6)))
        view.arrive(JobState(job))
        view.start(view.waiting[number], (gpu,), shared=True)
    view.decided()
    return view


def arrivals_ms(gpus: int, jobs: int) -> list[float]:
    view = full_view(gpus, jobs)
    stack = registry.build("sharing=eaco")
    stack.decide(view)
    view.decided()
    rng = random.Random(2)
    took = []
    for i in range(200):
        view.now_s += 1.0
        job = Job(jobs + i, f"new{i}", view.now_s, 1, rng.choice(PROFILES), deadline_s=rng.choice((None, 3700.0)))
        view.arrive(JobState(job))
        began = time.perf_counter()
        plan = stack.decide(view)
        took.append(1000.0 * (time.perf_counter() - began))
        view.decided()
        for place in plan.place:
            view.start(view.waiting[place.job_id], place.gpus, shared=place.shared)
        while plan.place and plan.wake_s == view.now_s:
            plan = stack.decide(view)
            view.decided()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for gpus, jobs in ((2_000, 3_000), (20_000, 30_000)):
        took = arrivals_ms(gpus, jobs)
        row = {"gpus": gpus, "jobs": jobs, "median_ms": statistics.median(took), "worst_ms": max(took)}
        found.append(row)
        print(
            f"{gpus:6,} GPUs, {jobs:6,} jobs: median {row['median_ms']:.2f} ms, worst of 200 {row['worst_ms']:.2f} ms",
            file=sys.stderr,
        )
    if options.json:
        print(json.dumps(found, indent=2))
    sys.exit(found[-1]["worst_ms"] > 50.0)


if __name__ == "__main__":
    main()
