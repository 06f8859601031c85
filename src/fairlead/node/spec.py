"""What the agent is asked to run on a GPU, and how much of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlead.errors import InputError
from fairlead.node.launch import Limits


class Role(enum.StrEnum):
    """What a job is to its neighbours."""

    SERVICE = "service"
    """Latency-critical: protected."""
    OFFLINE = "offline"
    """Best effort: held back, frozen or evicted where it hurts the service."""


class Restart(enum.StrEnum):
    """When the agent itself starts a job again."""

    NEVER = "never"
    """That is somebody else's decision."""
    ON_FAULT = "on-fault"
    """When it ended otherwise than by itself with 0: killed, failed, or evicted."""
    ALWAYS = "always"
    """Whenever it has ended and nobody asked for it."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job on one GPU."""

    job_id: str
    argv: tuple[str, ...]
    gpu: str
    """Its UUID."""
    role: Role = Role.OFFLINE
    restart: Restart = Restart.NEVER
    uses_mps: bool = True
    """False: the driver slices time, and nothing but the shim protects the neighbour."""
    share_pct: float | None = None
    """Of the SMs, under MPS; fixed when the job starts."""
    quota_mib: float | None = None
    """Of device memory, for an offline job."""
    baseline_s: float | None = None
    """A service's latency alone; with this or an SLO its latency counts."""
    slo_s: float | None = None
    cwd: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.role is Role.SERVICE and self.quota_mib is not None:
            raise InputError(f"job {self.job_id}: a quota is for offline jobs; a service runs without the shim")
        if self.role is Role.OFFLINE and (self.baseline_s is not None or self.slo_s is not None):
            raise InputError(f"job {self.job_id}: a latency is for services, and it is offline")

    @property
    def is_service(self) -> bool:
        """Whether it is the one to protect."""
        return self.role is Role.SERVICE

    @property
    def has_latency(self) -> bool:
        """Whether its reports mean anything."""
        return self.baseline_s is not None or self.slo_s is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {**asdict(self), "cwd": str(self.cwd), "argv": list(self.argv), "env": dict(self.env)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> JobSpec:
        """The reverse."""
        try:
            values = dict(saved)
            values["argv"], values["cwd"] = tuple(values["argv"]), Path(values["cwd"])
            values["role"], values["restart"] = Role(values["role"]), Restart(values["restart"])
            values["limits"] = Limits(**values["limits"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as wrong:
            raise InputError(f"a saved job cannot be read: {type(wrong).__name__} {wrong}") from None
