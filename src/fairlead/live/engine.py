"""The seam between the controller and what runs jobs: an engine brings nodes, runs attempts and tells the truth.

Every call is idempotent and may be repeated after a crash. The controller says what it wants once; how things stand it
learns only from `poll`, which tells the whole truth each time, so that nothing is lost with a message.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fairlead.errors import FairleadError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Kind
from fairlead.node.progress import Progress as Progress

Stream = Literal["stdout", "stderr"]
Key = tuple[int, int]
"""A job's number and the number of the attempt, from 1 on."""


class EngineError(FairleadError):
    """It could not be done now, a node's agent does not answer for instance; to be tried again."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Run one attempt of a job."""

    job_id: int
    attempt: int
    argv: tuple[str, ...]
    gpus: tuple[int, ...]
    """By their numbers in the engine's cluster; they may be on several nodes, each then gets a process."""
    kind: Kind = "training"
    cwd: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    """The user's own."""
    user: str | None = None
    """Run as this user; None is whoever runs the engine."""
    shared: bool = False
    """Whether others may be, or come, on these GPUs: then it runs under MPS where there is MPS."""
    sm_share: float = 1.0
    memory_mib: float = 0.0
    """On each GPU; a quota where the job is beside a service. 0 is unknown."""
    slo_s: float | None = None
    """Of a service."""
    activity_frac: float = 1.0
    """How busy its profile says that it keeps a GPU; fake GPUs go by it."""

    @property
    def key(self) -> Key:
        """Job and attempt."""
        return self.job_id, self.attempt


class AttemptState(enum.StrEnum):
    """Where an attempt stands."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    """No process of it is left, on any node."""
    LOST = "lost"
    """No process of it is left, and nobody knows how it ended."""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """How an attempt stands; of one on several nodes, all of them together."""

    job_id: int
    attempt: int
    state: AttemptState
    exit_code: int | None = None
    """As shells count; of several nodes the first that is not 0."""
    reason: str = ""
    """exited, signalled, command-not-found, no-such-folder, ..."""
    detail: str = ""
    started_at_s: float | None = None
    """As time of day."""
    ended_at_s: float | None = None
    stop_requested_at_s: float | None = None
    """When it was asked to leave, whoever asked; None if it left by itself."""
    evicted: str = ""
    """Why its node's guard made it leave; empty if it did not."""
    progress: Progress | None = None
    energy_j: float | None = None
    """Its part of the GPUs' meters; None where they have none."""

    @property
    def key(self) -> Key:
        """Job and attempt."""
        return self.job_id, self.attempt

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in (AttemptState.ENDED, AttemptState.LOST)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as last read; None is unknown, never 0."""

    gpu: int
    utilisation_frac: float | None = None
    sm_activity_frac: float | None = None
    memory_used_mib: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Since some moment in the past."""
    temperature_c: float | None = None
    accepts_offline: bool = True
    """Whether the node's guard lets best-effort work beside a service here."""
    guard_state: str = ""
    service_utilisation_frac: float | None = None
    """The services' own part; so is the next."""
    service_sm_activity_frac: float | None = None
    service_memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that an agent did or saw, for the log: a change of a guard's state, a step of an eviction, a fault."""

    number: int
    """Of this node's events, rising; an event may be told more than once."""
    node: int
    at_s: float
    """As time of day."""
    what: str
    """One kebab-case word."""
    gpu: int | None = None
    job_id: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Poll:
    """The whole truth, as far as it is known."""

    attempts: Mapping[Key, AttemptStatus]
    """All that were started and not yet forgotten, on nodes that answer."""
    readings: Mapping[int, GpuReading]
    unreachable: frozenset[int]
    """Nodes whose agent does not answer: nothing is known of the attempts there, they may well run on."""
    awake: frozenset[int]
    """Nodes that can run jobs now."""
    events: tuple[NodeEvent, ...] = ()
    """Since the last poll."""


class Engine(Protocol):
    """Brings nodes and runs attempts on them. Calls may come from any thread."""

    @property
    def cluster(self) -> Cluster:
        """The nodes and GPUs; the same after every restart of the controller as long as the machines are the same."""
        ...

    @property
    def is_fake(self) -> bool:
        """Whether GPUs, and so all that is metered, are made up."""
        ...

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this, from some thread, whenever a poll would tell something new that should be acted on."""
        ...

    def poll(self) -> Poll:
        """How everything stands now."""
        ...

    def start(self, order: StartOrder) -> None:
        """Run it, unless this attempt was ever started; returns when that is settled or raises `EngineError`."""
        ...

    def stop(self, key: Key, grace_s: float) -> None:
        """Ask it to leave: SIGTERM, and SIGKILL after the grace, in the safe order. Does not wait.

        One that is unknown never starts from now on, and is told as ended: its order may still be on the way.
        """
        ...

    def forget(self, key: Key) -> None:
        """It is over and written down: `poll` need not tell of it any more. Logs stay until `remove`."""
        ...

    def remove(self, job_id: int) -> None:
        """Delete the logs of a job that is over for good."""
        ...

    def read_log(self, key: Key, stream: Stream, offset: int, limit: int) -> bytes:
        """A piece of what it wrote, from its first node; empty at the end, and where nothing was written.

        An offset below 0 counts from the end.
        """
        ...

    def sleep(self, node: int) -> None:
        """Nothing runs there: save what can be saved."""
        ...

    def wake(self, node: int) -> None:
        """Make it usable; `poll` says when it is."""
        ...

    def close(self) -> None:
        """Let go; jobs and agents go on."""
        ...
