"""A fleet of services with best-effort work to go with it, as production clusters have it (MuxFlow's setting).

Services: one per GPU, for the whole horizon, with a daily pattern. Their loads, activities and memory are drawn so that
the fleet alone has about the utilisation (26 %), SM activity (16 %) and memory (42 %) that the MuxFlow paper reports;
peaks are at 20 to 190 requests a second, most of them in the afternoon. The SLO is twice the p99 latency that the
service has alone at its daily peak.

Offline jobs: ResNet50, VGG16, DenseNet201 and Inception-V3 trainings on one GPU each, with the durations of Philly's
one-GPU jobs (up to `max_s`), a part of them waiting at the start and the others coming over the day.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fairlead.errors import InputError
from fairlead.model.contention import Solo
from fairlead.model.profile import Profile
from fairlead.model.service import DailyLoad, Service, latencies
from fairlead.model.service_files import ServiceGroup
from fairlead.traces import draws, philly_like
from fairlead.traces.trace import Trace

# Alone on a GPU of 16 GiB with a small batch, as best-effort jobs are given: what they keep busy, and memory.
OFFLINE = {
    "offline-ResNet50": Solo(0.95, 0.38, 0.45, 0.45, 0.11, 0.18),
    "offline-VGG16": Solo(0.97, 0.52, 0.60, 0.55, 0.15, 0.30),
    "offline-DenseNet201": Solo(0.93, 0.31, 0.38, 0.40, 0.12, 0.26),
    "offline-Inception-V3": Solo(0.94, 0.35, 0.50, 0.35, 0.10, 0.22),
}
_RESTART_S = 60.0


def service_fleet(
    services: int,
    hours: float,
    *,
    load: float = 0.95,
    backlog: float = 0.6,
    max_s: float = 4 * 3600.0,
    start_h: float = 0.0,
    seed: int = 0,
) -> Trace:
    """`services` services for so many hours from `start_h` o'clock on, and offline work for `load` of their GPUs, of
    which `backlog` is there at the start.
    """
    if services < 1 or hours <= 0 or not 0.0 <= load < float("inf") or not 0.0 <= backlog <= 1.0:
        raise InputError("a fleet needs 1 or more services, hours above 0, a load of 0 or more, a backlog of 0 to 1")
    rng = np.random.default_rng(seed)
    if not 0.0 <= start_h < 24.0:
        raise InputError(f"start_h is {start_h:g}; it must be an hour of the day, 0 to 24")
    profiles = {f"service-{i}": _service(rng, f"service-{i}", start_h) for i in range(services)}
    profiles |= {name: Profile(name, restart_s=_RESTART_S, activity_frac=solo.sm_activity_frac, solo=solo)
                 for name, solo in OFFLINE.items()}  # fmt: skip
    horizon_s = hours * 3600.0
    work_s = load * services * horizon_s
    durations: list[float] = []
    drawn_s = 0.0
    while drawn_s < work_s:
        drawn = philly_like.durations_s(rng, np.ones(256, dtype=np.int64), max_s)
        for duration_s in np.maximum(drawn, 60.0).tolist():
            if drawn_s < work_s:
                durations.append(duration_s)
                drawn_s += duration_s
    count = len(durations)
    at_start = int(backlog * count)
    later = draws.arrivals_s(rng, count - at_start, (count - at_start) / hours) if count > at_start else np.zeros(0)
    submit_s = np.concatenate([np.zeros(at_start), np.minimum(later, horizon_s)])
    offline = np.array(list(OFFLINE))[rng.integers(len(OFFLINE), size=count)]
    frame = pl.DataFrame(
        {
            "job_id": [*(f"service-{i}" for i in range(services)), *(f"job-{i}" for i in range(count))],
            "submit_s": [0.0] * services + submit_s.tolist(),
            "gpus": [1] * (services + count),
            "duration_s": [horizon_s] * services + durations,
            "profile": [*(f"service-{i}" for i in range(services)), *offline.tolist()],
            "kind": ["service"] * services + ["training"] * count,
        }
    )
    return Trace.from_columns(frame, format="synthetic", source=f"{services} services, {hours:g} h", profiles=profiles)


def join_services(trace: Trace, groups: Sequence[ServiceGroup]) -> Trace:
    """The trace's jobs with these services beside them, from the start."""
    names = [(g, g.name if g.count == 1 else f"{g.name}-{i}") for g in groups for i in range(g.count)]
    taken = set(trace.frame["job_id"])
    if twice := next((name for _, name in names if name in taken), None):
        raise InputError(f"a service and a job are both called {twice!r}", hint="rename the service")
    if trace.wrap is not None:
        raise InputError("services cannot be joined to a trace that starts again", hint="give --no-wrap")
    services = pl.DataFrame(
        {
            "job_id": [name for _, name in names],
            "submit_s": [0.0] * len(names),
            "gpus": [1] * len(names),
            "duration_s": [g.lasts_s for g, _ in names],
            "profile": [g.profile.name for g, _ in names],
            "kind": ["service"] * len(names),
        },
        schema_overrides={"gpus": pl.Int64},
    )
    return Trace.from_columns(
        pl.concat([services, trace.frame], how="diagonal"),
        format=trace.format,
        source=f"{trace.source or trace.format} with {len(names)} services",
        profiles={**trace.profiles, **{g.profile.name: g.profile for g in groups}},
        notes=trace.notes,
        skipped_rows=trace.skipped_rows,
    )


def _service(rng: np.random.Generator, name: str, start_h: float) -> Profile:
    mean = float(np.clip(rng.lognormal(np.log(0.235), 0.45), 0.05, 0.5))
    amplitude = float(rng.uniform(0.3, 0.8))
    amplitude = min(amplitude, 0.75 / mean - 1.0)
    curve = DailyLoad(mean, amplitude, (float(rng.normal(14.0, 3.0)) - start_h) % 24.0)
    peak = mean * (1.0 + amplitude)
    request_s = peak / float(rng.uniform(20.0, 190.0))
    activity = float(np.clip(rng.normal(0.62, 0.12), 0.3, 0.95))
    solo = Solo(
        utilisation_frac=1.0,
        sm_activity_frac=activity,
        occupancy_frac=float(np.clip(rng.normal(0.45, 0.1), 0.15, 0.9)),
        bandwidth_frac=float(np.clip(rng.normal(0.55, 0.15), 0.15, 0.95)),
        memory_frac=float(np.clip(rng.beta(4.0, 5.5), 0.1, 0.72)),
        time_s=request_s,
    )
    _, p99 = latencies(np.array(peak), np.array(request_s), np.array(1.0))
    return Profile(name, activity_frac=mean * activity, solo=solo, service=Service(curve, solo, 2.0 * float(p99)))
