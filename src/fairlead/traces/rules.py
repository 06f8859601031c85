"""What a column of a trace may hold, written once for files and for frames made in Python."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from fairlead.model.job import KINDS


@dataclass(frozen=True, slots=True)
class Rule:
    """One column: the values it may have, as an expression over the whole row and as words for people."""

    good: pl.Expr
    expected: str


def _named(column: str) -> Rule:
    return Rule(pl.col(column).str.strip_chars().str.len_bytes() > 0, "a name")


def _seconds_above_0(column: str) -> Rule:
    return Rule(pl.col(column).is_finite() & (pl.col(column) > 0), "a number of seconds above 0")


RULES: dict[str, Rule] = {
    "job_id": _named("job_id"),
    "submit_s": Rule(
        pl.col("submit_s").is_finite() & (pl.col("submit_s") >= 0), "a number of seconds, 0 or more, since the start"
    ),
    "gpus": Rule(pl.col("gpus") >= 1, "a whole number of GPUs, 1 or more"),
    "duration_s": _seconds_above_0("duration_s"),
    "profile": _named("profile"),
    "kind": Rule(pl.col("kind").is_in(list(KINDS)), " or ".join(KINDS)),
    "min_gpus": Rule(
        (pl.col("min_gpus") >= 1) & (pl.col("min_gpus") <= pl.col("gpus")), "a whole number from 1 to the job's gpus"
    ),
    "max_gpus": Rule(pl.col("max_gpus") >= pl.col("gpus"), "a whole number, the job's gpus or more"),
    "memory_mib": Rule(pl.col("memory_mib").is_finite() & (pl.col("memory_mib") >= 0), "a number of MiB, 0 or more"),
    "gpu_frac": Rule(
        (pl.col("gpu_frac") > 0) & (pl.col("gpu_frac") <= 1) & ((pl.col("gpu_frac") == 1) | (pl.col("gpus") == 1)),
        "a number above 0 and at most 1, below 1 only where gpus is 1",
    ),
    "deadline_s": _seconds_above_0("deadline_s"),
    "priority": Rule(pl.lit(True), "a whole number"),
    "user": Rule(pl.lit(True), "a name"),
    "batch": Rule(pl.col("batch") >= 0, "a whole number of samples, 0 or more"),
    "group": Rule(pl.lit(True), "a name"),
    "cpus": Rule(pl.col("cpus").is_finite() & (pl.col("cpus") >= 0), "a number of CPU cores, 0 or more"),
    "ram_mib": Rule(pl.col("ram_mib").is_finite() & (pl.col("ram_mib") >= 0), "a number of MiB, 0 or more"),
    "vc": Rule(pl.lit(True), "a name"),
}
