"""What a controller orders of a node: run one attempt of a job. And the environment that its processes get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self
from urllib.parse import urlsplit

from fairlead.errors import InputError, did_you_mean
from fairlead.job import place
from fairlead.model.job import Kind
from fairlead.node.gpu.fake_gpus import FAKE_UUID
from fairlead.node.identity import AttemptId

_KINDS = ("training", "service")
_TUPLES = ("argv", "gpus", "nodes")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_latency_url(url: str) -> None:
    """Raise `InputError` unless this is a page of the machine that a service runs on."""
    hint = "like http://127.0.0.1:8000/metrics: the service's own node is asked, no other"
    try:
        parts = urlsplit(url)
        is_page = parts.scheme == "http" and parts.hostname in LOOPBACK and parts.port and parts.username is None
    except ValueError:
        is_page = False
    if not is_page or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"latency_url {url[:80]!r} is no page of the service's own machine", hint=hint)


@dataclass(frozen=True, slots=True)
class Order:
    """Run one attempt of a job.

    The controller says what to run and how; its engine adds where, for each node its own part (`on`). The node keeps it
    as it came, with the launch that it became.

    MPS has one daemon per GPU and a process can use one daemon, so only a job on one GPU runs under MPS; one on several
    that shares them takes turns with its neighbours. A job that has its GPUs for itself has neither MPS nor the shim.
    """

    id: AttemptId
    argv: tuple[str, ...] = ()
    """Words, never a shell line."""
    kind: Kind = "training"
    """A service is latency-critical and protected; a training beside it is held back, frozen or evicted."""
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    """The user's own; ours goes on top of it."""
    user: str | None = None
    """Run as this user, which needs root; None is whoever runs the node's agent."""
    shared: bool = False
    """Whether others may be, or come, on its GPUs: then it runs under MPS where there is MPS."""
    sm_share: float = 1.0
    """Of the SMs, under MPS; fixed when it starts."""
    memory_mib: float = 0.0
    """On each GPU; a quota where it shares them. 0 is unknown: then its node decides what it may have."""
    slo_s: float | None = None
    """The latency that a service must keep."""
    latency_url: str | None = None
    """Where a service tells its latency, on its own node."""
    latency_metric: str = ""
    """The histogram or summary there, in seconds; empty where the page is just a number."""
    activity_frac: float = 1.0
    """How busy its profile says that it keeps a GPU; fake GPUs go by it."""
    grace_s: float = 30.0
    """From SIGTERM to SIGKILL, whoever stops or evicts it."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the node that it goes to; none until the engine has chosen."""
    nodes: tuple[int, ...] = (0,)
    """All nodes of the attempt, by the controller's numbers, which mean nothing there."""
    rank: int = 0
    """Of this one among them."""
    num_gpus: int = 1
    """On all nodes together."""
    master_addr: str = "127.0.0.1"
    """Where the first node is reached from the others."""
    master_port: int = 0
    """The port there; 0 has the node choose one, which the parts on other nodes are then ordered with."""

    def __post_init__(self) -> None:
        who = self.id.in_words
        if not 0 <= self.rank < len(self.nodes):
            raise InputError(f"{who}: rank {self.rank} of {len(self.nodes)} nodes; expected one under the nodes")
        if len(set(self.gpus)) < len(self.gpus):
            raise InputError(f"{who}: on the GPUs {', '.join(self.gpus)}; expected each once")
        if self.kind not in _KINDS:
            raise InputError(f"{who}: kind {self.kind!r}", hint=f"known: {', '.join(_KINDS)}")
        if not 0.0 < self.sm_share <= 1.0:
            raise InputError(f"{who}: an SM share of {self.sm_share:g}, allowed is above 0 up to 1")
        if not 0.0 <= self.grace_s < float("inf"):
            raise InputError(f"{who}: a grace of {self.grace_s} s; expected 0 or more")
        if self.latency_url is not None:
            check_latency_url(self.latency_url)
        words = (*self.argv, self.cwd, *self.env, *self.env.values())
        if any("\0" in word for word in words) or any("=" in name or not name for name in self.env):
            raise InputError(f"{who}: its command or environment holds what no process can be given")

    @property
    def is_service(self) -> bool:
        """Whether it is the one to protect."""
        return self.kind == "service"

    @property
    def is_mps_client(self) -> bool:
        """Whether it runs under MPS, where there is MPS."""
        return self.shared and len(self.gpus) == 1

    @property
    def is_restarted(self) -> bool:
        """Whether the node's agent launches it again when it fails.

        Of several nodes, one that starts anew is of no use to the others: then that is for the controller.
        """
        return self.is_service and len(self.nodes) == 1

    @property
    def quota_mib(self) -> float | None:
        """What it declared to need on each GPU, where that is held against it; None: decided by who else is there."""
        return self.memory_mib if self.shared and not self.is_service and self.memory_mib >= 1.0 else None

    def environment(self) -> dict[str, str]:
        """What its processes see; torchrun takes PET_* for options that its command line does not give.

        RANK, LOCAL_RANK and WORLD_SIZE are torchrun's own to set, one for each of the processes that it starts.
        """
        shape = {"NNODES": str(len(self.nodes)), "NODE_RANK": str(self.rank), "NPROC_PER_NODE": str(len(self.gpus))}
        shape |= {"MASTER_ADDR": self.master_addr, "MASTER_PORT": str(self.master_port)}
        is_fake = any(uuid.startswith(FAKE_UUID) for uuid in self.gpus)
        return {
            **shape,
            **{f"PET_{name}": value for name, value in shape.items()},
            "CUDA_VISIBLE_DEVICES": "" if is_fake else ",".join(self.gpus),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            place.ID: str(self.id.job_id),
            place.ATTEMPT: str(self.id.attempt),
            place.GPUS: ",".join(self.gpus),
            place.NUM_GPUS: str(self.num_gpus),
            **({place.FAKE: "1"} if is_fake else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """The order in plain types, as it is sent."""
        return {**asdict(self), "id": str(self.id), "env": dict(self.env)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """The reverse; what it holds too much or too little is an error, and so is one without a command or GPUs."""
        known = {one.name for one in fields(cls)}
        for name in found:
            if name not in known:
                raise InputError(f"an order with {name!r}", hint=did_you_mean(name, known))
        try:
            values = {**found, "id": AttemptId.parse(found["id"])}
            made = cls(**values | {name: tuple(found[name]) for name in _TUPLES if name in found})
        except (TypeError, KeyError, AttributeError) as wrong:
            raise InputError(f"an order that cannot be read: {type(wrong).__name__} {wrong}") from None
        if not made.argv or not made.argv[0]:
            raise InputError(f"{made.id.in_words}: its command is empty")
        if not made.gpus:
            raise InputError(f"{made.id.in_words}: on no GPU; expected at least one")
        return made
