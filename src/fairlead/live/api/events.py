"""What happened, for people and for whoever follows along."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from fairlead.live.api.answers import RETRY_S, Json, Refusal, documented
from fairlead.live.api.auth import Caller
from fairlead.live.api.context import LARGEST, Context, Here, JobId
from fairlead.live.api.schemas.cluster import EventPage

router = APIRouter()
MOST_EVENTS = 1000
MOST_WAIT_S = 60.0
MOST_WAITING = 64
"""Requests of one user that wait at a time: each has a connection, of which there are only so many."""
_LOOK_S = 0.25
_FIELDS = ("id", "at_s", "what", "job_id", "node", "about")

After = Annotated[int, Query(ge=0, le=LARGEST, description="The `next` of the answer before.")]
Since = Annotated[
    int,
    Query(ge=-MOST_EVENTS, le=LARGEST, description="The `next` of the answer before; -5: begin with the last five."),
]
Limit = Annotated[int, Query(ge=1, le=MOST_EVENTS)]
Wait = Annotated[
    float, Query(ge=0.0, le=MOST_WAIT_S, allow_inf_nan=False, description="Where there are none yet, wait this long.")
]


@router.get("/v1/jobs/{job_id}/events", response_model=EventPage, responses=documented(404))
async def events_of_job(job_id: JobId, who: Caller, here: Here, after: After = 0, limit: Limit = 100) -> Json:
    """What happened to one job."""
    await here.job_row(job_id, who)
    rows = await here.read(lambda: here.store.events(after, limit, job_id=job_id))
    return Json(_page(rows, after))


@router.get("/v1/events", response_model=EventPage, responses=documented(429))
async def events(
    who: Caller, asked: Request, here: Here, after: Since = 0, limit: Limit = 100, wait_s: Wait = 0.0
) -> Json:
    """What happened, to one's own jobs where one is not an operator."""
    if wait_s > 0.0 and here.waiting[who.user] >= MOST_WAITING:
        message = f"{here.waiting[who.user]} requests of {who.user} wait for events already"
        raise Refusal(429, message, "wait in fewer places, or ask without wait_s", {"Retry-After": str(RETRY_S)})
    here.waiting[who.user] += 1
    try:
        find = partial(here.store.events, limit=limit, user=None if who.sees_all else who.user)
        return Json(await _await(here, asked, find, after, wait_s))
    finally:
        here.waiting[who.user] -= 1


async def _await(
    here: Context, asked: Request, find: Callable[[int], list[sqlite3.Row]], after: int, wait_s: float
) -> dict[str, Any]:
    """The first that there are, within that time; nothing more once whoever asked has gone."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    seen = after if after >= 0 else max(await here.read(here.store.last_event) + after, 0)
    while True:
        newest = await here.read(here.store.last_event)
        rows = await here.read(find, seen) if newest > seen else []
        if rows or loop.time() >= until_s or here.stopping.is_set() or await asked.is_disconnected():
            return _page(rows, max(seen, newest))
        seen = max(seen, newest)
        await asyncio.sleep(min(_LOOK_S, max(until_s - loop.time(), 0.0)))


def _page(rows: Iterable[sqlite3.Row], after: int) -> dict[str, Any]:
    shown = [{name: row[name] for name in _FIELDS} for row in rows]
    return {"events": shown, "next": shown[-1]["id"] if shown else after}
