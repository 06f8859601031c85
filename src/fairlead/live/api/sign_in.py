"""Signing in with a browser: a token or a one-time code becomes a session, which can be ended.

Neither is ever part of an address: codes come in a link's fragment, which browsers send to nobody, and from there in a
body.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import COOKIE, SIGN_IN, Caller, act, header, is_same_origin, session_of, source
from fairlead.live.api.context import Context, Here
from fairlead.live.api.schemas.accounts import Code, SessionBegun, SessionsEnded, SessionView, SignIn
from fairlead.live.storage.audit import Act
from fairlead.live.storage.sessions import CODE_S, Begun
from fairlead.live.storage.tokens import Identity

router = APIRouter()


@router.post(SIGN_IN, status_code=201, response_model=SessionBegun, responses=documented(403, 413))
async def sign_in(wanted: SignIn, asked: Request, here: Here) -> Json:
    """Begin a session; the answer sets its cookie, and its `key` goes with every request as X-Fairlead-Session."""
    if not is_same_origin(asked.scope):
        raise Refusal(403, "another site has asked to sign in here", "open the page itself")
    who = _whose(wanted, here)
    if who is None:
        what = "code" if wanted.token is None else "token"
        here.audit.failed(source(asked.scope), f"no {what} that is valid, on the page")
        hint = "fairlead page gives another link" if what == "code" else "an administrator can make one"
        raise Refusal(401, f"this {what} does not let you in: it is wrong, used or expired", hint)
    noted = Act(who.user, "signed-in", who.token_id, source(asked.scope), about=str(who.role))
    begun = await here.read(partial(here.sessions.begin, who, source(asked.scope), noted))
    answer = Json({**_about(who, begun.session.expires_at_s), "key": begun.key}, 201, {"Cache-Control": "no-store"})
    _set_cookie(answer, asked, begun)
    return answer


@router.get(SIGN_IN, response_model=SessionView, responses=documented())
async def session(who: Caller, asked: Request) -> Json:
    """Who asks, and until when they may."""
    found = session_of(asked)
    return Json(_about(who, who.expires_at_s if found is None else found.expires_at_s))


@router.delete(SIGN_IN, response_model=SessionsEnded, responses=documented(404))
async def sign_out(who: Caller, asked: Request, here: Here) -> Json:
    """End the session that asks."""
    own = session_of(asked)
    if own is None:
        raise Refusal(404, "a token asks, not a session", "DELETE /v1/sessions ends all sessions of this token")
    noted = act(asked, "signed-out")
    ended = await here.read(partial(here.sessions.end, lambda one: one.id == own.id, noted))
    answer = Json({"ended": ended})
    answer.delete_cookie(_cookie_name(asked), path="/", httponly=True, samesite="strict")
    return answer


@router.delete("/v1/sessions", response_model=SessionsEnded, responses=documented())
async def sign_out_everywhere(who: Caller, asked: Request, here: Here) -> Json:
    """End all sessions of the token that asks, or that the asking session stands for."""
    noted = act(asked, "signed-out", "everywhere")
    ended = await here.read(partial(here.sessions.end, lambda one: one.token_id == who.token_id, noted))
    return Json({"ended": ended})


@router.post("/v1/sign-in-codes", status_code=201, response_model=Code, responses=documented())
async def make_code(who: Caller, here: Here) -> Json:
    """A code that begins one session as the caller."""
    return Json({"code": here.sessions.make_code(who), "life_s": CODE_S}, 201, {"Cache-Control": "no-store"})


def _whose(wanted: SignIn, here: Context) -> Identity | None:
    if wanted.token is not None:
        return here.tokens.find(wanted.token.strip())
    return here.sessions.redeem(wanted.code or "")


def _about(who: Identity, expires_at_s: float | None) -> dict[str, Any]:
    return {"user": who.user, "role": str(who.role), "expires_at_s": expires_at_s}


def _set_cookie(answer: Response, asked: Request, begun: Begun) -> None:
    is_https = asked.url.scheme == "https" or header(asked.scope, "origin").startswith("https://")  # behind a proxy
    session = begun.session
    answer.set_cookie(
        _cookie_name(asked),
        begun.cookie,
        max_age=max(int(session.expires_at_s - session.created_at_s), 1),
        path="/",
        secure=is_https,
        httponly=True,
        samesite="strict",
    )


def _cookie_name(asked: Request) -> str:
    port = header(asked.scope, "host").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdigit() else COOKIE
