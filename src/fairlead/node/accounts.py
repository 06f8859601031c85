"""Who used what of a GPU: for its guard, and in joules."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.node.meter import GpuSample
from fairlead.node.seats import Seat, Seats
from fairlead.node.shares import shares, with_shares
from fairlead.node.survey import Survey
from fairlead.policy.guarding import Transition


def count(seat: Seat, found: Survey, now_s: float) -> list[Transition]:
    """Since the survey before; what the guard makes of it."""
    sample = seat.sample
    if sample is None:
        return []
    charged = {}
    passed_s, seat.accounted_s = now_s - seat.accounted_s, now_s
    for name, tenant in seat.tenants.items():
        tenant.pids = found.pids.get(name) or tenant.pids  # what a job used just before its end is its own
        before, after = tenant.charged_s, found.charged_s.get(name)
        tenant.charged_s = after
        if before is not None and after is not None:
            charged[name] = max(after - before, 0.0) / passed_s
    jobs = {name: tenant.pids for name, tenant in seat.tenants.items()}
    known = seat.shares = shares(sample, jobs, charged)
    changes = seat.keeper.second(sample, now_s, known)
    seat.energy.advance(with_shares(sample, jobs, known), jobs)
    return changes


def charge_so_far(seats: Seats, samples: Iterable[GpuSample]) -> None:
    """Give everybody who is there what was used until now, by what is known of their parts."""
    for sample in samples:
        seat = seats[sample.uuid]
        seat.sample = sample
        seat.xids += sample.xids or ()
        jobs = {name: tenant.pids for name, tenant in seat.tenants.items()}
        known = {**shares(sample, jobs, {}), **seat.shares}
        seat.energy.advance(with_shares(sample, jobs, known), jobs)
