"""Tokens and metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import Admin, Operator
from fairlead.live.api.context import LARGEST, Here
from fairlead.live.api.shapes import TokenList, TokenMade, TokenRevoked, TokenWanted
from fairlead.live.metrics import CONTENT_TYPE
from fairlead.live.tokens import as_dict

router = APIRouter()
_TEXT = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get("/v1/tokens", response_model=TokenList, responses=documented(403))
async def tokens(who: Admin, here: Here) -> Json:
    """All tokens that were ever made, without the tokens themselves."""
    return Json({"tokens": [as_dict(row) for row in await here.read(here.tokens.list)]})


@router.post("/v1/tokens", status_code=201, response_model=TokenMade, responses=documented(403, 413))
async def make_token(wanted: TokenWanted, who: Admin, here: Here) -> Json:
    """Make one; it is shown this once."""
    number, token = await here.read(here.tokens.create, wanted.user, wanted.role, wanted.note)
    return Json({"id": number, "token": token}, 201)


@router.delete("/v1/tokens/{token_id}", response_model=TokenRevoked, responses=documented(403, 404))
async def revoke(token_id: Annotated[int, Path(ge=1, le=LARGEST)], who: Admin, here: Here) -> Json:
    """From now on it lets nobody in."""
    if not await here.read(here.tokens.revoke, token_id):
        raise Refusal(404, f"there is no token {token_id}")
    return Json({"id": token_id})


@router.get("/metrics", response_class=Response, responses={**documented(403), 200: _TEXT})
async def metrics(who: Operator, here: Here) -> Response:
    """For Prometheus."""
    return Response(await here.read(here.metrics.text), headers={"Content-Type": CONTENT_TYPE})
