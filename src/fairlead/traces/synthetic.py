"""Synthetic traces: arrivals and sizes drawn from known distributions, the same for the same seed.

| name | jobs |
|---|---|
| poisson | Poisson arrivals, one width, sizes of a chosen distribution |
| daily | the same with a sinusoidal daily rate |
| bursts | the same in batches that arrive at one moment |
| philly | widths, durations and daily rhythm like Microsoft's Philly, at a chosen load |
| services | services on one GPU each that last the whole horizon |
| fleet | services with a daily load, and best-effort jobs for their GPUs |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from fairlead.errors import InputError, did_you_mean
from fairlead.model.profile import Amdahl, Profile, profile_named
from fairlead.model.service import daily
from fairlead.traces import draws, philly_like
from fairlead.traces.options import Option, above_0, between, one_of, split_spec, values_of, whole_from
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

Values = Mapping[str, Any]
Make = Callable[[np.random.Generator, int, Values], dict[str, Any]]
PROFILES = ("resnet50", "vgg19", "DCGAN", "BERT", "GPT2", "PointNet")
"""The profiles of synthetic jobs: those that are built in, all as often."""
PARALLEL_FRACS = {"resnet50": 0.94, "vgg19": 0.9, "DCGAN": 0.78, "BERT": 0.96, "GPT2": 0.98, "PointNet": 0.5}
"""Of elastic jobs, Amdahl's parallel fraction. Made up, but as far apart as those of Pollux's six applications, whose
speedups on 16 T4 (4 for the least) come to 0.98, 0.96, 0.94, 0.94, 0.78 and 0.51 (formats/pollux.py)."""
ELASTIC_GPUS = 64
"""The most that an elastic job can use, unless it asks for more."""
_DEFAULT_CV = 2.0
_CV_BY_DEFAULT = 0.0
"""How an option that was not given reads; no size distribution has it as a value."""


@dataclass(frozen=True, slots=True)
class Generator:
    """One kind of synthetic trace."""

    about: str
    make: Make
    options: Mapping[str, Option]
    jobs: int = 1000
    """How many, unless told."""
    whole: Callable[[Values], Trace] | None = None
    """Makes the whole trace, where jobs are not drawn one like the other."""


def generate(spec: str, *, jobs: int | None = None, seed: int = 0) -> Trace:
    """A synthetic trace from `name[:option=value...]`, for example `poisson:rate_per_h=60:mean_s=600`.

    `jobs` and `seed` can also be given as options, which then win: a spec says all there is to know.
    """
    name, written = split_spec(spec)
    if name not in GENERATORS:
        raise InputError(f"unknown synthetic trace {name!r}", hint=did_you_mean(name, GENERATORS))
    generator = GENERATORS[name]
    options = {
        "jobs": whole_from(1, generator.jobs, "a whole number of jobs"),
        "seed": whole_from(0, 0, "a whole number"),
        **generator.options,
    }
    asked = {"seed": str(seed), **({} if jobs is None else {"jobs": str(jobs)}), **written}
    values = values_of(options, asked, name)
    if generator.whole is not None:
        said = ":".join([name, *(f"{key}={value}" for key, value in asked.items())])
        return replace(generator.whole(values), source=f"synthetic:{said}")
    rng = np.random.default_rng(values["seed"])
    count: int = values["jobs"]
    columns = generator.make(rng, count, values)
    profile = pl.Series(PROFILES)[rng.integers(len(PROFILES), size=count)]
    frame = pl.DataFrame({"job_id": pl.int_range(count, eager=True).cast(pl.String), "profile": profile, **columns})
    profiles: dict[str, Profile] = {}
    if values.get("elastic") == "true":
        most = pl.max_horizontal("gpus", pl.lit(ELASTIC_GPUS))
        frame = frame.with_columns(pl.lit(1).alias("min_gpus"), most.alias("max_gpus"))
        profiles = {m: replace(profile_named(m), speedup=Amdahl(f)) for m, f in PARALLEL_FRACS.items()}
    said = ":".join([name, *(f"{key}={value}" for key, value in {"jobs": count, **asked}.items())])
    return Trace.from_columns(frame, format="synthetic", source=f"synthetic:{said}", profiles=profiles)


def builtin_demo() -> Trace:
    """1,000 Philly-like jobs of up to a day for 16 nodes of 4 GPUs, which they would keep 90 % busy."""
    return generate("philly:load=0.9:cluster_gpus=64:max_gpus=16:max_s=86400", jobs=1000, seed=1)


def request_rate(t_s: float, *, mean_per_s: float = 20.0, amplitude: float = 0.6, peak_h: float = 14.0) -> float:
    """Requests per second to a service at a moment: a sine over the day, most at `peak_h`.

    mean * (1 + amplitude * cos(2 pi (t - peak) / 24 h)); deterministic, so that every policy meets the same demand.
    """
    return mean_per_s * daily(t_s, amplitude, peak_h)


def _sizes_s(rng: np.random.Generator, jobs: int, values: Values) -> draws.Floats:
    shape, mean_s, cv = values["size"], values["mean_s"], values["cv"]
    if shape in ("exponential", "deterministic"):
        if cv != _CV_BY_DEFAULT:
            raise InputError(f"option cv: found {cv:g}, but size={shape} has a cv of its own")
        return draws.exponential(rng, jobs, mean_s) if shape == "exponential" else np.full(jobs, mean_s)
    cv = cv or _DEFAULT_CV
    if shape == "lognormal":
        return draws.lognormal(rng, jobs, mean_s, cv)
    if cv < 1.0:
        raise InputError(f"option cv: found {cv:g}, expected 1 or more for size=hyperexponential")
    return draws.hyperexponential(rng, jobs, mean_s, cv)


def _plain(submit_s: draws.Floats, rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    return {"submit_s": submit_s, "gpus": np.full(jobs, values["gpus"]), "duration_s": _sizes_s(rng, jobs, values)}


def _poisson(rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    return _plain(draws.arrivals_s(rng, jobs, values["rate_per_h"]), rng, jobs, values)


def _daily(rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    day = draws.sinusoidal_day(values["amplitude"], values["peak_h"])
    return _plain(draws.arrivals_s(rng, jobs, values["rate_per_h"], day), rng, jobs, values)


def _bursts(rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    return _plain(draws.batch_arrivals_s(rng, jobs, values["rate_per_h"], values["mean_batch"]), rng, jobs, values)


def _philly(rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    gpus = philly_like.widths(rng, jobs, min(values["max_gpus"] or values["cluster_gpus"], values["cluster_gpus"]))
    duration_s = philly_like.durations_s(rng, gpus, values["max_s"])
    # The rate follows from the work that was drawn: the tail is so heavy that the mean of a few thousand jobs can be
    # far from the distribution's, and the load would be, too.
    span_h = float((gpus * duration_s).sum()) / 3600.0 / (values["load"] * values["cluster_gpus"])
    submit_s = draws.arrivals_s(rng, jobs, jobs / span_h, philly_like.HOUR_COUNTS, pinned=True)
    users = pl.Series([f"vc{n}" for n in range(philly_like.USERS)])[rng.integers(philly_like.USERS, size=jobs)]
    return {"submit_s": submit_s, "gpus": gpus, "duration_s": duration_s, "user": users}


def _services(_rng: np.random.Generator, jobs: int, values: Values) -> dict[str, Any]:
    horizon_s = values["horizon_h"] * 3600.0
    return {
        "submit_s": np.zeros(jobs),
        "gpus": np.ones(jobs, dtype=np.int64),
        "duration_s": np.full(jobs, horizon_s),
        "kind": ["service"] * jobs,
    }


def _no_columns(_rng: np.random.Generator, _jobs: int, _values: Values) -> dict[str, Any]:
    raise AssertionError("makes the whole trace")


def _fleet(values: Values) -> Trace:
    given = {key: values[key] for key in ("load", "start_h", "seed")}
    trace = service_fleet(values["services"], values["hours"], **given)
    return trace.head(values["services"] + values["jobs"]) if values["jobs"] else trace  # services come first


_ELASTIC = one_of("false", "true")
_PLAIN_OPTIONS: dict[str, Option] = {
    "rate_per_h": above_0(20.0, "jobs per hour"),
    "mean_s": above_0(3600.0, "a mean duration in seconds"),
    "gpus": whole_from(1, 1, "a whole number of GPUs"),
    "size": one_of("exponential", "deterministic", "lognormal", "hyperexponential"),
    "cv": Option(_CV_BY_DEFAULT, "a coefficient of variation above 0", lambda x: x > 0 and math.isfinite(x)),
    "elastic": _ELASTIC,
}
GENERATORS: dict[str, Generator] = {
    "poisson": Generator("Poisson arrivals, one width", _poisson, _PLAIN_OPTIONS),
    "daily": Generator(
        "a sinusoidal daily rate",
        _daily,
        {**_PLAIN_OPTIONS, "amplitude": between(0.0, 1.0, 0.5), "peak_h": between(0.0, 24.0, 14.0)},
    ),
    "bursts": Generator(
        "batches that arrive at one moment",
        _bursts,
        {**_PLAIN_OPTIONS, "mean_batch": Option(10.0, "a mean batch size, 1 or more", lambda x: 1 <= x < math.inf)},
    ),
    "philly": Generator(
        "like Microsoft's Philly",
        _philly,
        {
            "load": above_0(0.7, "a part of the cluster"),
            "cluster_gpus": whole_from(1, 64, "a whole number of GPUs"),
            "max_gpus": whole_from(0, 0, "the widest job (0: as wide as the cluster)"),
            "max_s": Option(5e6, "the longest job in seconds, 1 or more", lambda x: 1 <= x < math.inf),
            "elastic": _ELASTIC,
        },
    ),
    "services": Generator("services that last the whole horizon", _services, {"horizon_h": above_0(24.0, "hours")}, 8),
    "fleet": Generator(
        "services with a daily load, best-effort jobs for their GPUs",
        _no_columns,
        {
            "jobs": whole_from(0, 0, "offline jobs (0: as many as the load says)"),
            "services": whole_from(1, 80, "a whole number of services"),
            "hours": above_0(24.0, "hours"),
            "load": Option(0.95, "offline work over what the GPUs can do, 0 or more", lambda x: 0 <= x < math.inf),
            "start_h": Option(0.0, "an hour of the day, 0 to 24", lambda x: 0 <= x < 24),
        },
        whole=_fleet,
    ),
}
