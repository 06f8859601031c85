"""The speed equation, the only place where it is written.

    speed(job on GPUs S) = s_p(|S|) / ( L_p(S) * max over g in S of V_p(g) ) * I_p(neighbours on S)

in units of the job's nominal speed: 1.0 on the GPUs it asked for, all median, inside one node, alone. A job that
progresses at that speed for its nominal duration is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.profile import Profile

# I for a set never measured, by the sum of the solo activities on one GPU: free up to 1.0, then linear between these
# points (the prior for time slicing in docs/papers/eaco.md).
_PRIOR = ((1.0, 1.0), (1.1, 0.93), (1.3, 0.87), (1.5, 0.80), (1.7, 0.73), (1.9, 0.68))


def locality(profile: Profile, gpus: Sequence[int], cluster: Cluster) -> float:
    """L_p(S): the profile's penalty when S spans nodes, else 1."""
    if profile.locality == 1.0 or len(gpus) == 1:
        return 1.0
    node_of = cluster.node_of
    first = node_of[gpus[0]]
    return 1.0 if all(node_of[g] == first for g in gpus) else profile.locality


def slowest(profile: Profile, gpus: Sequence[int], cluster: Cluster) -> float:
    """Max over g in S of V_p(g): the slowest GPU gates a bulk-synchronous job."""
    scores = cluster.variability
    if scores is None:
        return 1.0
    of_class = scores.of_class(profile.app_class)
    return max([of_class[g] for g in gpus])


def interference(profile: Profile, neighbours: Sequence[Profile]) -> float:
    """I_p: what is left of its speed beside its neighbours on the most crowded of its GPUs."""
    if not neighbours:
        return 1.0
    total = profile.activity_frac + sum(n.activity_frac for n in neighbours)
    if total <= 1.0:
        return 1.0
    for (x0, y0), (x1, y1) in itertools.pairwise(_PRIOR):
        if total <= x1:
            return y0 + (y1 - y0) * (total - x0) / (x1 - x0)
    # Beyond the points the GPU's time is shared out in proportion.
    return _PRIOR[-1][1] * _PRIOR[-1][0] / total


def speed(job: Job, gpus: Sequence[int], cluster: Cluster, neighbours: Sequence[Profile] = ()) -> float:
    """The job's speed on these GPUs, as a multiple of its nominal speed."""
    profile = job.profile
    width = len(gpus)
    scaled = 1.0 if width == job.gpus else profile.speedup(width) / profile.speedup(job.gpus)
    slowed = locality(profile, gpus, cluster) * slowest(profile, gpus, cluster)
    alone = scaled if slowed == 1.0 else scaled / slowed
    return alone * interference(profile, neighbours) if neighbours else alone
