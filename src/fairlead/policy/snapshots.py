"""What a prediction starts from: the snapshot of a driver, and a driver that goes on from a snapshot.

A driver that is restored decides as the one that was saved would have: it knows what the policy has learnt, what has
happened since it was asked, and when it wants to be asked again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.model.job import Job
from fairlead.model.profile import Profile, profile_named
from fairlead.model.profile_json import profile_as_dict
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy.changes import Changes
from fairlead.policy.driver import Driver
from fairlead.policy.working_job import NEVER, WorkingJob

_OF_JOB = (
    "id", "name", "user", "submit_s", "gpus", "min_gpus", "max_gpus", "memory_mib", "kind", "priority", "deadline_s",
    "batch", "group", "gpu_frac", "cpus", "ram_mib",
)  # fmt: skip
_OF_STATE = ("shared", "sm_share", "since_s", "banked_gpu_s", "starts", "first_width", "taken_gpus", "left_width")
_SAME = 1e-6
"""Work that differs by less is the same, but for rounding."""
_IN_SYSTEM = ("arrived", "returned", "withdrawn", "retimed", "turned")
"""The changes that name jobs which are not over."""


def saved_job(job: WorkingJob, now_s: float, **about: Any) -> SnapshotJob:
    """A job as it is now; `about` goes before what the job itself says."""
    left_s = max(job.left_at(now_s), 0.0)
    values = {
        **{name: getattr(job.job, name) for name in _OF_JOB},
        **{name: getattr(job, name) for name in _OF_STATE},
        "profile": job.job.profile.name,
        "state": "running" if job.gpus else "waiting",
        "placement": job.gpus,
        "left_s": left_s if left_s < NEVER else None,
        "done_s": max(job.done_s(now_s), 0.0),
        "epoch_s": None if job.epoch_s == job.job.profile.epoch_s else job.epoch_s,
    }
    if job.gpus and left_s < NEVER:
        values |= {"progress_s": job.progress_from_s, "progress_left_s": max(job.left_s, 0.0)}
    return SnapshotJob(**{**values, **about})


def take(driver: Driver[Any], jobs: Iterable[SnapshotJob], ended: Iterable[SnapshotJob] = (), **about: Any) -> Snapshot:
    """A driver as it is now, with its jobs as its world describes them; `about` is what else the world knows."""
    view, stack, changes = driver.view, driver.stack, driver.view.changes
    learnt = stack.sharing.learnt
    told = {name: tuple(state.job.id for state in getattr(changes, name)) for name in _IN_SYSTEM}
    told |= {"nodes": tuple(changes.nodes)}
    return Snapshot(
        now_s=view.now_s,
        policy=stack.spec,
        cluster=view.cluster,
        jobs=tuple(jobs),
        down=tuple(sorted(view.down)),
        asleep=tuple(sorted(view.asleep)),
        waking=tuple((node, driver.awake_s(node)) for node in sorted(view.waking)),
        rented=tuple(sorted(view.rented_s.items())),
        drained=tuple(sorted(view.drained)),
        history=None if learnt is None else learnt.to_dict(),
        round_s=stack.round_s,
        knowledge=stack.knowledge(),
        asked_s=driver.next_s if driver.next_s < NEVER else None,
        changes={name: numbers for name, numbers in told.items() if numbers},
        ended=tuple(ended),
        **about,
    )


def profiles_of(jobs: Iterable[Profile]) -> tuple[dict[str, Any], ...]:
    """Those that are not built in, as a snapshot carries them."""
    by_name = {profile.name: profile for profile in jobs}
    return tuple(profile_as_dict(p) for name, p in by_name.items() if p != profile_named(name))


def job_of(saved: SnapshotJob, profile: Profile) -> Job:
    """What its owner has described."""
    values = {name: getattr(saved, name) for name in _OF_JOB}
    return Job(**{**values, "memory_mib": saved.memory_mib or profile.memory_mib}, profile=profile)


def recall_service(job: WorkingJob, saved: SnapshotJob, now_s: float) -> None:
    """The service that it has had, and how far it has come."""
    for name in _OF_STATE:
        setattr(job, name, getattr(saved, name))
    if saved.starts and not saved.first_width:  # a snapshot that somebody has written by hand
        job.first_width = job.taken_gpus = len(saved.placement) or saved.gpus
    job.duration_s = saved.done_s + job.left_s
    job.epoch_s = saved.epoch_s or job.epoch_s
    if saved.placement:
        job.run_from_s = saved.since_s + (job.job.profile.restart_s if saved.starts > 1 else 0.0)
        job.progress_from_s = max(now_s, job.run_from_s)


def recall_progress(job: WorkingJob, saved: SnapshotJob, now_s: float) -> bool:
    """Count from when it took its speed, so that no rounding moves its end; False if it had another speed then."""
    from_s, left_s = saved.progress_s, saved.progress_left_s
    if from_s is None or left_s is None:
        return False
    left_now_s = left_s - max(0.0, now_s - from_s) * job.speed
    if not math.isclose(left_now_s, job.left_at(now_s), rel_tol=_SAME, abs_tol=_SAME):
        return False
    job.progress_from_s, job.left_s = from_s, left_s
    return True


def restore(driver: Driver[Any], snapshot: Snapshot, jobs: Mapping[int, WorkingJob]) -> None:
    """Put everything where it was. `jobs` has those that take part, with what they have had (`recall_service`)."""
    view = driver.view
    view.now_s = snapshot.now_s
    here = [saved for saved in snapshot.jobs if saved.id in jobs]
    driver.restore(
        (jobs[s.id] for s in here if not s.placement),
        [(jobs[s.id], s.placement, s.shared, s.sm_share) for s in here if s.placement],
    )
    for gpu in snapshot.drained:
        view.drain(gpu)
    driver.restore_nodes(snapshot.down, snapshot.asleep, dict(snapshot.waking), dict(snapshot.rented))
    view.decided()
    is_same = driver.recall(snapshot.policy, snapshot.knowledge, snapshot.history, missed=False)
    driver.wake_s = snapshot.now_s
    if is_same:
        view.changes = _changes(snapshot, jobs)
        driver.wake_s = NEVER if snapshot.asked_s is None else max(snapshot.asked_s, snapshot.now_s)
    driver.separate()


def _changes(snapshot: Snapshot, jobs: Mapping[int, WorkingJob]) -> Changes:
    found = Changes(nodes=list(snapshot.changes.get("nodes", ())))
    for name in _IN_SYSTEM:
        getattr(found, name).extend(jobs[j] for j in snapshot.changes.get(name, ()) if j in jobs)
    for saved in snapshot.ended:
        job = WorkingJob(job_of(saved, snapshot.profile(saved.profile)), 0.0)
        recall_service(job, saved, snapshot.now_s)
        found.ended.append(job)
    return found
