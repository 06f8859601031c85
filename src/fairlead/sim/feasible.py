"""Before a run starts: jobs that can never fit are named."""

from __future__ import annotations

import polars as pl

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.policy.stack import Stack
from fairlead.traces.trace import Trace

_SHOWN = 5


def check_feasible(trace: Trace, cluster: Cluster, stack: Stack, gpus: int | None = None) -> None:
    """Raise `InputError` naming the jobs that no state of the cluster could run; `gpus` is what is not drained."""
    if not len(trace):
        raise InputError(f"{trace.source or 'the trace'} has no jobs")
    needs = "min_gpus" if stack.sizing.resizes else "gpus"
    usable = cluster.gpus if gpus is None else gpus
    drained = f", {cluster.gpus - usable} of them drained" if usable < cluster.gpus else ""
    _refuse(trace.frame.filter(pl.col(needs) > usable), needs, cluster.describe() + drained)
    for memory_mib in trace.frame["memory_mib"].unique():
        if memory_mib > cluster.least_memory_mib:
            hold_it = cluster.gpus_holding(memory_mib)
            same = trace.frame.filter(pl.col("memory_mib") == memory_mib, pl.col(needs) > hold_it)
            _refuse(same, needs, cluster.describe(), f" of {memory_mib:g} MiB, of which there are {hold_it}")


def _refuse(jobs: pl.DataFrame, needs: str, where: str, memory: str = "") -> None:
    if not jobs.height:
        return
    named = [f"{name} ({gpus} GPUs{memory})" for name, gpus in jobs.select("job_id", needs).head(_SHOWN).iter_rows()]
    more = f" and {jobs.height - _SHOWN} more" if jobs.height > _SHOWN else ""
    raise InputError(
        f"{jobs.height} job{'s' * (jobs.height > 1)} can never fit on {where}: {', '.join(named)}{more}",
        hint="take a larger --cluster, or remove them from the trace",
    )
