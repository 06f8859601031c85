"""Jobs and their runs, as the API answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairlead.live.api.schemas.base import Shape, StateWord

DeadlineWord = Literal["on-time", "at-risk", "missed", "met"]
WishWord = Literal["cancel", "hold", "release"]


class Submitted(Shape):
    """A job that is on the disk."""

    id: int
    is_new: bool = Field(description="False where this Idempotency-Key was used before: then it is the job of then.")


class Wished(Shape):
    """What was asked for is on the disk, and will be done."""

    id: int
    wish: WishWord


class JobView(Shape):
    """A job as it is listed."""

    id: int
    name: str
    user: str
    kind: Literal["training", "service"]
    state: StateWord
    phase: str
    reason: str
    wait_reason: str | None
    gpus: int
    gpu_frac: float = Field(description="The part of one GPU that it asked for; 1 of all others.")
    min_gpus: int
    max_gpus: int
    memory_mib: float
    profile: str
    application: str = Field(description="The program that it is a run of; empty of jobs from before this was told.")
    priority: int
    deadline_s: float | None
    deadline_at_s: float | None
    deadline_state: DeadlineWord | None = Field(description="Null without a deadline, and before it was looked at.")
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
    energy_at_s: float | None = Field(
        description="Up to when energy_j counts; null while nothing of the job runs: then all of it is counted."
    )
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
    energy_at_s: float | None


class JobWithAttempts(JobView):
    """A job with all about it, and all of its runs."""

    command: list[str]
    cwd: str
    detail: str = Field(description="Its last words, where it failed.")
    output_path: str | None = Field(
        description="The folder on its first node with stdout.log and stderr.log of the last attempt; null before one."
    )

    attempts: list[AttemptView]


class JobPage(Shape):
    """Some jobs; `next` is the `after` of the next page, null on the last."""

    jobs: list[JobView]
    next: int | None


class JobRow(JobView):
    """A job in the page's table."""

    why: str | None = Field(description="Why it waits, in words.")
    expected_start_at_s: float | None = Field(description="By the last prediction; null where there is none.")
    expected_end_at_s: float | None
    is_guess: bool = Field(description="Whether nobody said how long it takes.")
    gpu_s: float = Field(description="GPU-seconds held; a shared GPU counts for each job on it.")
    cost_usd: float | None = Field(description="gpu_s at list price; null where GPUs have none, or several prices.")


class JobTable(Shape):
    """A part of a table."""

    total: int
    offset: int
    rows: list[JobRow]
    predicted_at_s: float | None


class Neighbour(Shape):
    """A job on the same GPUs; of others' jobs a user sees the number only."""

    id: int
    name: str | None
    user: str | None
    gpus: list[str]


class JobBeside(Shape):
    """A job and its neighbours."""

    job: JobRow
    neighbours: list[Neighbour]
    kept_speed_frac: float | None = Field(description="Of its speed alone, beside them; null where there are none.")
