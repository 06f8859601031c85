"""The GPUs of this machine with all that the agent knows of them, and who sits on which."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import InputError
from fairlead.node.gpu.busy_shares import Shares
from fairlead.node.gpu.energy import Energy, GpuEnergy
from fairlead.node.gpu.fake_gpus import CONTEXT_MIB, FakeMeter
from fairlead.node.gpu.meter import GpuSample, Meter
from fairlead.node.guard.guarded_gpu import GuardedGpu
from fairlead.node.identity import AttemptId
from fairlead.node.json_files import read_json, write_json
from fairlead.node.mps.daemon import MpsDaemon
from fairlead.node.mps.recovery import MpsRecovery, RecoveryConfig
from fairlead.node.order import Order
from fairlead.node.running_jobs import RunningJob
from fairlead.policy.guarding import GuardConfig


@dataclass(slots=True)
class NodeGpu:
    """One GPU with all that the agent knows of it."""

    guarded: GuardedGpu
    mps: MpsDaemon | None
    mps_recovery: MpsRecovery
    energy: GpuEnergy = field(default_factory=GpuEnergy)
    running_jobs: dict[AttemptId, RunningJob] = field(default_factory=dict)
    sample: GpuSample | None = None
    """The last full one."""
    sampled_at_s: float = 0.0
    """When that was, as time of day."""
    counted_at_s: float = 0.0
    """Up to when it was counted who used what, as time of day."""
    xids: list[int] = field(default_factory=list)
    surveyed_s: float | None = None
    """When the survey began that is under way."""
    shares: Shares = field(default_factory=dict)
    """How busy each job kept it, by the last survey."""
    accounted_s: float = float("-inf")
    """When it was last counted who used what."""
    is_restarting_mps: bool = False

    @property
    def uuid(self) -> str:
        """The GPU's UUID."""
        return self.guarded.info.uuid

    def take(self, sample: GpuSample) -> None:
        """Keep a full sample that was read just now."""
        self.sample, self.sampled_at_s = sample, time.time()

    def count(self, sample: GpuSample, jobs: Mapping[AttemptId, Collection[int]]) -> None:
        """Give out the joules up to the last full sample, of which this one is a copy that tells the jobs apart."""
        self.energy.advance(sample, jobs)
        self.counted_at_s = self.sampled_at_s


class NodeGpus:
    """All of them, by UUID and in the order of their indices. Fake GPUs are told here who is on them."""

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        guard: GuardConfig,
        mps_recovery: RecoveryConfig,
        daemon: Callable[[str], MpsDaemon | None],
        now_s: float,
    ) -> None:
        """`daemon` gives the MPS of a GPU. The guards go on as they were saved in the folder."""
        self._guards, self._meter = folder / "guards.json", meter
        saved = read_json(str(self._guards)) or {}
        self._by_uuid = {
            info.uuid: NodeGpu(
                GuardedGpu(info, guard, now_s, saved.get(info.uuid)), daemon(info.uuid), MpsRecovery(mps_recovery)
            )
            for info in meter.gpus
        }

    def __iter__(self) -> Iterator[NodeGpu]:
        return iter(self._by_uuid.values())

    def __getitem__(self, uuid: str) -> NodeGpu:
        if uuid not in self._by_uuid:
            raise InputError(f"no GPU {uuid} on this machine", hint=f"there are {', '.join(self._by_uuid)}")
        return self._by_uuid[uuid]

    def of(self, order: Order) -> list[NodeGpu]:
        """Where it is to sit; an error where one of its GPUs is not here."""
        return [self[uuid] for uuid in order.gpus]

    def under(self, running_job: RunningJob) -> list[NodeGpu]:
        """Where it sits, by index; GPUs that are no longer here are left out."""
        return [node_gpu for uuid, node_gpu in self._by_uuid.items() if uuid in running_job.order.gpus]

    def mps_of(self, order: Order) -> MpsDaemon | None:
        """What it is a client of; None where the driver slices time."""
        return self[order.gpus[0]].mps if order.is_mps_client else None

    def join(self, running_job: RunningJob) -> None:
        """A job has come to its GPUs."""
        for node_gpu in self.under(running_job):
            node_gpu.running_jobs[running_job.id] = running_job
            node_gpu.guarded.join(running_job.order)
            if isinstance(self._meter, FakeMeter) and running_job.pid is not None:
                memory_mib = running_job.order.memory_mib or CONTEXT_MIB
                self._meter.set_load(
                    node_gpu.guarded.info.index, running_job.pid, running_job.order.activity_frac, memory_mib
                )

    def leave(self, running_job: RunningJob) -> Energy:
        """It has gone; what it used on all of its GPUs."""
        attempt, energy = running_job.id, Energy()
        for node_gpu in self.under(running_job):
            del node_gpu.running_jobs[attempt]
            energy += node_gpu.energy.forget(attempt)
            node_gpu.guarded.leave(attempt)
            if isinstance(self._meter, FakeMeter) and running_job.pid is not None:
                self._meter.clear_load(node_gpu.guarded.info.index, running_job.pid)
        return energy

    def save_guards(self) -> None:
        """For an agent after us; where the disk is full it must do without, but services are guarded."""
        with contextlib.suppress(OSError):
            write_json(str(self._guards), {uuid: one.guarded.guard.to_dict() for uuid, one in self._by_uuid.items()})
