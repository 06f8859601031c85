"""What is told of a GPU, and of the services' own part of it."""

from __future__ import annotations

from typing import Any

from fairlead.node.seats import Seat


def reading(seat: Seat) -> dict[str, Any]:
    """In plain types, as last read; None is unknown."""
    sample, guard = seat.sample, seat.keeper.guard
    told: dict[str, Any] = {"gpu": seat.uuid, "accepts_offline": guard.accepts_offline, "guard_state": str(guard.state)}
    if sample is None:
        return told
    busy = _services_busy_frac(seat)
    told |= {
        "utilisation_frac": sample.utilisation_frac,
        "sm_activity_frac": sample.sm_activity_frac,
        "memory_used_mib": sample.memory_used_mib,
        "power_w": sample.power_w,
        "energy_j": None if sample.energy_mj is None else sample.energy_mj / 1000.0,
        "temperature_c": sample.temperature_c,
        "service_utilisation_frac": busy,
        "service_sm_activity_frac": _part(seat, sample.sm_activity_frac, busy),
        "service_memory_mib": _services_memory_mib(seat),
    }
    return told


def _services_busy_frac(seat: Seat) -> float | None:
    mine = [seat.shares.get(name) for name, tenant in seat.tenants.items() if tenant.spec.is_service]
    known = [part for part in mine if part is not None]
    return min(sum(known), 1.0) if mine and len(known) == len(mine) else None


def _part(seat: Seat, whole: float | None, busy: float | None) -> float | None:
    """Of something that goes with how busy everybody is."""
    if whole is None or busy is None or any(part is None for part in seat.shares.values()):
        return None
    total = sum(part for part in seat.shares.values() if part is not None)
    return whole * min(busy / total, 1.0) if total > 0.0 else 0.0


def _services_memory_mib(seat: Seat) -> float | None:
    services = [tenant for tenant in seat.tenants.values() if tenant.spec.is_service]
    sample = seat.sample
    if not services or sample is None:
        return None
    if len(services) == len(seat.tenants):
        return sample.memory_used_mib
    pids = set().union(*(tenant.pids for tenant in services))
    known = [p.memory_mib for p in sample.processes or () if p.pid in pids and p.memory_mib is not None]
    return sum(known) if known else None
