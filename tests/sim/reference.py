"""A pool of GPUs, written as plainly as possible: the oracle of the simulator.

GPUs have no place; a job fits if enough are free. At each moment ends come first, then arrivals, then one decision.
In rounds all three happen at multiples of the round only; a job that is done keeps its GPUs until then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Spec = tuple[float, int, float]
"""(submit_s, gpus, duration_s), in order of submission."""


def finish_times(jobs: Sequence[Spec], gpus: int, policy: str, round_s: float | None = None) -> list[float]:
    """When each job ends, by trying every job of the queue at every event, or in every round."""
    left = [duration for _, _, duration in jobs]
    finish = [0.0] * len(jobs)
    running: set[int] = set()
    queue: list[int] = []
    arriving = 0
    now = 0.0
    while arriving < len(jobs) or running or queue:
        next_arrival = jobs[arriving][0] if arriving < len(jobs) else float("inf")
        then = min(next_arrival, min((now + left[j] for j in running), default=float("inf")))
        if round_s is not None:
            then = math.ceil(then / round_s) * round_s
        for j in sorted(running):
            left[j] -= then - now
            if left[j] <= 0:
                running.discard(j)
                finish[j] = then
        now = then
        while arriving < len(jobs) and jobs[arriving][0] <= now:
            queue.append(arriving)
            arriving += 1
        decide(jobs, gpus, policy, now, left, running, queue)
    return finish


def decide(
    jobs: Sequence[Spec], gpus: int, policy: str, now: float, left: list[float], running: set[int], queue: list[int]
) -> None:
    """Move jobs between the queue and the GPUs."""
    if policy in ("srtf", "srsf"):
        active = sorted([*running, *queue], key=lambda j: (left[j] * (jobs[j][1] if policy == "srsf" else 1), j))
        running.clear()
        queue.clear()
        free = gpus
        for j in active:
            if jobs[j][1] <= free:
                running.add(j)
                free -= jobs[j][1]
            else:
                queue.append(j)
        return
    if policy.startswith("sjf"):
        queue.sort(key=lambda j: (left[j], j))
        policy = policy.removeprefix("sjf-")
    free = gpus - sum(jobs[j][1] for j in running)
    skipped: list[int] = []
    shadow, extra = float("inf"), 0
    for j in list(queue):
        width = jobs[j][1]
        fits = width <= free
        if policy == "easy" and skipped:
            fits = fits and (now + left[j] <= shadow or width <= extra)
        if fits:
            queue.remove(j)
            running.add(j)
            free -= width
            if skipped and now + left[j] > shadow:
                extra -= width
            continue
        if policy == "strict":
            return
        if policy == "easy" and not skipped:
            shadow, extra = reservation(jobs, width, free, now, left, running)
        skipped.append(j)


def reservation(
    jobs: Sequence[Spec], width: int, free: int, now: float, left: list[float], running: set[int]
) -> tuple[float, int]:
    """When the head will fit, and how many GPUs it then leaves over."""
    for moment in sorted({now + left[j] for j in running}):
        then = free + sum(jobs[j][1] for j in running if now + left[j] <= moment)
        if then >= width:
            return moment, then - width
    raise AssertionError("the head never fits")
