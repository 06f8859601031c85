"""Server-sent events: what a page follows. One stream lives for less than two minutes and is then asked for anew, with
the version that the page has: so the way back after a cut is the way that is always gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from fairlead.live.api.answers import RETRY_S, Refusal, documented
from fairlead.live.api.auth import Caller, session_of
from fairlead.live.api.context import LARGEST, Context, Here
from fairlead.live.storage.tokens import Identity

router = APIRouter()
STREAM = "/v1/updates"
LIFE_S = 100.0
"""Well below the time after which the server cuts off whoever does not read its answer."""
PING_S = 15.0
"""A page that hears nothing for a few of these takes its connection for dead."""
MOST_STREAMS = 64
"""Of one user at a time."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_STREAM = {
    "description": "Server-sent events: `update` with what is new, `end` when the session is over, comments as pings.",
    "content": {"text/event-stream": {"schema": {}}},
}


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"


@router.get(STREAM, response_class=Response, responses={**documented(429), 200: _STREAM})
async def updates(
    who: Caller,
    asked: Request,
    here: Here,
    epoch: Annotated[str, Query(max_length=16, description="Of the last update that the caller has.")] = "",
    version: Annotated[int, Query(ge=-1, le=LARGEST)] = -1,
    event: Annotated[int, Query(ge=-1, le=LARGEST, description="The last event that it has; -1: begin anew.")] = -1,
    life_s: Annotated[float, Query(ge=0.0, le=LIFE_S, allow_inf_nan=False)] = LIFE_S,
) -> StreamingResponse:
    """Follow the cluster: first what the caller does not have, then what changes."""
    if here.streams[who.user] >= MOST_STREAMS:
        message = f"{here.streams[who.user]} pages of {who.user} are open already"
        raise Refusal(429, message, "close some of them", {"Retry-After": str(RETRY_S)})
    known = version if epoch == here.updates.epoch else -1
    return _EventStream(_pieces(here, asked, who, known, event, life_s), headers=_HEADERS)


async def _pieces(
    here: Context, asked: Request, who: Identity, version: int, event: int, life_s: float
) -> AsyncIterator[bytes]:
    loop, told = asyncio.get_running_loop(), here.updates
    until_s, spoke_s, is_first = loop.time() + life_s, loop.time(), True
    here.streams[who.user] += 1
    try:
        async with told.followed(lambda: here.read(told.refresh)):
            while not here.stopping.is_set():
                if not _may(here, asked, who):
                    yield b"event: end\ndata: {}\n\n"
                    return
                message = told.message(who, version, event)
                if message is not None:
                    version, event = told.state.version, told.state.last_event
                    yield b"event: update\ndata: " + message + b"\n\n"
                    spoke_s = loop.time()
                elif is_first or loop.time() - spoke_s >= PING_S:
                    yield b": still here\n\n"
                    spoke_s = loop.time()
                is_first = False
                if loop.time() >= until_s:
                    return
                await told.changed(min(PING_S, max(until_s - loop.time(), 0.0), _LOOK_S))
    finally:
        here.streams[who.user] -= 1


_LOOK_S = 1.0
"""So soon a stream notices that its session has ended, or that the server stops."""


def _may(here: Context, asked: Request, who: Identity) -> bool:
    """Whether they still may: tokens and sessions end while pages are open."""
    session: Any = session_of(asked)
    if session is not None:
        return here.sessions.identity(session) is not None
    return here.tokens.standing(who.token_id) is not None
