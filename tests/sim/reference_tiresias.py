"""The rules of Tiresias' published simulator (`dlas-gpu`), as plain lists: an oracle of `within=running`.

Each queue is a list. A job that comes is put at the end of the first queue, one whose service reaches the queue's limit
at the end of the next. Then all queues are walked in order and every job that fits into the GPUs that are left runs;
who runs and does not fit is preempted. At last all jobs of a queue that wait are moved behind those that run. GPUs have
no place. Moments are exact, where the published code rounds them, and looks for the next fall at the wrong moment. In
rounds, which it does not have, everything happens at multiples of the round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.sim.reference import Spec

_SLACK = 1e-6


def run(
    jobs: Sequence[Spec], gpus: int, limits: Sequence[float], round_s: float | None = None
) -> tuple[list[float], int]:
    """When each job ends, and how often jobs were preempted."""
    left = [duration for _, _, duration in jobs]
    had = [0.0] * len(jobs)
    finish = [0.0] * len(jobs)
    queues: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    running: set[int] = set()
    arriving = preemptions = 0
    now = 0.0
    while arriving < len(jobs) or any(queues):
        moments = [now + left[j] for j in running]
        for queue, limit in zip(queues, limits, strict=False):
            moments += [now + (limit - had[j]) / jobs[j][1] for j in queue if j in running]
        if arriving < len(jobs):
            moments.append(jobs[arriving][0])
        then = min(moments) if round_s is None else math.ceil(min(moments) / round_s) * round_s
        for j in running:
            left[j] -= then - now
            had[j] += (then - now) * jobs[j][1]
        now = then
        for j in sorted(running):
            if left[j] <= _SLACK:
                running.discard(j)
                finish[j] = now
                next(queue for queue in queues if j in queue).remove(j)
        while arriving < len(jobs) and jobs[arriving][0] <= now:
            queues[0].append(arriving)
            arriving += 1
        demote(queues, limits, running, had)
        preemptions += walk(jobs, gpus, queues, running)
        for queue in queues:
            queue.sort(key=lambda j: j not in running)
    return finish, preemptions


def demote(queues: list[list[int]], limits: Sequence[float], running: set[int], had: list[float]) -> None:
    """Move jobs that have reached the limit of their queue to the end of the next, the first submitted first."""
    fallen = [
        (j, number) for number, limit in enumerate(limits) for j in queues[number]
        if j in running and had[j] >= limit - _SLACK
    ]  # fmt: skip
    for j, number in sorted(fallen):
        queues[number].remove(j)
        queues[number + 1].append(j)


def walk(jobs: Sequence[Spec], gpus: int, queues: list[list[int]], running: set[int]) -> int:
    """Let run who fits, in order; gives how many are preempted."""
    free, preempted = gpus, 0
    for queue in queues:
        for j in queue:
            if jobs[j][1] <= free:
                free -= jobs[j][1]
                running.add(j)
            elif j in running:
                running.discard(j)
                preempted += 1
    return preempted
