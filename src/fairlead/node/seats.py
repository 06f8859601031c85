"""The GPUs of this machine with all that the agent knows of them, and who sits on which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import InputError
from fairlead.node.energy import Energy, GpuEnergy
from fairlead.node.fake import CONTEXT_MIB, FakeMeter
from fairlead.node.keeper import GpuKeeper
from fairlead.node.mending import Mending, MendingConfig
from fairlead.node.meter import GpuSample, Meter
from fairlead.node.mps import MpsDaemon
from fairlead.node.records import read_json, write_json
from fairlead.node.shares import Shares
from fairlead.node.spec import JobSpec
from fairlead.node.tenants import Tenant
from fairlead.policy.guarding import GuardConfig


@dataclass(slots=True)
class Seat:
    """One GPU with all that the agent knows of it."""

    keeper: GpuKeeper
    mps: MpsDaemon | None
    mending: Mending
    energy: GpuEnergy = field(default_factory=GpuEnergy)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    sample: GpuSample | None = None
    """The last full one."""
    xids: list[int] = field(default_factory=list)
    surveyed_s: float | None = None
    """When the survey began that is under way."""
    shares: Shares = field(default_factory=dict)
    """How busy each job kept it, by the last survey."""
    accounted_s: float = float("-inf")
    """When it was last counted who used what."""
    is_mending: bool = False

    @property
    def uuid(self) -> str:
        """Of the GPU."""
        return self.keeper.info.uuid


class Seats:
    """All of them, by UUID and in the order of their indices. Fake GPUs are told here who is on them."""

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        guard: GuardConfig,
        mending: MendingConfig,
        daemon: Callable[[str], MpsDaemon | None],
        now_s: float,
    ) -> None:
        """`daemon` gives the MPS of a GPU. The guards go on as they were saved in the folder."""
        self._guards, self._meter = folder / "guards.json", meter
        saved = read_json(str(self._guards)) or {}
        self._by_uuid = {
            info.uuid: Seat(GpuKeeper(info, guard, now_s, saved.get(info.uuid)), daemon(info.uuid), Mending(mending))
            for info in meter.gpus
        }

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._by_uuid.values())

    def __getitem__(self, uuid: str) -> Seat:
        if uuid not in self._by_uuid:
            raise InputError(f"no GPU {uuid} on this machine", hint=f"there are {', '.join(self._by_uuid)}")
        return self._by_uuid[uuid]

    def of(self, spec: JobSpec) -> list[Seat]:
        """Where it is to sit; an error where one of its GPUs is not here."""
        return [self[uuid] for uuid in spec.gpus]

    def under(self, tenant: Tenant) -> list[Seat]:
        """Where it sits, by index; GPUs that are no longer here are left out."""
        return [seat for uuid, seat in self._by_uuid.items() if uuid in tenant.spec.gpus]

    def mps_of(self, spec: JobSpec) -> MpsDaemon | None:
        """What it is a client of; None where the driver slices time."""
        return self[spec.gpus[0]].mps if spec.is_mps_client else None

    def join(self, tenant: Tenant) -> None:
        """It has come."""
        for seat in self.under(tenant):
            seat.tenants[tenant.spec.job_id] = tenant
            seat.keeper.join(tenant.spec)
            if isinstance(self._meter, FakeMeter) and tenant.pid is not None:
                memory_mib = tenant.spec.memory_mib or CONTEXT_MIB
                self._meter.set_load(seat.keeper.info.index, tenant.pid, tenant.spec.activity_frac, memory_mib)

    def leave(self, tenant: Tenant) -> Energy:
        """It has gone; what it used on all of its GPUs."""
        name, energy = tenant.spec.job_id, Energy()
        for seat in self.under(tenant):
            del seat.tenants[name]
            energy += seat.energy.forget(name)
            seat.keeper.leave(name)
            if isinstance(self._meter, FakeMeter) and tenant.pid is not None:
                self._meter.clear_load(seat.keeper.info.index, tenant.pid)
        return energy

    def save_guards(self) -> None:
        """For an agent after us."""
        write_json(str(self._guards), {uuid: seat.keeper.guard.to_dict() for uuid, seat in self._by_uuid.items()})
