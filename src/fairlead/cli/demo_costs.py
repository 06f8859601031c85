"""What the demo's jobs took, and what they would have taken without sharing: simulated from the same log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead.cli import demo_story as story

if TYPE_CHECKING:
    from fairlead.sim.result import Result

Job = Mapping[str, Any]
ALONE = "ordering=fifo:backfill=greedy,sharing=exclusive,powering=rent:linger_s=1"
"""Every job on the GPUs that it asked for, to itself; nodes are still rented and returned as needed."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Until the last training is done."""

    mean_jct_s: float
    """From submission to end, of a training."""
    energy_j: float
    cost_usd: float
    paid_gpus: float
    """GPUs paid for, on average."""


def as_it_ran(jobs: Sequence[Job], paid_gpu_s: float) -> Costs:
    """By the meters of the made-up GPUs; what no job used is added by the same equation of power."""
    from fairlead.model.cluster import DEFAULT_NODE_BASE_W, gpu_model_named

    model = gpu_model_named(story.GPU_MODEL)
    begun_s, end_s = span_s(jobs)
    idle_gpu_s = max(0.0, paid_gpu_s - _occupied_gpu_s(jobs, end_s))
    idle_j = idle_gpu_s * model.idle_w + paid_gpu_s / story.NODE_GPUS * DEFAULT_NODE_BASE_W
    return Costs(
        _mean([job["ended_at_s"] - job["submitted_at_s"] for job in _trainings(jobs)]),
        sum(job["energy_j"] or 0.0 for job in jobs) + idle_j,
        paid_gpu_s / 3600.0 * model.price_usd_per_h,
        paid_gpu_s / (end_s - begun_s),
    )


def without_sharing(jobs: Sequence[Job]) -> Costs:
    """The same submissions at the same moments, simulated: no job shares a GPU, none is resized."""
    begun_s, end_s = span_s(jobs)
    lasts_s = end_s - begun_s
    for _ in range(2):  # services are there until the last training ends, which the first run finds out
        result = _simulated(jobs, lasts_s)
        kinds = {job["name"]: job["kind"] for job in jobs}
        ends = dict(result.jobs.select("job_id", "finish_s").rows())
        lasts_s = max(at_s for name, at_s in ends.items() if kinds[name] != "service")
    found = result.summary
    submitted = {job["name"]: job["submitted_at_s"] - begun_s for job in _trainings(jobs)}
    return Costs(
        _mean([ends[name] - at_s for name, at_s in submitted.items()]),
        float(found["energy_j"]),
        float(found["cost_usd"]),
        float(found["gpu_hours_paid"]) * 3600.0 / lasts_s,
    )


def span_s(jobs: Sequence[Job]) -> tuple[float, float]:
    """From the first submission to the end of the last training, by the time of day."""
    return min(job["submitted_at_s"] for job in jobs), max(job["ended_at_s"] for job in _trainings(jobs))


def _simulated(jobs: Sequence[Job], lasts_s: float) -> Result:
    import polars as pl

    from fairlead.api import simulate
    from fairlead.model.profile import Power, Profile
    from fairlead.traces.trace import Trace

    begun_s, _ = span_s(jobs)
    rows = [
        {
            "job_id": job["name"],
            "submit_s": job["submitted_at_s"] - begun_s,
            "gpus": job["gpus"],
            "duration_s": lasts_s if job["kind"] == "service" else job["estimate_s"],
            "kind": job["kind"],
            "profile": job["profile"] or "generic",
            "user": job["user"],
        }
        for job in jobs
    ]
    profiles = {
        name: Profile(name, speedup=Power(story.SCALING), activity_frac=busy)
        for name, busy in story.ACTIVITY_FRAC.items()
    }
    trace = Trace.from_columns(pl.DataFrame(rows), profiles=profiles)
    return simulate(trace, f"{story.NODES}x{story.NODE_GPUS}:{story.GPU_MODEL}", ALONE, rent=story.RENT)


def _occupied_gpu_s(jobs: Sequence[Job], end_s: float) -> float:
    """GPU-seconds with somebody on the GPU. Services stay where they are, and jobs beside them take no further GPU."""
    hosts = {gpu for job in jobs if job["kind"] == "service" for one in job["attempts"] for gpu in one["placement"]}
    total = 0.0
    for job in jobs:
        for one in job["attempts"]:
            if one["started_at_s"] is not None:
                gpus = [gpu for gpu in one["placement"] if job["kind"] == "service" or gpu not in hosts]
                total += len(gpus) * max(0.0, min(one["ended_at_s"] or end_s, end_s) - one["started_at_s"])
    return total


def _trainings(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job["kind"] != "service"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
