"""Tokens, the audit log and metrics."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import Admin, Caller, Operator, act
from fairlead.live.api.context import LARGEST, Here
from fairlead.live.api.events import MOST_EVENTS, Since
from fairlead.live.api.metrics import CONTENT_TYPE
from fairlead.live.api.schemas.accounts import AuditPage, Rotation, TokenList, TokenMade, TokenRevoked, TokenWanted
from fairlead.live.storage.tokens import Role, as_dict

router = APIRouter()
_TEXT = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get("/v1/tokens", response_model=TokenList, responses=documented(403))
async def tokens(who: Admin, here: Here) -> Json:
    """All tokens that were ever made, without the tokens themselves."""
    return Json({"tokens": [as_dict(row) for row in await here.read(here.tokens.list)]})


@router.post("/v1/tokens", status_code=201, response_model=TokenMade, responses=documented(403, 413))
async def make_token(wanted: TokenWanted, who: Admin, asked: Request, here: Here) -> Json:
    """Make one; it is shown this once."""
    life_s = here.token_life_s if wanted.life_s is None else None if wanted.life_s == 0.0 else wanted.life_s
    noted = act(asked, "token-created", f"for {wanted.user}, {wanted.role}")
    make = partial(here.tokens.create, wanted.user, wanted.role, wanted.note, life_s=life_s, act=noted)
    number, token = await here.read(make)
    return Json({"id": number, "token": token}, 201)


@router.post("/v1/tokens/rotate", status_code=201, response_model=TokenMade, responses=documented(403, 404, 413))
async def rotate(wanted: Rotation, who: Caller, asked: Request, here: Here) -> Json:
    """Make another in the place of one: of one's own, which needs no role, or as an administrator of any."""
    token_id = who.token_id if wanted.id is None else wanted.id
    if token_id != who.token_id and not who.role.may(Role.ADMIN):
        raise Refusal(403, f"token {token_id} is not the one that asks", "leave out the number to rotate your own")
    noted = act(asked, "token-rotated", f"token {token_id}")
    change = partial(here.tokens.rotate, token_id, keep_s=wanted.keep_s, life_s=here.token_life_s, act=noted)
    made = await here.read(change)
    if made is None:
        raise Refusal(404, f"there is no token {token_id} that stands")
    return Json({"id": made[0], "token": made[1]}, 201)


@router.delete("/v1/tokens/{token_id}", response_model=TokenRevoked, responses=documented(403, 404))
async def revoke(token_id: Annotated[int, Path(ge=1, le=LARGEST)], who: Admin, asked: Request, here: Here) -> Json:
    """From now on it lets nobody in."""
    noted = act(asked, "token-revoked", f"token {token_id}")
    if not await here.read(partial(here.tokens.revoke, token_id, act=noted)):
        raise Refusal(404, f"there is no token {token_id}")
    return Json({"id": token_id})


@router.get("/v1/audit", response_model=AuditPage, responses=documented(403))
async def audit(
    who: Admin,
    here: Here,
    after: Since = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100,
    user: Annotated[str | None, Query(max_length=64)] = None,
    what: Annotated[str | None, Query(max_length=64)] = None,
    job_id: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
) -> Json:
    """Who did what, oldest first."""
    rows = await here.read(partial(here.audit.rows, after, limit, user=user, what=what, job_id=job_id))
    return Json({"acts": rows, "next": rows[-1]["id"] if rows else max(after, 0)})


@router.get("/metrics", response_class=Response, responses={**documented(403), 200: _TEXT})
async def metrics(who: Operator, here: Here) -> Response:
    """Everything that Prometheus scrapes, as text."""
    return Response(await here.read(here.metrics.text), headers={"Content-Type": CONTENT_TYPE})
