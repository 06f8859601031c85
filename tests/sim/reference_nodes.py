"""FIFO on nodes, where a job waits for the fewest nodes that hold it: the oracle of `placing=consolidated`.

Every set of so many nodes is tried. All but one of its nodes must be empty and are taken whole; the last has the rest.
Of the sets that do, the one whose last node has the fewest GPUs free is taken, and the first of equals.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tests.sim.reference import Spec


def finish_times(jobs: Sequence[Spec], nodes: int, node_gpus: int, *, greedy: bool) -> list[float]:
    """When each job ends."""
    free = [node_gpus] * nodes
    held: dict[int, dict[int, int]] = {}
    ends: dict[int, float] = {}
    queue: list[int] = []
    finish = [0.0] * len(jobs)
    arriving = 0
    while arriving < len(jobs) or ends:
        now = min([*ends.values(), *([jobs[arriving][0]] if arriving < len(jobs) else [])])
        for j in [j for j, end in ends.items() if end <= now]:
            finish[j] = ends.pop(j)
            for node, gpus in held.pop(j).items():
                free[node] += gpus
        while arriving < len(jobs) and jobs[arriving][0] <= now:
            queue.append(arriving)
            arriving += 1
        for j in list(queue):
            found = best_set(jobs[j][1], free, node_gpus)
            if found is None:
                if not greedy:
                    break
                continue
            queue.remove(j)
            held[j], ends[j] = found, now + jobs[j][2]
            for node, gpus in found.items():
                free[node] -= gpus
    return finish


def best_set(width: int, free: Sequence[int], node_gpus: int) -> dict[int, int] | None:
    """GPUs by node; None where no set of the fewest nodes holds the job."""
    whole, rest = divmod(width - 1, node_gpus)
    found = []
    for last in range(len(free)):
        others = [n for n in range(len(free)) if n != last and free[n] == node_gpus]
        for empty in itertools.combinations(others, whole):
            if free[last] >= rest + 1:
                found.append((free[last], empty, last))
    if not found:
        return None
    _, empty, last = min(found)
    return {**dict.fromkeys(empty, node_gpus), last: rest + 1}
