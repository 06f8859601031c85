"""Who asks, and whether they may. The gate stands before everything: what nobody thought of is closed, not open.

Programs send a token. Browsers have a session: a cookie, and a key in a header that no other site can send or know.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.live.api.answers import Refusal, problem
from fairlead.live.storage.audit import Act, Audit
from fairlead.live.storage.sessions import Session, Sessions
from fairlead.live.storage.tokens import Identity, Role, Tokens

SIGN_IN = "/v1/session"
OPEN = frozenset({"/health"})
"""Paths that need no token,"""
OPEN_TO_POST = frozenset({SIGN_IN})
"""those to which one is brought,"""
_PAGE, _ASSETS = "/", "/assets/"
"""and the page's own files, which are the same for everybody."""
COOKIE = "fairlead_session"
"""How the names of our cookies begin: a port follows, since one host's ports share their cookies."""
KEY_HEADER = "X-Fairlead-Session"
_SCHEME = b"bearer "


class Gate:
    """Lets in who has a token or a session, and notes who that is."""

    def __init__(self, app: ASGIApp, tokens: Tokens, sessions: Sessions, audit: Audit) -> None:
        self._app, self._tokens, self._sessions, self._audit = app, tokens, sessions, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who asks, and refuse whoever may not, before any route is run."""
        if scope["type"] == "http" and not _is_open(scope):
            token = _token(scope)
            key = header(scope, KEY_HEADER)
            who = self._tokens.find(token)
            if who is None and key and not token:
                who = self._of_session(scope, key)
            if who is None:
                await problem(self._nobody(scope, token, key))(scope, receive, send)
                return
            scope["identity"] = who
        await self._app(scope, receive, send)

    def _of_session(self, scope: Scope, key: str) -> Identity | None:
        if not is_same_origin(scope):
            return None
        for cookie in _cookies(scope):
            found = self._sessions.find(cookie, key)
            if found is not None:
                scope["session"], who = found
                return who
        return None

    def _nobody(self, scope: Scope, token: str, key: str) -> Refusal:
        if key and not token:  # most often one that has ended by itself, which is no attempt to get in
            return Refusal(401, "your session has ended", "sign in again", {"WWW-Authenticate": "Bearer"})
        ended = self._tokens.ended(token)
        if ended is None:
            self._audit.failed(source(scope), "no token that stands" if token else "no token")
            message, hint = (
                "no valid token came with this request",
                "send a token that stands: Authorization: Bearer fl_...",
            )
        else:
            self._audit.failed(source(scope), "its token has expired", ended.user, ended.token_id)
            day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(ended.expires_at_s))
            message = f"this token, number {ended.token_id} of {ended.user}, expired on {day} UTC"
            hint = "ask an administrator for another one; before it expires, fairlead token rotate gives one"
        return Refusal(401, message, hint, {"WWW-Authenticate": "Bearer"})


def _token(scope: Scope) -> str:
    """As it was sent; empty where none was, or several were."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
        return ""
    return bytes(given[0][len(_SCHEME) :]).strip().decode("latin-1")


def header(scope: Scope, name: str) -> str:
    """As it was sent; empty where none was, or several were."""
    wanted = name.lower().encode()
    given = [value for found, value in scope["headers"] if found == wanted]
    return bytes(given[0]).decode("latin-1") if len(given) == 1 else ""


def _is_open(scope: Scope) -> bool:
    path, method = scope["path"], scope["method"]
    if method == "POST":
        return path in OPEN_TO_POST
    return path in OPEN or path == _PAGE or path.startswith(_ASSETS)


def _cookies(scope: Scope) -> list[str]:
    """The values of ours, in the order sent."""
    pairs = (pair.strip().partition("=") for pair in header(scope, "cookie").split(";"))
    return [value for name, _, value in pairs if name.startswith(COOKIE)]


def is_same_origin(scope: Scope) -> bool:
    """Whether this is no other site's doing, by what browsers say of each request and no script can forge."""
    fetch_site = header(scope, "sec-fetch-site")
    if fetch_site:
        return fetch_site in ("same-origin", "none")
    origin = header(scope, "origin")
    return not origin or origin.partition("://")[2] == header(scope, "host")


def session_of(request: Request) -> Session | None:
    """The session that asks; None where a token does."""
    return cast("Session | None", request.scope.get("session"))


def source(scope: Scope) -> str:
    """Where a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else "unix"


def act(request: Request, what: str, about: str = "", job_id: int | None = None) -> Act:
    """What the caller does, for the audit log."""
    who = caller(request)
    return Act(who.user, what, who.token_id, source(request.scope), job_id, about)


def caller(request: Request) -> Identity:
    """The identity that the gate has found for this request."""
    return cast(Identity, request.scope["identity"])


async def _caller(request: Request) -> Identity:
    return caller(request)  # a coroutine, since others are called in threads


def _at_least(role: Role) -> Any:
    async def check(request: Request) -> Identity:
        who = caller(request)
        if not who.role.may(role):
            raise Refusal(403, f"{who.user} is {who.role}, and this needs {role}", "ask an administrator for a token")
        return who

    return Depends(check)


Caller = Annotated[Identity, Depends(_caller)]
Operator = Annotated[Identity, _at_least(Role.OPERATOR)]
Admin = Annotated[Identity, _at_least(Role.ADMIN)]
