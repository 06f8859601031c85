"""Questions about the future, as the API takes them."""

from __future__ import annotations

from pydantic import Field

from fairlead.live.api.schemas.base import Shape


class WhatIfJob(Shape):
    """A job that might be submitted now."""

    name: str = Field(default="", max_length=100)
    gpus: int = Field(default=1, ge=1, le=100_000)
    duration_s: float | None = Field(default=None, ge=0.0, le=1e9, allow_inf_nan=False)
    profile: str = Field(default="generic", max_length=100)
    priority: int = Field(default=0, ge=-1000, le=1000)
    deadline_s: float | None = Field(default=None, gt=0.0, le=1e9, allow_inf_nan=False)


class WhatIf(Shape):
    """What should be different from the cluster as it is."""

    policy: str = Field(default="", max_length=500, description="As of `fairlead policies`; empty: as it is.")
    nodes: int = Field(default=0, ge=-10_000, le=10_000, description="So many more, or fewer.")
    jobs: list[WhatIfJob] = Field(default_factory=list, max_length=20)


class Choices(Shape):
    """What can be chosen in what-ifs and for jobs."""

    policy: str
    policies: list[str]
    profiles: list[str]
    nodes: int
