"""What answers look like, for the OpenAPI document. The tests hold real answers against it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

StateWord = Literal["waiting", "held", "backing-off", "running", "finished", "parked", "cancelled"]
NodeWord = Literal["up", "asleep", "waking", "unreachable"]
RoleWord = Literal["user", "operator", "admin"]
WishWord = Literal["cancel", "hold", "release"]


class Shape(BaseModel):
    """No field but those that are named."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Any answer that is not what was asked for."""

    error: str
    hint: str | None


class Health(Shape):
    """Whether the control loop does its work."""

    status: Literal["ok", "trouble"]


class Submitted(Shape):
    """A job that is on the disk."""

    id: int
    is_new: bool = Field(description="False where this Idempotency-Key was used before: then it is the job of then.")


class Wished(Shape):
    """What was asked for is on the disk, and will be done."""

    id: int
    wish: WishWord


class JobView(Shape):
    """A job as its user sees it."""

    id: int
    name: str
    user: str
    kind: Literal["training", "service"]
    state: StateWord
    phase: str
    reason: str
    detail: str
    wait_reason: str | None
    command: list[str]
    cwd: str
    gpus: int
    min_gpus: int
    max_gpus: int
    memory_mib: float
    profile: str
    priority: int
    deadline_s: float | None
    estimate_s: float | None
    slo_s: float | None
    placement: list[str]
    shared: bool
    sm_share: float
    attempt: int
    failures: int
    epochs_done: int | None
    epochs: int | None
    epoch_s: float | None
    loss: float | None
    submitted_at_s: float
    started_at_s: float | None
    ended_at_s: float | None
    exit_code: int | None
    energy_j: float | None
    is_fake: bool


class AttemptView(Shape):
    """One run of a job."""

    attempt: int
    placement: list[str]
    shared: bool
    sm_share: float
    is_over: bool
    stopping: str
    started_at_s: float | None
    ended_at_s: float | None
    exit_code: int | None
    reason: str
    energy_j: float | None


class JobWithAttempts(JobView):
    """A job with all of its runs."""

    attempts: list[AttemptView]


class JobPage(Shape):
    """Some jobs; `next` is the `after` of the next page, null on the last."""

    jobs: list[JobView]
    next: int | None


class Event(Shape):
    """Something that happened."""

    id: int
    at_s: float
    what: str
    job_id: int | None
    node: str
    about: str


class EventPage(Shape):
    """Some events; `next` is the `after` with which to ask for those that follow."""

    events: list[Event]
    next: int


class Resident(Shape):
    """A job on a GPU; of others' jobs a user sees the number only."""

    id: int
    name: str | None
    user: str | None


class GpuView(Shape):
    """One GPU."""

    name: str
    number: int
    uuid: str
    model: str
    memory_mib: float
    is_drained: bool
    jobs: list[Resident]
    utilisation_frac: float | None
    power_w: float | None
    memory_used_mib: float | None
    temperature_c: float | None
    guard_state: str


class NodeView(Shape):
    """One node."""

    name: str
    state: NodeWord
    gpus: list[GpuView]


class NodesView(Shape):
    """The cluster."""

    nodes: list[NodeView]
    is_fake: bool


class Drained(Shape):
    """GPUs that take no new jobs, or take them again."""

    name: str
    gpus: list[str]
    is_drained: bool


class GpuCounts(Shape):
    """Of GPUs."""

    all: int
    busy: int
    drained: int


class Summary(Shape):
    """The cluster in a few numbers."""

    policy: str
    cluster: str
    is_fake: bool
    version: str
    now_s: float
    trouble: str
    jobs: dict[StateWord, int]
    gpus: GpuCounts
    power_w: float | None


class TokenWanted(Shape):
    """A token to be made."""

    user: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    role: RoleWord
    note: str = Field(default="", max_length=200)


class TokenMade(Shape):
    """Shown this once."""

    id: int
    token: str


class TokenView(Shape):
    """A token as it is listed."""

    id: int
    user: str
    role: RoleWord
    note: str
    created_at_s: float
    revoked_at_s: float | None


class TokenList(Shape):
    """All that were ever made."""

    tokens: list[TokenView]


class TokenRevoked(Shape):
    """It lets nobody in any more."""

    id: int


Anything = dict[str, Any]
