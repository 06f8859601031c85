"""What takes too long for the agent's loop: a look at the processes, the MPS daemon and the logs of one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.errors import FairleadError
from fairlead.node.identity import AttemptId
from fairlead.node.mps.daemon import MpsDaemon, MpsStatus
from fairlead.node.process.launcher import Launcher
from fairlead.node.running_jobs import RunningJob

_MIB = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at a GPU's processes and its MPS has found."""

    pids: dict[AttemptId, set[int]] = field(default_factory=dict)
    charged_s: dict[AttemptId, float] = field(default_factory=dict)
    """GPU time by the shims' count, since each job's start."""
    held_mib: dict[AttemptId, dict[str, float]] = field(default_factory=dict)
    """Memory by the shims' count, by job and GPU."""
    mps: MpsStatus | None = None
    """None: nobody here uses it."""
    lines: tuple[str, ...] = ()


def is_quick(running_jobs: Sequence[RunningJob], mps: MpsDaemon | None) -> bool:
    """Whether there is nothing to look at: a job alone on its GPU needs no telling apart."""
    has_client = mps is not None and any(one.order.is_mps_client for one in running_jobs)
    return len(running_jobs) < 2 and not has_client and all(one.usage is None for one in running_jobs)


def take(running_jobs: Sequence[RunningJob], launcher: Launcher, mps: MpsDaemon | None) -> Survey:
    """Look; takes a few milliseconds, or as long as the MPS daemon's timeout where that hangs."""
    charged_s: dict[AttemptId, float] = {}
    held_mib: dict[AttemptId, dict[str, float]] = {}
    found = launcher.processes_of([one.launch for one in running_jobs])
    pids = {one.id: {process.pid for process in found[one.launch]} for one in running_jobs}
    for one in running_jobs:
        if one.usage is not None:
            try:
                told = one.usage.processes()
            except (FairleadError, OSError):
                continue  # the job wrote nonsense on its page; then nothing is known
            charged_s[one.id] = sum(p.charged_s for p in told)
            held_mib[one.id] = {gpu: sum(p.used_bytes.get(gpu, 0) for p in told) / _MIB for gpu in one.order.gpus}
    if mps is None or not any(one.order.is_mps_client for one in running_jobs):
        return Survey(pids, charged_s, held_mib)
    return Survey(pids, charged_s, held_mib, mps.status(), tuple(mps.new_log_lines()))
