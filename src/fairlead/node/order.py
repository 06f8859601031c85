"""What a controller orders of a node: run this part of an attempt. And the environment that its processes get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fairlead.errors import InputError, did_you_mean
from fairlead.job import place
from fairlead.node.fake import FAKE_UUID
from fairlead.node.spec import JobSpec, Restart, Role

_FIRST_PORT, _PORTS = 12_000, 18_000
"""Under those that the kernel gives to anybody (32768 and up)."""


@dataclass(frozen=True, slots=True)
class Order:
    """One node's part of an attempt. The controller numbers jobs and attempts; both together are its name here."""

    job_id: int
    attempt: int
    argv: tuple[str, ...]
    gpus: tuple[str, ...]
    """UUIDs, of this node."""
    kind: str = "training"
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    shared: bool = False
    sm_share: float = 1.0
    memory_mib: float = 0.0
    slo_s: float | None = None
    activity_frac: float = 1.0
    nodes: tuple[int, ...] = (0,)
    """All nodes of the attempt, by the controller's numbers, which mean nothing here."""
    rank: int = 0
    """Of this one among them."""
    num_gpus: int = 1
    """On all nodes together."""
    master_addr: str = "127.0.0.1"
    """Where the first node is reached from the others."""

    def __post_init__(self) -> None:
        if self.job_id < 0 or self.attempt < 0:
            raise InputError(f"job {self.job_id}, attempt {self.attempt}: expected numbers from 0 on")
        if not self.gpus or not 0 <= self.rank < len(self.nodes):
            where = f"on {len(self.gpus)} GPUs, rank {self.rank} of {len(self.nodes)} nodes"
            raise InputError(f"job {self.job_id}: {where}; expected at least one GPU and a rank under the nodes")
        if self.kind not in ("training", "service"):
            raise InputError(f"job {self.job_id}: kind {self.kind!r}", hint="known: training, service")
        if not 0.0 < self.sm_share <= 1.0:
            raise InputError(f"job {self.job_id}: an SM share of {self.sm_share:g}, allowed is above 0 up to 1")

    @property
    def name(self) -> str:
        """As the agent calls it: job and attempt."""
        return name_of(self.job_id, self.attempt)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {**asdict(self), "env": dict(self.env)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Order:
        """The reverse; what it holds too much or too little is an error."""
        known = {one.name for one in fields(cls)}
        for name in found:
            if name not in known:
                raise InputError(f"an order with {name!r}", hint=did_you_mean(name, known))
        try:
            return cls(**{**found, **{name: tuple(found[name]) for name in ("argv", "gpus", "nodes") if name in found}})
        except TypeError as wrong:
            raise InputError(f"an order that cannot be read: {wrong}") from None

    def spec(self, reports: Path, *, beside_service: bool) -> JobSpec:
        """As the agent is asked to run it. `reports` is where its report and its stop file are."""
        is_service = self.kind == "service"
        # Of several nodes, one that starts anew is of no use to the others: then that is for the controller.
        restart = Restart.ON_FAULT if is_service and len(self.nodes) == 1 else Restart.NEVER
        stop_file = reports / f"{self.name}.stop"
        return JobSpec(
            job_id=self.name,
            argv=self.argv,
            gpus=self.gpus,
            role=Role.SERVICE if is_service else Role.OFFLINE,
            restart=restart,
            share_pct=100.0 * self.sm_share if self.sm_share < 1.0 else None,
            quota_mib=self.memory_mib if beside_service and not is_service and self.memory_mib >= 1.0 else None,
            slo_s=self.slo_s if is_service else None,
            cwd=Path(self.cwd),
            env={"PYTHONUNBUFFERED": "1", **self.env},  # so that logs grow line by line
            user=self.user,
            is_shared=self.shared,
            activity_frac=self.activity_frac,
            memory_mib=self.memory_mib or None,
            own_env={
                **self._environment(),
                place.REPORT: str(report_path(reports, self.name)),
                place.STOP: str(stop_file),
            },
            stop_file=stop_file,
            reports_as=str(self.job_id),
        )

    def _environment(self) -> dict[str, str]:
        """What its processes see; torchrun takes PET_* for options that its command line does not give.

        RANK, LOCAL_RANK and WORLD_SIZE are torchrun's own to set, one for each of the processes that it starts.
        """
        port = str(_FIRST_PORT + (7 * self.job_id + self.attempt) % _PORTS)
        shape = {"NNODES": str(len(self.nodes)), "NODE_RANK": str(self.rank), "NPROC_PER_NODE": str(len(self.gpus))}
        shape |= {"MASTER_ADDR": self.master_addr, "MASTER_PORT": port}
        return {
            **shape,
            **{f"PET_{name}": value for name, value in shape.items()},
            place.ID: str(self.job_id),
            place.ATTEMPT: str(self.attempt),
            place.NUM_GPUS: str(self.num_gpus),
            **({place.FAKE: "1"} if self.gpus[0].startswith(FAKE_UUID) else {}),
        }


def name_of(job_id: int, attempt: int) -> str:
    """What the agent calls an attempt; its own restarts of a service are numbered within it."""
    return f"{job_id}.{attempt}"


def report_path(reports: Path, name: str) -> Path:
    """Of one attempt."""
    return reports / f"{name}.jsonl"
