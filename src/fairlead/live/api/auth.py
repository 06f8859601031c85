"""Who asks, and whether they may. The gate stands before everything: what nobody thought of is closed, not open."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.live.api.answers import Refusal, problem
from fairlead.live.tokens import Identity, Role, Tokens

OPEN = frozenset({"/health"})
"""Paths that need no token."""
_SCHEME = b"bearer "


class Gate:
    """Lets in who has a token, and notes who that is."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            who = self._who(scope)
            if who is None:
                await problem(_nobody())(scope, receive, send)
                return
            scope["identity"] = who
        await self._app(scope, receive, send)

    def _who(self, scope: Scope) -> Identity | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            return None
        return self._tokens.find(given[0][len(_SCHEME) :].strip().decode("latin-1"))


def _nobody() -> Refusal:
    hint = "send a token that stands: Authorization: Bearer fl_..."
    return Refusal(401, "no valid token came with this request", hint, {"WWW-Authenticate": "Bearer"})


def caller(request: Request) -> Identity:
    """Whoever asks."""
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
