"""`describe`: what is in a trace, in numbers."""

from __future__ import annotations

import polars as pl

from fairlead.traces.trace import Trace


def describe(trace: Trace, *, cluster_gpus: int | None = None) -> dict[str, object]:
    """Counts, durations, load and shares of a trace, ready for JSON.

    `offered_load_gpus` is the GPUs that the jobs would keep busy on average between the first and the last submission;
    over the GPUs of a cluster, where these are given, it is `offered_load_frac`. Both are null where all jobs were
    submitted at one moment.
    """
    frame = trace.frame
    jobs = frame.height
    numbers = frame.select(
        span_s=pl.col("submit_s").max() - pl.col("submit_s").min(),
        mean=pl.col("duration_s").mean(),
        median=pl.col("duration_s").median(),
        p99=pl.col("duration_s").quantile(0.99, "linear"),
        gpu_s=(pl.col("gpus") * pl.col("gpu_frac") * pl.col("duration_s")).sum(),
        services=(pl.col("kind") == "service").mean(),
        elastic=(pl.col("min_gpus") != pl.col("max_gpus")).mean(),
        fractional=(pl.col("gpu_frac") < 1).mean(),
        deadlines=pl.col("deadline_s").is_not_null().mean(),
        users=pl.col("user").n_unique(),
    ).row(0, named=True)
    span_s = numbers["span_s"] or 0.0
    load_gpus = numbers["gpu_s"] / span_s if span_s else None
    widths = frame["gpus"].value_counts().sort("gpus")
    profiles = frame["profile"].value_counts().sort("profile")
    clusters = frame["vc"].value_counts().sort("vc").filter(pl.col("vc") != "")
    return {
        "source": trace.source,
        "format": trace.format,
        "jobs": jobs,
        "span_s": span_s,
        "arrivals_per_h": (jobs - 1) / span_s * 3600.0 if span_s else None,
        "gpus_histogram": dict(widths.rows()),
        "duration_mean_s": numbers["mean"],
        "duration_median_s": numbers["median"],
        "duration_p99_s": numbers["p99"],
        "gpu_hours": numbers["gpu_s"] / 3600.0,
        "offered_load_gpus": load_gpus,
        "offered_load_frac": load_gpus / cluster_gpus if load_gpus is not None and cluster_gpus else None,
        "services_frac": numbers["services"] or 0.0,
        "elastic_frac": numbers["elastic"] or 0.0,
        "fractional_frac": numbers["fractional"] or 0.0,
        "deadlines_frac": numbers["deadlines"] or 0.0,
        "users": numbers["users"],
        "profiles": dict(profiles.rows()),
        "vcs": dict(clusters.rows()),
        "wraps": trace.wrap is not None,
        "skipped_rows": trace.skipped_rows,
        "notes": list(trace.notes),
    }
