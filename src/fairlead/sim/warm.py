"""Warm starts: a snapshot made ready for a simulation, which resumes from there; and the snapshot of a simulation.

The clock is the snapshot's own. Held jobs are left out. A training job whose work left is unknown gets a guess: the
mean of what is left of the known jobs of its profile and user, else of its profile, else of its user, else an hour.
Services without a known end run for ever, and no run waits for a service.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import polars as pl

from fairlead.errors import InputError
from fairlead.model.job import Job
from fairlead.model.profile import profile_named
from fairlead.model.profile_json import profile_as_dict
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy.view import View
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


def taken(view: View, policy: str, awake: Iterable[tuple[float, int]], history: Any) -> Snapshot:
    """The snapshot of a simulated world."""
    states = [cast(SimJob, s) for s in (*view.running.values(), *view.waiting.values())]
    profiles = {s.job.profile.name: s.job.profile for s in states}
    return Snapshot(
        view.now_s,
        policy,
        view.cluster,
        tuple(_saved(state, state.left_at(view.now_s)) for state in states),
        down=tuple(sorted(view.down)),
        asleep=tuple(sorted(view.asleep)),
        waking=tuple((node, moment_s) for moment_s, node in sorted(awake)),
        rented=tuple(sorted(view.rented_s.items())),
        drained=tuple(sorted(view.drained)),
        history=history,
        profiles=tuple(profile_as_dict(p) for name, p in profiles.items() if p != profile_named(name)),
    )


def resume(begin: Warm, arrivals: Iterator[tuple[Job, float]], view: View, jobs: Jobs, nodes: Nodes) -> None:
    """Put everything where it was. The jobs that are there are the first to arrive; those to come are left."""
    # Jobs are numbered anew, in the same order: those that have ended leave no gaps.
    numbered = {saved.id: row for saved, row in zip(begin.jobs, arrivals, strict=False)}
    jobs.put_back(begin.snapshot, numbered)
    for gpu in begin.snapshot.drained:
        view.drain(gpu)
    nodes.put_back(begin.snapshot)
    view.decided()


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
        1.0, job.deadline_s, job.priority, job.user, job.batch,
    )  # fmt: skip


def _saved(state: SimJob, left_s: float) -> SnapshotJob:
    job = state.job
    endless = job.kind == "service" and left_s == float("inf")
    return SnapshotJob(
        job.id, job.name, job.user, job.submit_s, job.gpus, job.min_gpus, job.max_gpus, job.memory_mib,
        job.profile.name, job.kind, job.priority, job.deadline_s, job.batch,
        state="running" if state.gpus else "waiting", placement=state.gpus, shared=state.shared,
        sm_share=state.sm_share, since_s=state.since_s, banked_gpu_s=state.banked_gpu_s, starts=state.starts,
        left_s=None if endless else max(left_s, 0.0),
        started_s=state.first_start_s if state.first_start_s >= 0.0 else None,
    )  # fmt: skip


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
