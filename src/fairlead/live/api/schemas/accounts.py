"""Tokens, sessions, users and the audit, as the API takes and answers them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fairlead.live.api.schemas.base import Shape, StateWord
from fairlead.live.storage.tokens import MOST_LIFE_S

RoleWord = Literal["user", "operator", "admin"]


class TokenWanted(Shape):
    """A token to be made."""

    user: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    role: RoleWord
    note: str = Field(default="", max_length=200)
    life_s: float | None = Field(
        default=None,
        ge=0.0,
        le=MOST_LIFE_S,
        allow_inf_nan=False,
        description="How long it stands; null: as configured, 0: until it is revoked.",
    )


class Rotation(Shape):
    """A token to be replaced."""

    id: int | None = Field(default=None, ge=1, le=2**63 - 1, description="Null: the one that asks.")
    keep_s: float = Field(
        default=0.0, ge=0.0, le=MOST_LIFE_S, allow_inf_nan=False, description="The old one stands for so much longer."
    )


class TokenMade(Shape):
    """A new token; it is shown this once and kept as a hash."""

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
    expires_at_s: float | None


class TokenList(Shape):
    """All that were ever made."""

    tokens: list[TokenView]


class TokenRevoked(Shape):
    """It lets nobody in any more."""

    id: int


class AuditAct(Shape):
    """One entry of the audit: who did what, when, from where."""

    id: int
    at_s: float
    user: str
    token_id: int | None
    source: str
    what: str
    job_id: int | None
    about: str


class AuditPage(Shape):
    """Some of it; `next` is the `after` with which to ask for what follows."""

    acts: list[AuditAct]
    next: int


class UserUsageView(Shape):
    """What one user has and has had."""

    user: str
    jobs: dict[StateWord, int]
    gpus: float = Field(description="Held now; parts of GPUs count as such.")
    late_jobs: int
    gpu_s: float
    energy_j: float
    cost_usd: float | None


class UsageView(Shape):
    """Of all users, or of the one who asks."""

    users: list[UserUsageView]
    is_fake: bool


class SignIn(Shape):
    """A token, or a code that was made for this; one of them."""

    token: str | None = Field(default=None, min_length=1, max_length=200)
    code: str | None = Field(default=None, min_length=1, max_length=200)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("give a token or a code, and not both")
        return self


class SessionView(Shape):
    """Who is signed in, with which role, until when."""

    user: str
    role: RoleWord
    expires_at_s: float | None


class SessionBegun(SessionView):
    """The other half is in the cookie."""

    key: str


class SessionsEnded(Shape):
    """How many sessions were ended."""

    ended: int


class Code(Shape):
    """A code that is good for one sign-in to the page."""

    code: str
    life_s: float
