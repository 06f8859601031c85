"""What a run has to say in words: what an operator should know, and why jobs are left that never end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.model.cluster import Cluster
from fairlead.policy.view import JobState, View

_SHOWN = 5


def about_endless(view: View) -> tuple[str, str]:
    """Who will never end, as nothing will happen any more; and a hint."""
    if not view.waiting:
        why = f"{len(view.running)} jobs run without progress: {_names(view.running)}"
        return why, "no batch of theirs feeds the GPUs that the policy gives them"
    return f"{len(view.waiting)} jobs wait for ever: {_names(view.waiting)}", "the policy never starts them"


def about_rent(cluster: Cluster, *, rents: bool) -> list[str]:
    """A rented cluster that nobody gives back."""
    if cluster.rental is None or rents:
        return []
    return ["the nodes are rented, but the policy keeps and pays all of them throughout; powering=rent does not"]


def about_gpus(view: View) -> list[str]:
    """GPUs without a score, and GPUs that are far too slow."""
    scores, cluster, profile = view.scores, view.cluster, view.cluster.variability
    if scores is None or profile is None:
        return []
    notes = []
    if profile.unscored:
        notes.append(f"GPUs without a score, given the median of their class: {_listed(cluster, profile.unscored)}")
    slow = {g: by_class for g, by_class in scores.slow_gpus().items() if g not in view.drained}
    for gpu, by_class in list(slow.items())[:_SHOWN]:
        shown = ", ".join(f"{score:.2f} times in class {c}" for c, score in by_class.items())
        name = cluster.gpu_name(gpu)
        notes.append(f"GPU {gpu} ({name}) is believed slower than the median, {shown}: look at it, or drain it")
    for app_class, suspects in scores.hunts():
        notes.append(f"one of these GPUs has become slow for class {app_class}: {_listed(cluster, suspects)}")
    return notes


def _listed(cluster: Cluster, gpus: Sequence[int]) -> str:
    names = [cluster.gpu_name(g) for g in gpus[:_SHOWN]]
    return ", ".join(names) + (f" and {len(gpus) - _SHOWN} more" if len(gpus) > _SHOWN else "")


def _names(jobs: Mapping[int, JobState]) -> str:
    names = [s.job.name for s in jobs.values()]
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
