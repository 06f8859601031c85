"""Predictions and what-ifs: run on from a snapshot as things are, and as they might be, and compare the two.

`predict` says when each job starts and ends. `whatif` does so twice: as it is, and with another policy, more jobs, more
or fewer nodes. Jobs that have not been submitted yet are not foreseen, nodes that are down stay down, and a run time
that nobody knows is a guess, marked as such (sim/resume.py).

Totals count from now up to a horizon, which stands beside them: when the last training job ends that ends at all. Two
futures share the later of their horizons, so that the same hours are compared; services and jobs that never start move
no horizon.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fairlead.errors import InputError, did_you_mean
from fairlead.model.files import first_problem, read_text
from fairlead.model.interference import Interference, built_in
from fairlead.model.job import Kind
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy import registry
from fairlead.sim.edits import under, with_nodes
from fairlead.sim.result import Result
from fairlead.sim.resume import in_order
from fairlead.sim.simulation import Simulation

DEFAULT_INTERFERENCE = "eaco"
"""What jobs on one GPU cost each other, where the snapshot does not tell."""
SUMMED = (
    "mean_jct_s", "makespan_s", "horizon_s", "gpu_hours", "energy_j", "cost_usd", "missed_deadlines", "never_start",
    "never_end",
)  # fmt: skip
"""The figures of a prediction, in this order."""
_TOTALS = ("gpu_hours", "energy_j", "cost_usd")
_MOST_NODES = 100_000


_LARGE = 1_000_000_000
Count = Annotated[int, Field(ge=1, le=_LARGE)]


@dataclass(frozen=True, slots=True)
class ExtraJob:
    """A job that might be submitted now."""

    name: str = ""
    gpus: Count = 1
    gpu_frac: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The part of one GPU that it asks for."""
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    duration_s: Annotated[float, Field(ge=0.0, le=_LARGE)] | None = None
    """Alone on the GPUs asked for; a guess where it is unknown."""
    profile: str = "generic"
    kind: Kind = "training"
    priority: Annotated[int, Field(ge=-_LARGE, le=_LARGE)] = 0
    deadline_s: Annotated[float, Field(gt=0.0, le=_LARGE)] | None = None
    memory_mib: Annotated[float, Field(ge=0.0, le=_LARGE)] = 0.0
    user: str = ""
    batch: Annotated[int, Field(ge=0, le=_LARGE)] = 0
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
    """One future: what is expected of every job, and in all."""

    now_s: float
    policy: str
    cluster: str
    jobs: tuple[JobPrediction, ...]
    """In order of submission."""
    summary: dict[str, float | int | None]
    """The figures of `SUMMED`, over training jobs; GPU-hours, joules and dollars are those of all, from now on for
    `horizon_s`, and None where that is 0: then no training job is known to end."""
    notes: tuple[str, ...]
    is_fake: bool

    def as_json(self) -> dict[str, Any]:
        """The prediction in plain types."""
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
        """Above 0 is later; None where it does not end in both."""
        if self.as_is is None or self.what_if is None:
            return None
        return _difference(self.as_is.end_s, self.what_if.end_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two futures side by side: as it is, and what if."""

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
        """The comparison in plain types."""
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
    return _as_is(snapshot, seed).counted()


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
    stack = registry.build(policy or snapshot.policy, round_s=snapshot.round_s, seed=seed, read=read_text)
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
    futures = _as_is(snapshot, seed), _Future(other, policy or snapshot.policy, seed)
    until_s = max(future.last_s for future in futures)
    as_is, what_if = (future.counted(until_s) for future in futures)
    before, after = ({job.id: job for job in side.jobs} for side in (as_is, what_if))
    numbers = dict.fromkeys((*before, *after))
    changes = (JobChange(n, (before.get(n) or after[n]).name, before.get(n), after.get(n)) for n in numbers)
    return Comparison(tuple(changed), as_is, what_if, tuple(changes))


class _Future:
    """A snapshot run on under one policy."""

    def __init__(self, snapshot: Snapshot, policy: str, seed: int) -> None:
        self._snapshot, self._policy, self._seed = snapshot, policy, seed
        self._result = self._simulated()
        rows = self._result.jobs.select("first_start_s", "finish_s").rows()
        expected = zip(in_order(snapshot), rows, strict=True)
        self._jobs = tuple(_predicted(job, start_s, end_s, snapshot.now_s) for job, (start_s, end_s) in expected)
        ends = [job.end_s for job in self._jobs if job.kind == "training"]
        self.last_s = max((end_s for end_s in ends if end_s is not None), default=snapshot.now_s)
        """When the last training job ends, of those that do."""
        self._stops_there = None not in ends

    def counted(self, until_s: float | None = None) -> Prediction:
        """With totals up to a moment; without one, until the last job ends."""
        until_s = self.last_s if until_s is None else until_s
        # A run that gives jobs up goes on for long after the last end, so its totals are of no use.
        result = self._result if self._stops_there and until_s == self.last_s else self._simulated(until_s)
        now_s, told = self._snapshot.now_s, result.summary
        summary = _summary(self._jobs, now_s)
        summary["horizon_s"] = until_s - now_s
        for total in _TOTALS:
            summary[total] = told[total] if until_s > now_s else None
        return Prediction(
            now_s,
            result.policy,
            result.cluster,
            self._jobs,
            {key: summary[key] for key in SUMMED},
            self._result.notes,
            self._snapshot.is_fake,
        )

    def _simulated(self, until_s: float = math.inf) -> Result:
        snapshot, seed = self._snapshot, self._seed
        stack = registry.build(self._policy, round_s=snapshot.round_s, seed=seed, read=read_text)
        known = snapshot.interference or snapshot.history
        table = Interference.from_dict(known) if known is not None else built_in(DEFAULT_INTERFERENCE)
        return Simulation.from_snapshot(snapshot, stack, seed=seed, interference=table).run(until_s)


def _as_is(snapshot: Snapshot, seed: int) -> _Future:
    stack = registry.build(snapshot.policy, round_s=snapshot.round_s, seed=seed, read=read_text)
    return _Future(under(snapshot, stack), snapshot.policy, seed)


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


def _summary(jobs: Iterable[JobPrediction], now_s: float) -> dict[str, float | int | None]:
    training = [job for job in jobs if job.kind == "training"]
    last_s = max((job.end_s for job in training if job.end_s is not None), default=None)
    return {
        "mean_jct_s": _mean([job.jct_s for job in training if job.jct_s is not None]),
        "makespan_s": None if last_s is None else last_s - now_s,
        "missed_deadlines": _missed(training),
        "never_start": sum(job.start_s is None for job in training),
        "never_end": sum(job.end_s is None for job in training),
    }


def _extra(job: ExtraJob | Mapping[str, Any], number: int) -> ExtraJob:
    """Checked, and with a name."""
    given = asdict(job) if isinstance(job, ExtraJob) else dict(job)
    known = [field.name for field in fields(ExtraJob)]
    for name in given:
        if name not in known:
            raise InputError(f"job {number} to add: unknown field {name!r}", hint=did_you_mean(str(name), known))
    try:
        found = _EXTRA.validate_python(given)
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
            left_s=job.duration_s, gpu_frac=job.gpu_frac,
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
