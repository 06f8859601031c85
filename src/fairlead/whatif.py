"""Predictions and what-ifs: run on from a snapshot as things are, and as they might be, and compare the two.

`predict` says when each job starts and ends. `whatif` does so twice: as it is, and with another policy, more jobs, more
or fewer nodes. Jobs that have not been submitted yet are not foreseen, nodes that are down stay down, and a run time
that nobody knows is a guess, marked as such (sim/warm.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fairlead.errors import InputError
from fairlead.model.files import first_problem
from fairlead.model.interference import Interference, built_in
from fairlead.model.job import Kind
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy import registry
from fairlead.policy.stack import Stack
from fairlead.sim.altered import under, with_nodes
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.warm import in_order

DEFAULT_INTERFERENCE = "eaco"
"""What jobs on one GPU cost each other, where the snapshot has no history."""
SUMMED = ("mean_jct_s", "makespan_s", "gpu_hours", "energy_j", "cost_usd", "missed_deadlines", "never_end")
"""The figures of a prediction, in this order."""
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class ExtraJob:
    """A job that might be submitted now."""

    name: str = ""
    gpus: int = 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    duration_s: float | None = None
    """Alone on the GPUs asked for; a guess where it is unknown."""
    profile: str = "generic"
    kind: Kind = "training"
    priority: int = 0
    deadline_s: float | None = None
    memory_mib: float = 0.0
    user: str = ""
    batch: int = 0
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


_EXTRA = TypeAdapter(ExtraJob)


@dataclass(frozen=True, slots=True)
class JobPrediction:
    """What is expected of one job; moments are on the snapshot's clock, None is never."""

    id: int
    name: str
    user: str
    kind: Kind
    state: Literal["running", "waiting"]
    """In the snapshot."""
    gpus: int
    start_s: float | None
    """When it started, if it runs; else when it starts, or starts again."""
    end_s: float | None
    """Services have none."""
    wait_s: float | None
    """From now until it starts; 0 if it runs."""
    jct_s: float | None
    """From submission to its end."""
    meets_deadline: bool | None
    """None without a deadline."""
    is_guess: bool
    """Whether its own run time is a guess; those of others may be, and move it all the same."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One future."""

    now_s: float
    policy: str
    cluster: str
    jobs: tuple[JobPrediction, ...]
    """In order of submission."""
    summary: dict[str, float | int | None]
    """The figures of `SUMMED`: over training jobs, and from now until the last of them ends."""
    notes: tuple[str, ...]
    is_fake: bool

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        return {**asdict(self), "jobs": [asdict(job) for job in self.jobs], "notes": [*self.notes]}


@dataclass(frozen=True, slots=True)
class JobChange:
    """One job in both futures; None where it is not there."""

    id: int
    name: str
    as_is: JobPrediction | None
    what_if: JobPrediction | None

    @property
    def start_change_s(self) -> float | None:
        """Above 0 is later; None where it does not start in both."""
        if self.as_is is None or self.what_if is None:
            return None
        return _difference(self.as_is.start_s, self.what_if.start_s)

    @property
    def end_change_s(self) -> float | None:
        """Likewise."""
        if self.as_is is None or self.what_if is None:
            return None
        return _difference(self.as_is.end_s, self.what_if.end_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two futures."""

    changed: tuple[str, ...]
    """What is different in the second, in a few words each."""
    as_is: Prediction
    what_if: Prediction
    jobs: tuple[JobChange, ...]

    @property
    def summary(self) -> dict[str, tuple[float | int | None, float | int | None]]:
        """The figures of both; mean JCT and missed deadlines over the jobs that are in both, so that they compare."""
        rows = {key: (self.as_is.summary[key], self.what_if.summary[key]) for key in SUMMED}
        both = [(c.as_is, c.what_if) for c in self.jobs if c.as_is is not None and c.what_if is not None]
        ended = [(a.jct_s, b.jct_s) for a, b in both if a.jct_s is not None and b.jct_s is not None]
        rows["mean_jct_s"] = (_mean([a for a, _ in ended]), _mean([b for _, b in ended]))
        rows["missed_deadlines"] = (_missed([a for a, _ in both]), _missed([b for _, b in both]))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "changed": [*self.changed],
            "summary": {key: {"as_is": a, "what_if": b} for key, (a, b) in self.summary.items()},
            "jobs": [
                {"id": c.id, "name": c.name, "start_change_s": c.start_change_s, "end_change_s": c.end_change_s}
                for c in self.jobs
            ],
            "as_is": self.as_is.as_json(),
            "what_if": self.what_if.as_json(),
        }


def predict(snapshot: Snapshot, *, seed: int = 0) -> Prediction:
    """When each job starts and ends if nothing else happens.

    Jobs that a policy before the present one has placed share as the present one would have them.
    """
    stack = _stack(snapshot, snapshot.policy, seed)
    return _run(under(snapshot, stack), stack, seed)


def whatif(
    snapshot: Snapshot,
    *,
    policy: str | None = None,
    jobs: Iterable[ExtraJob | Mapping[str, Any]] = (),
    nodes: int = 0,
    seed: int = 0,
) -> Comparison:
    """As it is, against another policy, `jobs` that are submitted now, `nodes` more (copies of the last) or fewer.

    Of nodes that go, idle ones go first; jobs on the others go back into the queue.
    """
    if not -_MOST_NODES <= nodes <= _MOST_NODES:
        raise InputError(f"nodes: found {nodes}, expected {-_MOST_NODES} to {_MOST_NODES}")
    extra = [_extra(job, number) for number, job in enumerate(jobs, start=1)]
    stack = _stack(snapshot, policy or snapshot.policy, seed)
    other, changed = snapshot, []
    if policy is not None:
        other = under(other, stack)
        changed.append(f"policy {policy}")
    if nodes:
        other = with_nodes(other, nodes, rents=stack.powering.rents)
        changed.append(f"{abs(nodes)} node{'s' * (abs(nodes) > 1)} {'more' if nodes > 0 else 'fewer'}")
    if extra:
        other = _with_jobs(other, extra)
        changed.append(f"{len(extra)} job{'s' * (len(extra) > 1)} more")
    as_is, what_if = predict(snapshot, seed=seed), _run(other, stack, seed)
    before, after = ({job.id: job for job in side.jobs} for side in (as_is, what_if))
    numbers = dict.fromkeys((*before, *after))
    changes = (JobChange(n, (before.get(n) or after[n]).name, before.get(n), after.get(n)) for n in numbers)
    return Comparison(tuple(changed), as_is, what_if, tuple(changes))


def _stack(snapshot: Snapshot, policy: str, seed: int) -> Stack:
    """With what was measured of sharing, if it keeps such a history."""
    stack = registry.build(policy, seed=seed)
    if snapshot.history is not None and stack.sharing.learnt is not None:
        stack.sharing.learn_from(Interference.from_dict(snapshot.history))
    return stack


def _run(snapshot: Snapshot, stack: Stack, seed: int) -> Prediction:
    history = snapshot.history
    table = Interference.from_dict(history) if history is not None else built_in(DEFAULT_INTERFERENCE)
    result = Simulation.from_snapshot(snapshot, stack, seed=seed, interference=table).run()
    rows = result.jobs.select("first_start_s", "finish_s").rows()
    expected = zip(in_order(snapshot), rows, strict=True)
    jobs = tuple(_predicted(job, start_s, end_s, snapshot.now_s) for job, (start_s, end_s) in expected)
    summary = _summary(result, jobs, snapshot.now_s)
    return Prediction(snapshot.now_s, result.policy, result.cluster, jobs, summary, result.notes, snapshot.is_fake)


def _predicted(job: SnapshotJob, start_s: float | None, end_s: float | None, now_s: float) -> JobPrediction:
    runs = job.state == "running"
    jct_s = None if end_s is None else end_s - job.submit_s
    # Half a microsecond of slack, as in results: a job that was promised its exact run time is not late by rounding.
    in_time = None if job.deadline_s is None else jct_s is not None and jct_s <= job.deadline_s + 5e-7
    return JobPrediction(
        id=job.id,
        name=job.name,
        user=job.user,
        kind=job.kind,
        state="running" if runs else "waiting",
        gpus=job.gpus,
        start_s=start_s,
        end_s=end_s,
        wait_s=0.0 if runs else None if start_s is None else start_s - now_s,
        jct_s=jct_s,
        meets_deadline=in_time if job.kind == "training" else None,
        is_guess=job.left_s is None and job.kind == "training",
    )


def _summary(result: Result, jobs: Iterable[JobPrediction], now_s: float) -> dict[str, float | int | None]:
    training = [job for job in jobs if job.kind == "training"]
    told = result.summary
    last_s = max((job.end_s for job in training if job.end_s is not None), default=None)
    return {
        "mean_jct_s": _mean([job.jct_s for job in training if job.jct_s is not None]),
        "makespan_s": None if last_s is None else last_s - now_s,
        "gpu_hours": told["gpu_hours"],
        "energy_j": told["energy_j"],
        "cost_usd": told["cost_usd"],
        "missed_deadlines": _missed(training),
        "never_end": sum(job.end_s is None for job in training),
    }


def _extra(job: ExtraJob | Mapping[str, Any], number: int) -> ExtraJob:
    """Checked, and with a name."""
    try:
        found = _EXTRA.validate_python(asdict(job) if isinstance(job, ExtraJob) else dict(job))
    except ValidationError as error:
        raise InputError(f"job {number} to add: {first_problem(error)}", hint=_EXTRA_HINT) from None
    return replace(found, name=found.name or f"new-{number}")


_EXTRA_HINT = "for example gpus=4, duration_s=3600, profile=BERT"


def _with_jobs(snapshot: Snapshot, extra: Iterable[ExtraJob]) -> Snapshot:
    """These are submitted now, after all others."""
    first = max((job.id for job in snapshot.jobs), default=0) + 1
    now_s = snapshot.now_s
    made = [
        SnapshotJob(
            number, job.name, job.user, now_s, job.gpus, job.min_gpus or job.gpus, job.max_gpus or job.gpus,
            job.memory_mib, job.profile, job.kind, job.priority, job.deadline_s, job.batch, since_s=now_s,
            left_s=job.duration_s,
        )
        for number, job in enumerate(extra, start=first)
    ]  # fmt: skip
    return replace(snapshot, jobs=(*snapshot.jobs, *made))


def _missed(jobs: Iterable[JobPrediction]) -> int:
    return sum(job.meets_deadline is False for job in jobs)


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _difference(before_s: float | None, after_s: float | None) -> float | None:
    return None if before_s is None or after_s is None else after_s - before_s
