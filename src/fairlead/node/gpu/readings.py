"""What is told of a GPU, and of the services' own part of it."""

from __future__ import annotations

from typing import Any

from fairlead.node.gpu.gpus import NodeGpu


def reading(node_gpu: NodeGpu) -> dict[str, Any]:
    """In plain types, as last read; None is unknown."""
    sample, guard = node_gpu.sample, node_gpu.guarded.guard
    told: dict[str, Any] = {
        "gpu": node_gpu.uuid,
        "accepts_offline": guard.accepts_offline,
        "guard_state": str(guard.state),
    }
    if sample is None:
        return told
    busy = _services_busy_frac(node_gpu)
    told |= {
        "utilisation_frac": sample.utilisation_frac,
        "sm_activity_frac": sample.sm_activity_frac,
        "memory_used_mib": sample.memory_used_mib,
        "at_s": node_gpu.sampled_at_s,
        "power_w": sample.power_w,
        "energy_j": None if sample.energy_mj is None else sample.energy_mj / 1000.0,
        "temperature_c": sample.temperature_c,
        "service_utilisation_frac": busy,
        "service_sm_activity_frac": _part(node_gpu, sample.sm_activity_frac, busy),
        "service_memory_mib": _services_memory_mib(node_gpu),
    }
    return told


def _services_busy_frac(node_gpu: NodeGpu) -> float | None:
    mine = [
        node_gpu.shares.get(name) for name, running_job in node_gpu.running_jobs.items() if running_job.order.is_service
    ]
    known = [part for part in mine if part is not None]
    return min(sum(known), 1.0) if mine and len(known) == len(mine) else None


def _part(node_gpu: NodeGpu, whole: float | None, busy: float | None) -> float | None:
    """Of something that goes with how busy everybody is."""
    if whole is None or busy is None or any(part is None for part in node_gpu.shares.values()):
        return None
    total = sum(part for part in node_gpu.shares.values() if part is not None)
    return whole * min(busy / total, 1.0) if total > 0.0 else 0.0


def _services_memory_mib(node_gpu: NodeGpu) -> float | None:
    services = [running_job for running_job in node_gpu.running_jobs.values() if running_job.order.is_service]
    sample = node_gpu.sample
    if not services or sample is None:
        return None
    if len(services) == len(node_gpu.running_jobs):
        return sample.memory_used_mib
    pids = set().union(*(running_job.pids for running_job in services))
    known = [p.memory_mib for p in sample.processes or () if p.pid in pids and p.memory_mib is not None]
    return sum(known) if known else None
