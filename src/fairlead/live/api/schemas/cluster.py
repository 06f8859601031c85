"""The controller, its nodes and GPUs, and what happened there, as the API answers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fairlead.live.api.schemas.base import Shape, StateWord

NodeWord = Literal["up", "asleep", "waking", "leaving", "absent", "unreachable"]


class HealthView(Shape):
    """Whether the controller does its work, and if not why."""

    status: Literal["ok", "trouble"]
    reasons: list[str]
    loop_age_s: float = Field(description="Since the control loop last came round.")


class Event(Shape):
    """Something that happened to a job, a node or the controller."""

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
    """A GPU: what it is, who is on it, and what was last read of it."""

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
    """A node with its state and its GPUs."""

    name: str
    state: NodeWord
    gpus: list[GpuView]


class NodesView(Shape):
    """All nodes of the cluster."""

    nodes: list[NodeView]
    is_fake: bool


class Drained(Shape):
    """GPUs that take no new jobs, or take them again."""

    name: str
    gpus: list[str]
    is_drained: bool


class Enabled(Shape):
    """GPUs that their guards had disabled, and that are in the pool again."""

    name: str
    gpus: list[str]


class GpuCounts(Shape):
    """How many GPUs there are, have jobs, and are drained."""

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
    deadlines: dict[Literal["on-time", "at-risk", "missed"], int] = Field(description="Of jobs that are not over.")
    power_w: float | None
    power_at_s: float | None = Field(description="When the oldest of the readings was taken that this adds up.")


class HistoryRow(Shape):
    """What happened in one step of time, as sums."""

    start_s: int
    covered_s: float = Field(description="Of the step, the time in which a controller looked.")
    gpu_s: float
    busy_gpu_s: float
    running_job_s: float
    waiting_job_s: float
    energy_j: float
    paid_gpu_s: float
    cost_usd: float


class HistoryView(Shape):
    """The cluster over time, oldest first."""

    step_s: int
    rows: list[HistoryRow]
    budget_gpus: float | None = Field(description="GPUs to pay for on average, where a budget is set.")
    has_prices: bool
    is_fake: bool


class InvitationWanted(BaseModel):
    """How long a token that lets a machine join works."""

    model_config = ConfigDict(extra="forbid")
    life_s: float = Field(default=3600.0, gt=0.0, le=30 * 86400.0)


class Invitation(Shape):
    """A token that lets one machine join, and where."""

    token: str
    url: str
    ends_at_s: float


class Removed(Shape):
    """A node that is out for good."""

    name: str
