"""Simulations that begin in the middle: a snapshot made ready for one, and the snapshot of one.

The clock is the snapshot's own, and jobs keep their numbers, as what the policy has learnt goes by these. Held jobs are
left out. A training job whose work left is unknown gets a guess: the mean of what is left of the known jobs of its
profile and user, else of its profile, else of its user, else an hour. Services without a known end run for ever, and no
run waits for a service.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fairlead.errors import InputError
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy import snapshots
from fairlead.policy.driver import Driver
from fairlead.sim.jobs import Jobs
from fairlead.sim.nodes import Nodes
from fairlead.sim.simjob import SimJob
from fairlead.traces.trace import SCHEMA, Trace

GUESS_S = 3600.0
"""Of work left, where nothing is known of any job that is like it."""
_LEAST_S = 1e-6
"""A job that has nothing left ends at once, not before."""
_SHOWN = 5
_ALIKE: tuple[tuple[str, Callable[[SnapshotJob], object]], ...] = (
    ("profile and user", lambda job: (job.profile, job.user)),
    ("profile", lambda job: job.profile),
    ("user", lambda job: job.user),
)


@dataclass(frozen=True, slots=True)
class Warm:
    """What a simulation starts from."""

    snapshot: Snapshot
    jobs: tuple[SnapshotJob, ...]
    """Those in the system, in order of submission: the first rows of the trace."""
    trace: Trace
    """These and those to come; its durations are what is left."""

    @property
    def services(self) -> frozenset[int]:
        """The rows that no run waits for."""
        kinds = self.trace.frame["kind"].to_list()
        return frozenset(row for row, kind in enumerate(kinds) if kind == "service")

    @property
    def row_of(self) -> dict[int, int]:
        """By the number of a job."""
        here = {job.id: row for row, job in enumerate(self.jobs)}
        return here | {self._first_later + n: len(here) + n for n in range(len(self.trace) - len(here))}

    def later(self, arrivals: Iterator[tuple[Job, float]]) -> Iterator[tuple[Job, float]]:
        """Of the rows, those to come, with numbers after all others."""
        for row, (job, duration_s) in enumerate(arrivals):
            if row >= len(self.jobs):
                yield replace(job, id=self._first_later + row - len(self.jobs)), duration_s

    @property
    def _first_later(self) -> int:
        return max((job.id for job in self.snapshot.jobs), default=-1) + 1


def in_order(snapshot: Snapshot) -> tuple[SnapshotJob, ...]:
    """The jobs that take part, in order of submission."""
    return tuple(sorted((j for j in snapshot.jobs if j.state != "held"), key=lambda j: (j.submit_s, j.id)))


def warm(snapshot: Snapshot, later: Trace | None = None) -> Warm:
    """Make a snapshot ready; `later` has jobs that come after its moment."""
    jobs = in_order(snapshot)
    left_s, guessed = _work_left(jobs)
    columns = [_row(job, left) for job, left in zip(jobs, left_s, strict=True)]
    frame = pl.DataFrame(columns, schema=SCHEMA, orient="row")
    profiles = {job.profile: snapshot.profile(job.profile) for job in jobs}
    if later is not None:
        if len(later) and later.frame["submit_s"].min() < snapshot.now_s:  # type: ignore[operator]
            raise InputError(f"a job to come is submitted before the snapshot's moment, {snapshot.now_s:g} s")
        frame = pl.concat([frame, later.frame])
        profiles = {**later.profiles, **profiles}
    notes = (*_about_held(snapshot), *guessed, *(later.notes if later is not None else ()))
    trace = Trace(frame, format="snapshot", source="snapshot", profiles=profiles, notes=notes)
    return Warm(snapshot, jobs, trace)


def taken(driver: Driver[SimJob], paid_gpu_s: float) -> Snapshot:
    """The snapshot of a simulated world."""
    now_s, jobs = driver.view.now_s, driver.jobs.values()
    profiles = snapshots.profiles_of(job.job.profile for job in jobs)
    return snapshots.take(driver, (_saved(job, now_s) for job in jobs), profiles=profiles, paid_gpu_s=paid_gpu_s)


def resume(begin: Warm, driver: Driver[SimJob], jobs: Jobs, nodes: Nodes) -> None:
    """Put everything where it was."""
    snapshot, made = begin.snapshot, dict[int, SimJob]()
    for saved, left_s in zip(begin.jobs, begin.trace.frame["duration_s"].to_list(), strict=False):
        job = made[saved.id] = jobs.made(snapshots.job_of(saved, snapshot.profile(saved.profile)), left_s)
        snapshots.recall_service(job, saved, snapshot.now_s)
        job.held_s = saved.banked_gpu_s / (saved.gpus * saved.gpu_frac)
        job.active_job_s_before = -1.0
        if saved.placement:
            job.first_start_s = saved.since_s if saved.started_s is None else saved.started_s
    snapshots.restore(driver, snapshot, made)
    jobs.resume()
    for saved in begin.jobs:
        if saved.placement and made[saved.id].gpus:
            jobs.resume_progress(made[saved.id], saved)
    nodes.resume()


def _work_left(jobs: tuple[SnapshotJob, ...]) -> tuple[list[float], list[str]]:
    """What is left of each, and what should be known of the guesses."""
    known: dict[tuple[str, object], list[float]] = {}
    for job in jobs:
        if job.left_s is not None and job.kind == "training":
            for what, key in _ALIKE:
                known.setdefault((what, key(job)), []).append(job.left_s)
    means = {alike: statistics.fmean(values) for alike, values in known.items()}
    found: list[float] = []
    guessed: dict[str, list[str]] = {}
    for job in jobs:
        if job.left_s is not None:
            found.append(max(job.left_s, _LEAST_S))
        elif job.kind == "service":
            found.append(float("inf"))
        else:
            left_s, how = _guess(job, means)
            found.append(max(left_s, _LEAST_S))
            guessed.setdefault(how, []).append(job.name)
    return found, [f"run time unknown, {how}: {_listed(names)}" for how, names in guessed.items()]


def _guess(job: SnapshotJob, means: Mapping[tuple[str, object], float]) -> tuple[float, str]:
    for what, key in _ALIKE:
        mean_s = means.get((what, key(job)))
        if mean_s is not None:
            return mean_s, f"guessed from jobs of the same {what}"
    return GUESS_S, f"guessed as {GUESS_S:g} s"


def _about_held(snapshot: Snapshot) -> list[str]:
    held = [job.name for job in snapshot.jobs if job.state == "held"]
    return [f"held jobs are left out: {_listed(held)}"] if held else []


def _row(job: SnapshotJob, left_s: float) -> tuple[Any, ...]:
    """In the order of `SCHEMA`."""
    return (
        job.name, job.submit_s, job.gpus, left_s, job.profile, job.kind, job.min_gpus, job.max_gpus, job.memory_mib,
        job.gpu_frac, job.deadline_s, job.priority, job.user, job.batch, job.group, job.cpus, job.ram_mib, "",
    )  # fmt: skip


def _saved(job: SimJob, now_s: float) -> SnapshotJob:
    return snapshots.saved_job(job, now_s, started_s=job.first_start_s if job.first_start_s >= 0.0 else None)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
