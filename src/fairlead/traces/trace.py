"""A trace: jobs in order of submission, as columns.

Every reader and generator ends in `Trace.from_columns`, so checks and defaults live in one place. Columns, always all
present and in this order:

| column | type | meaning |
|---|---|---|
| job_id | str | the job's name, unique |
| submit_s | float | seconds since the trace's start |
| gpus | int | GPUs asked for |
| duration_s | float | seconds it runs on that many median GPUs of one node |
| profile | str | what the job is like: the name of a profile |
| kind | str | `training` or `service` |
| min_gpus, max_gpus | int | the widths it can run on; both equal `gpus` for a rigid job |
| memory_mib | float | peak memory per GPU, 0 where unknown |
| gpu_frac | float | the part of a GPU asked for; below 1 only where `gpus` is 1 |
| deadline_s | float or null | seconds after submission by which it should be done |
| priority | int | larger is more urgent |
| user | str | owner |
| batch | int | the total batch it was submitted with, 0 where it is the job's own choice |
| group | str | the owner's group; one inside another is written `lab.vision` |
| cpus, ram_mib | float | CPU cores and memory of the host asked for, all together; 0 is none |
| vc | str | the virtual cluster, partition or queue that it was submitted to; policies do not see it |
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
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
    "profile": pl.String,
    "kind": pl.String,
    "min_gpus": pl.Int64,
    "max_gpus": pl.Int64,
    "memory_mib": pl.Float64,
    "gpu_frac": pl.Float64,
    "deadline_s": pl.Float64,
    "priority": pl.Int64,
    "user": pl.String,
    "batch": pl.Int64,
    "group": pl.String,
    "cpus": pl.Float64,
    "ram_mib": pl.Float64,
    "vc": pl.String,
}
REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
DEFAULTS: dict[str, Any] = {
    "profile": "generic",
    "kind": "training",
    "memory_mib": 0.0,
    "gpu_frac": 1.0,
    "priority": 0,
    "user": "",
    "batch": 0,
    "group": "",
    "cpus": 0.0,
    "ram_mib": 0.0,
    "vc": "",
}
"""What an empty cell means; an empty `min_gpus` or `max_gpus` is the job's `gpus`, an empty deadline is none."""
OF_JOBS = tuple(name for name in SCHEMA if name != "vc")
"""The columns that make a `Job`."""
SPLITS = ("vc", "user", "group", "profile", "kind")
"""The columns by which a trace can be split into parts with a cluster each."""
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
    """What the format knows of its jobs; others get the profile of that name in the catalogue."""
    wrap: Wrap | None = None
    notes: tuple[str, ...] = ()
    """What a reader wants to be known: rows skipped, columns guessed."""
    skipped_rows: int = 0

    @classmethod
    def from_columns(cls, frame: pl.DataFrame, *, names_checked: bool = False, **about: Any) -> Trace:
        """Fill in the columns that are absent, sort by submission (stable) and check the whole.

        `names_checked` says that all names are known to be there, and each job's once: dear to find out of millions.
        """
        lacking = [c for c in REQUIRED if c not in frame.columns]
        if lacking:
            raise InputError(f"a trace needs the columns {', '.join(REQUIRED)}; missing: {', '.join(lacking)}")
        try:
            known = frame.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items() if name in frame.columns)
        except pl.exceptions.PolarsError as error:
            raise InputError(f"a column of the trace has the wrong type: {error}") from error
        # Sorted before the defaults are filled in: those take no memory as long as nobody touches them.
        if not known["submit_s"].is_sorted():
            known = known.sort("submit_s", maintain_order=True)
        whole = known.with_columns(_filled(name, known) for name in SCHEMA).select(list(SCHEMA))
        _check(whole, [name for name in known.columns if not (names_checked and SCHEMA[name] == pl.String)])
        if not names_checked and not all_differ(whole["job_id"]):
            twice = whole.filter(pl.col("job_id").is_duplicated())["job_id"][0]
            raise InputError(f"job {twice!r} is in the trace more than once", hint="give every job a name of its own")
        return cls(whole, **about)

    def __len__(self) -> int:
        return self.frame.height

    def head(self, jobs: int) -> Trace:
        """The first jobs of it."""
        return replace(self, frame=self.frame.head(min(jobs, self.frame.height)))

    def split(self, column: str) -> dict[str, Trace]:
        """The jobs by what a column says, on the same clock; those of whom it says nothing are `(none)`."""
        if column not in SPLITS:
            raise InputError(f"a trace can't be split by {column!r}", hint=f"known: {', '.join(SPLITS)}")
        if self.wrap is not None:
            raise InputError(
                "a trace whose arrivals go on after its last row can't be split", hint="end it there with --no-wrap"
            )
        parts = self.frame.partition_by(column, maintain_order=True, as_dict=True)
        if set(parts) == {("",)}:
            raise InputError(
                f"{self.source or 'the trace'} does not say the {column} of its jobs",
                hint=f"known: {', '.join(SPLITS)}",
            )
        return {str(key[0]) or "(none)": replace(self, frame=frame) for key, frame in sorted(parts.items())}

    def profile(self, name: str) -> Profile:
        """What this trace's jobs of that profile are like."""
        found = self.profiles.get(name)
        return found if found is not None else profile_named(name)

    def training(self, known: Mapping[str, Training], gpus_per_node: int) -> Trace:
        """The same jobs, trained as those tables say: profiles that are known run by goodput, epoch by epoch.

        Durations become those on the GPUs asked for, on as few nodes as will do, at the best batch.
        """
        names = self.frame["profile"].unique().to_list()
        found = {name: known[name] for name in names if name in known}
        profiles = {m: replace(self.profile(m), training=t) for m, t in found.items()}
        asked = self.frame.select("profile", "gpus").unique().filter(pl.col("profile").is_in(list(found)))
        rows = [(m, k, whole_job_s(found[m], k, packed_nodes(k, gpus_per_node))) for m, k in asked.iter_rows()]
        schema = {"profile": pl.String, "gpus": pl.Int64, "trained_s": pl.Float64}
        seconds = pl.DataFrame(rows, schema=schema, orient="row")
        for name, gpus, trained_s in rows:
            if not math.isfinite(trained_s):
                raise InputError(f"a job of {name} asks for {gpus} GPUs: no batch of it feeds so many")
        frame = self.frame.join(seconds, on=["profile", "gpus"], how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("trained_s", "duration_s").alias("duration_s")).drop("trained_s")
        return replace(self, frame=frame.select(list(SCHEMA)), profiles={**self.profiles, **profiles})

    def arrivals(
        self, *, locality: Locality | None = None, restart_s: float | None = None
    ) -> Iterator[tuple[Job, float]]:
        """Each job with its true nominal duration, in order; without end where the trace wraps.

        Rows become objects a chunk at a time, so that a long trace is never in memory twice.
        """
        names = self.frame["profile"].unique().to_list()
        profiles = {name: self.profile(name).with_options(locality=locality, restart_s=restart_s) for name in names}
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
            columns = [chunk[name].to_list() for name in OF_JOBS]
            for number, row in enumerate(zip(*columns, strict=True), start=lap * len(self) + start):
                name, submit_s, gpus, duration_s, profile_name, kind, low, high, memory, *rest = row
                profile = profiles[profile_name]
                memory = memory or profile.memory_mib
                job = Job(number, name, submit_s, gpus, profile, kind, low, high, memory, *rest)
                yield job, duration_s


def _filled(name: str, known: pl.DataFrame) -> pl.Expr:
    """A column with what an empty cell means in the place of each."""
    default = pl.col("gpus") if name in ("min_gpus", "max_gpus") else pl.lit(DEFAULTS.get(name), SCHEMA[name])
    if name not in known.columns:
        return default.alias(name)
    return pl.col(name).fill_null(default) if known[name].null_count() else pl.col(name)


def _check(frame: pl.DataFrame, columns: Sequence[str]) -> None:
    """Every value of these columns within its rule; readers of files have said so before, with the line."""
    # A null deadline is none; any other null is wrong, and so is a comparison that gives one.
    good = {
        name: (RULES[name].good.fill_null(False) & pl.col(name).is_not_null())
        | (pl.col(name).is_null() & (name == "deadline_s"))
        for name in columns
    }
    fine = frame.select(good[name].all().alias(name) for name in good).row(0, named=True)
    for name in RULES:
        if name in good and not fine[name]:
            row = frame.filter(~good[name]).row(0, named=True)
            raise InputError(f"job {row['job_id']!r}, {name}: found {row[name]!r}, expected {RULES[name].expected}")


def all_differ(names: pl.Series) -> bool:
    """Whether every name is there once. Where all hashes differ, so do the names; only else are these compared."""
    hashes = np.sort(names.hash().to_numpy())
    return not (hashes[1:] == hashes[:-1]).any() or names.n_unique() == names.len()
