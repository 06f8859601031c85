"""What the agent is asked to run on GPUs, and how much of them."""

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
    """One job on one or more GPUs of this machine.

    MPS has one daemon per GPU and a process can use one daemon, so only a job on one GPU runs under MPS; one on several
    that shares them takes turns with its neighbours. A job that has its GPUs for itself has neither MPS nor the shim.
    """

    job_id: str
    argv: tuple[str, ...]
    gpus: tuple[str, ...]
    """Their UUIDs."""
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
    is_shared: bool = True
    """Whether others may be, or come, on its GPUs."""
    activity_frac: float = 1.0
    """How busy it keeps each GPU, and `memory_mib` what it holds there: what fake GPUs show."""
    memory_mib: float | None = None
    own_env: Mapping[str, str] = field(default_factory=dict)
    """Ours, over the user's."""
    stop_file: Path | None = None
    """Made when it is asked to leave, for programs that would rather look than be signalled."""
    reports_as: str = ""
    """Its name in latency reports; empty: the same as `job_id`."""

    def __post_init__(self) -> None:
        if not self.gpus or len(set(self.gpus)) < len(self.gpus):
            raise InputError(f"job {self.job_id}: on the GPUs {self.gpus}; expected at least one, each once")
        if self.role is Role.SERVICE and self.quota_mib is not None:
            raise InputError(f"job {self.job_id}: a quota is for offline jobs; a service runs without the shim")
        if self.role is Role.OFFLINE and (self.baseline_s is not None or self.slo_s is not None):
            raise InputError(f"job {self.job_id}: a latency is for services, and it is offline")

    @property
    def is_mps_client(self) -> bool:
        """Whether it runs under MPS, where there is MPS."""
        return self.uses_mps and self.is_shared and len(self.gpus) == 1

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
        plain = {**asdict(self), "argv": list(self.argv), "gpus": list(self.gpus), "cwd": str(self.cwd)}
        stop_file = None if self.stop_file is None else str(self.stop_file)
        return {**plain, "env": dict(self.env), "own_env": dict(self.own_env), "stop_file": stop_file}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> JobSpec:
        """The reverse."""
        try:
            values = dict(saved)
            values["argv"], values["gpus"] = tuple(values["argv"]), tuple(values["gpus"])
            values["cwd"] = Path(values["cwd"])
            values["stop_file"] = None if values["stop_file"] is None else Path(values["stop_file"])
            values["role"], values["restart"] = Role(values["role"]), Restart(values["restart"])
            values["limits"] = Limits(**values["limits"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as wrong:
            raise InputError(f"a saved job cannot be read: {type(wrong).__name__} {wrong}") from None
