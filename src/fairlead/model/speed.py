"""The speed equation, the only place where it is written.

    speed(job on GPUs S) = s_p(|S|) / ( L_p(S) * max over g in S of V_p(g) ) * I_p(neighbours on S)

in units of the job's nominal speed: 1.0 on the GPUs it asked for, all median, inside one node, alone. A job that
progresses at that speed for its nominal duration is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.cluster import Cluster
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.job import Job
from fairlead.model.profile import Profile


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


def speed(
    job: Job,
    gpus: Sequence[int],
    cluster: Cluster,
    neighbours: Sequence[Profile] = (),
    table: Interference = EMPTY,
    scaled: float | None = None,
) -> float:
    """The job's speed on these GPUs, as a multiple of its nominal speed.

    `neighbours` are the jobs on the most crowded of its GPUs; `table` says what they leave of its speed. `scaled` is
    the goodput there over the nominal one, where a job trains by goodput: that has s_p and L_p in it.
    """
    profile = job.profile
    width = len(gpus)
    if scaled is not None:
        slowed = slowest(profile, gpus, cluster)
    else:
        scaled = 1.0 if width == job.gpus else profile.speedup(width) / profile.speedup(job.gpus)
        slowed = locality(profile, gpus, cluster) * slowest(profile, gpus, cluster)
    alone = scaled if slowed == 1.0 else scaled / slowed
    return alone * table.predict(profile, neighbours) if neighbours else alone
