"""A trace: jobs in order of submission, as columns.

Every reader and generator ends in `Trace.from_columns`, so checks and defaults live in one place. Columns, always all
present and in this order:

| column | type | meaning |
|---|---|---|
| job_id | str | the job's name, unique |
| submit_s | float | seconds since the trace's start |
| gpus | int | GPUs asked for |
| duration_s | float | seconds it runs on that many median GPUs of one node |
| model | str | application, the name of a profile |
| kind | str | `training` or `service` |
| min_gpus, max_gpus | int | the widths it can run on; both equal `gpus` for a rigid job |
| memory_mib | float | peak memory per GPU, 0 where unknown |
| gpu_frac | float | the part of each GPU asked for, 1 but for fractional pods |
| deadline_s | float or null | seconds after submission by which it should be done |
| priority | int | larger is more urgent |
| user | str | owner |
| batch | int | the total batch it was submitted with, 0 where it is the job's own choice |
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from fairlead.errors import InputError
from fairlead.model.job import Job
from fairlead.model.profile import Locality, Profile, profile_named
from fairlead.model.training import Training, packed_nodes, whole_job_s
from fairlead.traces.rules import RULES

SCHEMA: dict[str, Any] = {
    "job_id": pl.String,
    "submit_s": pl.Float64,
    "gpus": pl.Int64,
    "duration_s": pl.Float64,
    "model": pl.String,
    "kind": pl.String,
    "min_gpus": pl.Int64,
    "max_gpus": pl.Int64,
    "memory_mib": pl.Float64,
    "gpu_frac": pl.Float64,
    "deadline_s": pl.Float64,
    "priority": pl.Int64,
    "user": pl.String,
    "batch": pl.Int64,
}
REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
DEFAULTS: dict[str, Any] = {
    "model": "generic",
    "kind": "training",
    "memory_mib": 0.0,
    "gpu_frac": 1.0,
    "priority": 0,
    "user": "",
    "batch": 0,
}
"""What an empty cell means; an empty `min_gpus` or `max_gpus` is the job's `gpus`, an empty deadline is none."""
_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class Wrap:
    """After its last row the trace starts again from its first, with Poisson arrivals, until the measured jobs end.

    Sia-Philly traces are meant to be run so: the cluster stays loaded while the last jobs finish. The gap before each
    further job is `ceil(-ln(1-u) / rate)` seconds, `u` from `random.Random(seed)`.
    """

    rate_per_h: float = 2.0
    seed: int = 1

    def gaps_s(self) -> Iterator[int]:
        """Seconds between arrivals, for ever."""
        rng = random.Random(self.seed)
        while True:
            yield math.ceil(-math.log(1.0 - rng.random()) / self.rate_per_h * 3600.0)


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission."""

    frame: pl.DataFrame
    format: str = "fairlead"
    source: str = ""
    """Where it came from, for messages and reports."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """What the format knows of its applications; others get the built-in profile of that name."""
    wrap: Wrap | None = None
    notes: tuple[str, ...] = ()
    """What a reader wants to be known: rows skipped, columns guessed."""
    skipped_rows: int = 0

    @classmethod
    def from_columns(cls, frame: pl.DataFrame, **about: Any) -> Trace:
        """Fill in the columns that are absent, sort by submission (stable) and check the whole."""
        lacking = [c for c in REQUIRED if c not in frame.columns]
        if lacking:
            raise InputError(f"a trace needs the columns {', '.join(REQUIRED)}; missing: {', '.join(lacking)}")
        absent = [pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items() if name not in frame.columns]
        try:
            whole = frame.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
        except pl.exceptions.PolarsError as error:
            raise InputError(f"a column of the trace has the wrong type: {error}") from error
        filled = whole.with_columns(
            *(pl.col(name).fill_null(value) for name, value in DEFAULTS.items()),
            *(pl.col(name).fill_null(pl.col("gpus")) for name in ("min_gpus", "max_gpus")),
        )
        _check(filled)
        return cls(filled.sort("submit_s", maintain_order=True), **about)

    def __len__(self) -> int:
        return self.frame.height

    def head(self, jobs: int) -> Trace:
        """The first jobs of it."""
        return replace(self, frame=self.frame.head(jobs))

    def profile(self, model: str) -> Profile:
        """The profile of one application in this trace."""
        found = self.profiles.get(model)
        return found if found is not None else profile_named(model)

    def training(self, known: Mapping[str, Training], gpus_per_node: int) -> Trace:
        """The same jobs, trained as those tables say: applications that are known run by goodput, epoch by epoch.

        Durations become those on the GPUs asked for, on as few nodes as will do, at the best batch.
        """
        models = self.frame["model"].unique().to_list()
        found = {m: known[m] for m in models if m in known}
        profiles = {m: replace(self.profile(m), training=t) for m, t in found.items()}
        asked = self.frame.select("model", "gpus").unique().filter(pl.col("model").is_in(list(found)))
        rows = [(m, k, whole_job_s(found[m], k, packed_nodes(k, gpus_per_node))) for m, k in asked.iter_rows()]
        schema = {"model": pl.String, "gpus": pl.Int64, "trained_s": pl.Float64}
        seconds = pl.DataFrame(rows, schema=schema, orient="row")
        for model, gpus, trained_s in rows:
            if not math.isfinite(trained_s):
                raise InputError(f"a job of {model} asks for {gpus} GPUs: no batch of it feeds so many")
        frame = self.frame.join(seconds, on=["model", "gpus"], how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("trained_s", "duration_s").alias("duration_s")).drop("trained_s")
        return replace(self, frame=frame.select(list(SCHEMA)), profiles={**self.profiles, **profiles})

    def arrivals(
        self, *, locality: Locality | None = None, restart_s: float | None = None
    ) -> Iterator[tuple[Job, float]]:
        """Each job with its true nominal duration, in order; without end where the trace wraps.

        Rows become objects a chunk at a time, so that a long trace is never in memory twice.
        """
        models = self.frame["model"].unique().to_list()
        profiles = {m: self.profile(m).with_options(locality=locality, restart_s=restart_s) for m in models}
        yield from self._lap(0, profiles)
        if self.wrap is None or not len(self):
            return
        gaps_s, clock_s = self.wrap.gaps_s(), float(self.frame["submit_s"][-1])
        for lap in itertools.count(1):
            for job, duration_s in self._lap(lap, profiles):
                clock_s += next(gaps_s)
                yield replace(job, name=f"{job.name}+{lap}", submit_s=clock_s), duration_s

    def _lap(self, lap: int, profiles: Mapping[str, Profile]) -> Iterator[tuple[Job, float]]:
        """All rows once, numbered on from the laps before."""
        for start in range(0, len(self), _CHUNK):
            chunk = self.frame.slice(start, _CHUNK)
            columns = [chunk[name].to_list() for name in SCHEMA]
            for number, row in enumerate(zip(*columns, strict=True), start=lap * len(self) + start):
                name, submit_s, gpus, duration_s, model, kind, low, high, memory, *rest = row
                profile = profiles[model]
                memory = memory or profile.memory_mib
                job = Job(number, name, submit_s, gpus, profile, kind, low, high, memory, *rest)
                yield job, duration_s


def _check(frame: pl.DataFrame) -> None:
    """Every value within its rule and every name once; readers of files have said so before, with the line."""
    for name, rule in RULES.items():
        # A null deadline is none; any other null is wrong, and so is a comparison that gives one.
        good = rule.good.fill_null(False) & pl.col(name).is_not_null()
        wrong = frame.filter(~(good | pl.col(name).is_null()) if name == "deadline_s" else ~good)
        if wrong.height:
            row = wrong.row(0, named=True)
            raise InputError(f"job {row['job_id']!r}, {name}: found {row[name]!r}, expected {rule.expected}")
    if frame["job_id"].n_unique() < frame.height:
        twice = frame.filter(pl.col("job_id").is_duplicated())["job_id"][0]
        raise InputError(f"job {twice!r} is in the trace more than once", hint="give every job a name of its own")
