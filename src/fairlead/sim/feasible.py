"""Before a run starts: jobs that can never fit are named, or left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, Node
from fairlead.policy.by_parts import refusal
from fairlead.policy.fit import least_gpus, most_gpus
from fairlead.policy.stack import Stack
from fairlead.traces.trace import Trace

_SHOWN = 5


def without_too_wide(trace: Trace, cluster: Cluster, stacks: Sequence[Stack], drained: Collection[int] = ()) -> Trace:
    """The jobs that fit under every one of these policies, with a note of how many do not."""
    fits = pl.lit(True)
    jobs = trace.frame
    for number, stack in enumerate(stacks):
        needs = _needs(trace, cluster, stack, drained).select(pl.col("needs") <= pl.col("room"))
        jobs = jobs.with_columns(needs.to_series().alias(f"fits{number}"))
        fits &= pl.col(f"fits{number}")
    kept = jobs.filter(fits).select(trace.frame.columns)
    if kept.height == len(trace):
        return trace
    note = f"jobs that can never fit on {cluster.describe()}: {len(trace) - kept.height:,} left out"
    return replace(trace, frame=kept, notes=(*trace.notes, note))


def check_feasible(trace: Trace, cluster: Cluster, stack: Stack, drained: Collection[int] = ()) -> None:
    """Raise `InputError` naming the jobs that no state of the cluster could run while these GPUs are drained."""
    if not len(trace):
        raise InputError(f"{trace.source or 'the trace'} has no jobs")
    _check_parts(trace, stack)
    _check_hosts(trace, cluster)
    never = _needs(trace, cluster, stack, drained).filter(pl.col("needs") > pl.col("room"))
    if not never.height:
        return
    named = []
    for name, gpus, memory_mib, room in never.head(_SHOWN).iter_rows():
        is_large = memory_mib > cluster.least_memory_mib
        memory = f" of {memory_mib:g} MiB, of which there are {room}" if is_large else ""
        named.append(f"{name} ({gpus} GPUs{memory})")
    more = f" and {never.height - _SHOWN} more" if never.height > _SHOWN else ""
    where = cluster.describe() + (f", {len(drained)} of them drained" if drained else "")
    raise InputError(
        f"{never.height} job{'s' * (never.height > 1)} can never fit on {where}: {', '.join(named)}{more}",
        hint="take a larger --cluster, or leave them out with --drop-too-wide",
    )


def _check_hosts(trace: Trace, cluster: Cluster) -> None:
    """Raise `InputError` naming a job that asks for more of hosts than the nodes have, beside so many GPUs."""
    asking = trace.frame.filter((pl.col("cpus") > 0.0) | (pl.col("ram_mib") > 0.0))
    if not cluster.states_hosts or not asking.height:
        return
    for gpus, cpus, ram_mib in asking.select("gpus", "cpus", "ram_mib").unique().iter_rows():
        if sum(_gpus_hosted(node, cpus / gpus, ram_mib / gpus) for node in cluster.nodes) < gpus:
            alike = (pl.col("gpus") == gpus) & (pl.col("cpus") == cpus) & (pl.col("ram_mib") == ram_mib)
            name = asking.filter(alike)["job_id"][0]
            raise InputError(
                f"job {name} can never fit: it asks for {cpus:g} CPUs and {ram_mib:g} MiB of hosts beside {gpus} GPUs, "
                f"and the nodes of {cluster.describe()} have too little",
                hint="the cluster's file says cpus and ram_mib of its nodes",
            )


def _gpus_hosted(node: Node, cpus: float, ram_mib: float) -> int:
    """How many GPUs of an empty node could be used with so much of the host for each."""
    by_cpus = int(node.cpus / cpus + 1e-9) if node.cpus and cpus else node.gpus
    return min(node.gpus, by_cpus, int(node.ram_mib / ram_mib + 1e-9) if node.ram_mib and ram_mib else node.gpus)


def _check_parts(trace: Trace, stack: Stack) -> None:
    """Raise `InputError` where jobs ask for parts of GPUs and that contradicts the policy, or the jobs themselves."""
    fractional = trace.frame.filter(pl.col("gpu_frac") < 1.0)
    if not fractional.height:
        return
    if (reason := refusal(stack)) is not None:
        raise InputError(
            f"{fractional.height:,} jobs ask for a part of a GPU, and the policy is {stack.spec!r}: {reason}",
            hint="take a sizing that keeps widths, and a placing that is sticky",
        )
    services = [m for m in fractional["profile"].unique().to_list() if trace.profile(m).service is not None]
    if services:
        raise InputError(
            f"services of profile {services[0]!r} ask for a part of a GPU; those whose latency is simulated need whole "
            "ones"
        )


def _needs(trace: Trace, cluster: Cluster, stack: Stack, drained: Collection[int]) -> pl.DataFrame:
    """Of every job, in order: its name, the GPUs and the memory that it needs, and the GPUs that there are for it."""
    # Jobs that do not say how much memory they need are taken to need what their profile says.
    models = trace.frame["profile"].unique().to_list()
    large = {m: mib for m in models if (mib := trace.profile(m).memory_mib) > cluster.least_memory_mib}
    memory_mib = pl.col("memory_mib")
    if large:
        by_profile = pl.col("profile").replace_strict(large, default=0.0)
        memory_mib = pl.when(memory_mib > 0.0).then(memory_mib).otherwise(by_profile).alias("memory_mib")
    gpus = least_gpus(pl.col("gpus"), pl.col("min_gpus"), stack).alias("needs")
    jobs = trace.frame.select("job_id", gpus, memory_mib)
    room = {mib: most_gpus(mib, cluster, drained) for mib in jobs["memory_mib"].unique().to_list()}
    return jobs.with_columns(pl.col("memory_mib").replace_strict(room, return_dtype=pl.Int64).alias("room"))
