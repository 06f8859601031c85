"""The seam between the controller and what runs jobs: an engine brings nodes, runs attempts and tells the truth.

Every call is idempotent and may be repeated after a crash. The controller says what it wants once; how things stand it
learns only from `poll`, which tells the whole truth each time, so that nothing is lost with a message.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fairlead.errors import FairleadError
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.node.progress import Progress as Progress

Stream = Literal["all", "stdout", "stderr"]


class EngineError(FairleadError):
    """It could not be done now, a node's agent does not answer for instance; to be tried again."""


class AttemptState(enum.StrEnum):
    """The states of an attempt, as its nodes tell them."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    """No process of it is left, on any node."""
    LOST = "lost"
    """No process of it is left, and nobody saw how it ended: the machine was restarted, or its supervisor killed."""


class StoppedBy(enum.StrEnum):
    """Who ended an attempt that did not end by itself."""

    NOBODY = ""
    """It ended by itself, as far as anybody knows."""
    FAIRLEAD = "fairlead"
    """We did, whoever asked for it: the controller, an agent's guard, `fairlead down --kill-jobs`."""
    MACHINE = "machine"
    """The machine went down, or took the job's supervisor with it."""
    SIGNAL = "signal"
    """A SIGTERM, SIGINT or SIGHUP of somebody else's."""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """How an attempt stands; of one on several nodes, all of them together."""

    id: AttemptId
    state: AttemptState
    exit_code: int | None = None
    """As shells count; of several nodes the first that is not 0."""
    reason: str = ""
    """exited, signalled, command-not-found, no-such-folder, ..."""
    detail: str = ""
    started_at_s: float | None = None
    """As time of day."""
    ended_at_s: float | None = None
    ended_ago_s: float | None = None
    """How long ago that was when it was told, by a clock that nobody sets; None where the node does not know."""
    stop_requested_at_s: float | None = None
    """When it was stopped or evicted; None if it was not. As time of day: whether before its end says the next."""
    stopped_by: StoppedBy = StoppedBy.NOBODY
    """Of one that is over."""
    ran_s: float | None = None
    """How long it ran, by a clock that nobody sets; None while it runs and where its end was not seen."""
    evicted: str = ""
    """Why its node's guard evicted it; empty if it did not."""
    ended_nodes: frozenset[int] = frozenset()
    """Nodes of it on which nothing of it runs, nor will: its part there is over, or was stopped before it came."""
    progress: Progress | None = None
    energy_j: float | None = None
    """Its part of the GPUs' meters; None where they have none."""
    energy_at_s: float | None = None
    """Up to when that counts, as time of day; meters are read once a second, and told with the next poll."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in (AttemptState.ENDED, AttemptState.LOST)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as last read; None is unknown, never 0."""

    gpu: int
    at_s: float | None = None
    """When it was read, as time of day."""
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
    """Of this node's event log, rising, over restarts of its agent as well."""
    node: int
    at_s: float
    """As time of day."""
    what: str
    """One kebab-case word."""
    gpu: int | None = None
    job_id: int | None = None
    about: str = ""
    event_log: str = ""
    """Another one where the node has lost its folder, and numbers begin anew."""


Heard = Mapping[int, tuple[str, int]]
"""How far each node's events are known: its event log, and the number of the last."""


@dataclass(frozen=True, slots=True)
class Stray:
    """One node's part of an attempt that this database knows nothing of: it was made after the backup was."""

    id: AttemptId
    node: int
    gpus: tuple[int, ...]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Poll:
    """The whole truth, as far as it is known."""

    attempts: Mapping[AttemptId, AttemptStatus]
    """All that were started and not yet forgotten, on nodes that answer."""
    readings: Mapping[int, GpuReading]
    unreachable: frozenset[int]
    """Nodes whose agent does not answer: nothing is known of the attempts there, they may well run on."""
    awake: frozenset[int]
    """Nodes that can run jobs now."""
    events: tuple[NodeEvent, ...] = ()
    """Those after what the caller had heard, of each node in order."""
    strays: tuple[Stray, ...] = ()
    """On all nodes; on those that do not answer, as they were last told."""
    guard_age_s: Mapping[int, float] = field(default_factory=dict)
    """By node, how long ago its guard last looked at its GPUs."""
    absent: frozenset[int] = frozenset()
    """Nodes that are not there at present, and where nothing runs of what was: attempts with a part there are lost."""
    coming: frozenset[int] = frozenset()
    """Absent nodes that were sent for."""
    hidden: frozenset[int] = frozenset()
    """Absent nodes that nobody expects back, and people need not see."""
    leaving: frozenset[int] = frozenset()
    """Nodes that are about to go: whoever runs there has to end in time, and goes on elsewhere."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the output of an attempt is."""

    path: str | None = None
    """The folder with it, on its first node; None where there is none, or none any more."""
    offset: int = 0
    """Where what was written from the moment asked for begins."""


class Engine(Protocol):
    """Brings nodes and runs attempts on them. Calls may come from any thread."""

    @property
    def cluster(self) -> Cluster:
        """The nodes and GPUs; the same after every restart of the controller as long as the machines are the same.

        Only `refresh` changes it. Nodes keep their numbers: new ones come behind the others, or in a free place.
        """
        ...

    def refresh(self) -> bool:
        """Take in the nodes that have come since; whether the cluster is another one now."""
        ...

    @property
    def is_fake(self) -> bool:
        """Whether GPUs, and so all that is metered, are made up."""
        ...

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this, from some thread, whenever a poll would tell something new that should be acted on."""
        ...

    def poll(self, heard: Heard | None = None) -> Poll:
        """How everything stands now, with the events after those that were heard; of other nodes all that are kept."""
        ...

    def start(self, order: Order, gpus: Placement) -> None:
        """Run it on these GPUs, by their numbers in the cluster; on several nodes each gets a process.

        Nothing where this attempt was ever started. Returns when that is settled, or raises `EngineError`.
        """
        ...

    def stop(self, attempt: AttemptId, grace_s: float | None = None, gpus: Placement = ()) -> None:
        """Have it end: SIGTERM, and SIGKILL after the grace, its own unless another is given. Does not wait.

        `gpus` are those that it was to have. Where it is unknown it never starts from now on, and counts as over: its
        order may still be on the way. An error where a node of it does not answer; all others have been told.
        """
        ...

    def forget(self, attempt: AttemptId) -> None:
        """It is over and written down: `poll` need not tell of it any more. Logs stay until `remove`."""
        ...

    def remove(self, job_id: int, gpus: Placement = ()) -> None:
        """Delete the logs of a job that is over for good. `gpus` are all that its attempts had, where that is known."""
        ...

    def read_log(self, attempt: AttemptId, stream: Stream, offset: int, limit: int, gpus: Placement = ()) -> bytes:
        """A piece of what it wrote, from its first node; empty at the end, and where nothing was written.

        An offset below 0 counts from the end. `gpus` are those that it had, where that is known.
        """
        ...

    def locate_log(self, attempt: AttemptId, stream: Stream, since_s: float, gpus: Placement = ()) -> LogPlace:
        """Where its first node keeps what it wrote, and where in that a moment, as time of day, is."""
        ...

    def sleep(self, node: int) -> None:
        """Nothing runs there: save what can be saved."""
        ...

    def wake(self, node: int) -> None:
        """Make it usable; `poll` says when it is."""
        ...

    def enable(self, gpu: int) -> bool:
        """Put a GPU that its guard has disabled back into the pool; False where it was not disabled."""
        ...

    def vacated(self, nodes: frozenset[int]) -> None:
        """No attempt is open any more on these nodes, which are absent: other machines may take their places."""
        ...

    def close(self) -> None:
        """Let go; jobs and agents go on."""
        ...
