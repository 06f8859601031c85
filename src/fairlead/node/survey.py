"""What takes too long for the agent's loop: a look at the processes, the MPS daemon and the logs of one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.errors import FairleadError
from fairlead.node.launcher import Launcher
from fairlead.node.mps import MpsDaemon, MpsStatus
from fairlead.node.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    pids: dict[str, set[int]] = field(default_factory=dict)
    charged_s: dict[str, float] = field(default_factory=dict)
    """GPU time by the shims' count, since each job's start."""
    mps: MpsStatus | None = None
    """None: nobody here uses it."""
    lines: tuple[str, ...] = ()


def is_quick(tenants: Sequence[Tenant], mps: MpsDaemon | None) -> bool:
    """Whether there is nothing to look at: a job alone on its GPU needs no telling apart."""
    has_client = mps is not None and any(one.spec.is_mps_client for one in tenants)
    return len(tenants) < 2 and not has_client and all(one.usage is None for one in tenants)


def take(tenants: Sequence[Tenant], launcher: Launcher, mps: MpsDaemon | None) -> Survey:
    """Look; takes a few milliseconds, or as long as the MPS daemon's timeout where that hangs."""
    charged_s = {}
    found = launcher.processes_of([one.key for one in tenants])
    pids = {one.spec.job_id: {process.pid for process in found[one.key]} for one in tenants}
    for one in tenants:
        if one.usage is not None:
            try:
                charged_s[one.spec.job_id] = sum(p.charged_s for p in one.usage.processes())
            except (FairleadError, OSError):
                continue  # the job wrote nonsense on its page; then nothing is known
    if mps is None or not any(one.spec.is_mps_client for one in tenants):
        return Survey(pids, charged_s)
    return Survey(pids, charged_s, mps.status(), tuple(mps.new_log_lines()))
