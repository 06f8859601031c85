"""Snapshots with something changed: other nodes, or a policy that shares GPUs otherwise.

A job that loses its GPUs by that goes back into the queue; it keeps its work, as it is asked to write a checkpoint
first, and pays the restart when it runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.model.variability import Variability, from_partial
from fairlead.policy.stack import Stack
from fairlead.policy.stages import Sharing
from fairlead.policy.view import JobState


def under(snapshot: Snapshot, stack: Stack) -> Snapshot:
    """As a policy finds it that takes over: jobs share as it has them share, or not at all."""
    if stack.sharing.shares:
        jobs = [_open(job, stack.sharing, snapshot) for job in snapshot.jobs]
    else:
        stays = _alone(snapshot.jobs)
        jobs = [_apart(j, snapshot.now_s, stays=j.id in stays) for j in snapshot.jobs]
    knowledge = snapshot.knowledge if snapshot.policy == stack.spec else None  # of use to the same policy only
    return replace(snapshot, jobs=tuple(jobs), policy=stack.spec, knowledge=knowledge)


def _apart(job: SnapshotJob, now_s: float, *, stays: bool) -> SnapshotJob:
    """Alone on its GPUs, or in the queue; who holds a part of a GPU is as it was."""
    if job.gpu_frac < 1.0:
        return job
    return replace(job, shared=False) if stays else queued(job, now_s)


def queued(job: SnapshotJob, now_s: float) -> SnapshotJob:
    """Off its GPUs and back in the queue; one that does not run stays as it is."""
    if not job.placement:
        return job
    had_gpu_s = job.attained_gpu_s(now_s)
    return replace(
        job, state="waiting", placement=(), shared=False, sm_share=1.0, since_s=now_s, banked_gpu_s=had_gpu_s
    )


def with_nodes(snapshot: Snapshot, more: int, *, rents: bool) -> Snapshot:
    """More nodes like the last one, which are not rented yet if the policy `rents`; or, below 0, fewer.

    Idle nodes go first, those that are down last, and of equals the last one.
    """
    return _extended(snapshot, more, rents) if more > 0 else _reduced(snapshot, -more)


def _extended(snapshot: Snapshot, more: int, rents: bool) -> Snapshot:
    cluster = snapshot.cluster
    last, taken = cluster.nodes[-1], {node.name for node in cluster.nodes}
    names = [name for i in range(1, more + len(taken) + 1) if (name := f"new-{i}") not in taken][:more]
    nodes = (*cluster.nodes, *(replace(last, name=name, uuids=()) for name in names))
    scores, variability = cluster.variability, None
    if scores is not None:
        known = {name: dict(enumerate(values)) for name, values in scores.scores.items()}
        guessed = {name: scores.unscored_in(name) for name in scores.scores}
        variability = from_partial(known, cluster.gpus + more * last.gpus, assumed=guessed)
    added = range(len(cluster.nodes), len(nodes))
    asleep = (*snapshot.asleep, *added) if rents else snapshot.asleep
    # On other nodes the policy looks at everything anew.
    return replace(snapshot, cluster=Cluster(nodes, variability, cluster.rental), asleep=asleep, knowledge=None)


def _reduced(snapshot: Snapshot, fewer: int) -> Snapshot:
    cluster = snapshot.cluster
    if fewer >= len(cluster.nodes):
        raise InputError(
            f"nodes: {-fewer:+d} of {len(cluster.nodes)} leaves none", hint="at least one node has to stay"
        )
    busy = {cluster.node_of[gpu] for job in snapshot.jobs for gpu in job.placement}
    order = sorted(range(len(cluster.nodes)), key=lambda n: (n in snapshot.down, n in busy, -n))
    gone = set(order[:fewer])
    kept = [n for n in range(len(cluster.nodes)) if n not in gone]
    node_at = {old: new for new, old in enumerate(kept)}
    kept_gpus = [gpu for gpu in range(cluster.gpus) if cluster.node_of[gpu] not in gone]
    gpu_at = {old: new for new, old in enumerate(kept_gpus)}
    variability = _picked(cluster.variability, kept_gpus, gpu_at) if cluster.variability is not None else None
    return replace(
        snapshot,
        cluster=Cluster(tuple(cluster.nodes[n] for n in kept), variability, cluster.rental),
        jobs=tuple(_moved(job, gpu_at, snapshot.now_s) for job in snapshot.jobs),
        down=tuple(node_at[n] for n in snapshot.down if n in node_at),
        asleep=tuple(node_at[n] for n in snapshot.asleep if n in node_at),
        waking=tuple((node_at[n], at_s) for n, at_s in snapshot.waking if n in node_at),
        rented=tuple((node_at[n], at_s) for n, at_s in snapshot.rented if n in node_at),
        drained=tuple(gpu_at[g] for g in snapshot.drained if g in gpu_at),
    )


def _picked(scores: Variability, gpus: Sequence[int], gpu_at: dict[int, int]) -> Variability:
    """The scores of these GPUs."""

    def renumbered(old: Iterable[int]) -> tuple[int, ...]:
        return tuple(gpu_at[g] for g in old if g in gpu_at)

    return Variability(
        {name: [values[g] for g in gpus] for name, values in scores.scores.items()},
        renumbered(scores.unscored),
        {name: renumbered(old) for name, old in scores.unscored_by_class.items()},
    )


def _moved(job: SnapshotJob, gpu_at: dict[int, int], now_s: float) -> SnapshotJob:
    if not all(gpu in gpu_at for gpu in job.placement):
        return queued(job, now_s)
    return replace(job, placement=tuple(gpu_at[gpu] for gpu in job.placement))


def _open(job: SnapshotJob, sharing: Sharing, snapshot: Snapshot) -> SnapshotJob:
    """A running job that others may join, if this sharing would have placed it so."""
    if not job.placement or job.shared:
        return job
    about = Job(
        job.id, job.name, job.submit_s, job.gpus, snapshot.profile(job.profile), job.kind, job.min_gpus, job.max_gpus,
        job.memory_mib, deadline_s=job.deadline_s, priority=job.priority, user=job.user, batch=job.batch,
        group=job.group,
    )  # fmt: skip
    return replace(job, shared=sharing.shared(JobState(about)))


def _alone(jobs: Iterable[SnapshotJob]) -> set[int]:
    """Who keeps its GPUs where nobody may share: services first, then whoever has been there longest."""
    stays: set[int] = set()
    taken: set[int] = set()
    whole = (job for job in jobs if job.gpu_frac >= 1.0)
    for job in sorted(whole, key=lambda j: (j.kind != "service", j.since_s, j.id)):
        if taken.isdisjoint(job.placement):
            taken.update(job.placement)
            stays.add(job.id)
    return stays
