"""What a job wrote, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlead.live.api.answers import Refusal, documented
from fairlead.live.api.auth import Caller
from fairlead.live.api.context import LARGEST, Here, JobId
from fairlead.live.engines.engine import Stream
from fairlead.live.jobs.states import State

router = APIRouter()
MOST_BYTES = 1024 * 1024
MOST_OFFSET = 2**62
_HEADERS = {
    "X-Fairlead-Next-Offset": "Where the next piece begins.",
    "X-Fairlead-Attempt": "Whose log this is; 0 before the first attempt.",
    "X-Fairlead-Over": "1 where the attempt is over and this is the end of what it wrote.",
}
_BYTES = {
    "description": "A piece of it, as bytes.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {n: {"schema": {"type": "integer"}, "description": about} for n, about in _HEADERS.items()},
}


@router.get("/v1/jobs/{job_id}/log", response_class=Response, responses={**documented(404), 200: _BYTES})
async def log(
    job_id: JobId,
    who: Caller,
    here: Here,
    stream: Stream = "stdout",
    attempt: Annotated[int | None, Query(ge=1, le=LARGEST, description="The last one unless given.")] = None,
    offset: Annotated[
        int, Query(ge=-MOST_OFFSET, le=MOST_OFFSET, description="In bytes; a negative one counts from the end.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_BYTES)] = 65536,
    since_s: Annotated[
        float | None,
        Query(ge=0.0, le=1e12, allow_inf_nan=False, description="Begin with what was written then, as a time of day."),
    ] = None,
) -> Response:
    """A piece of its log: of one stream, or of both in the order in which they were written."""
    row = await here.job_row(job_id, who)
    number = attempt if attempt is not None else row["attempt"]
    if number > row["attempt"]:
        raise Refusal(404, f"job {job_id} has had {row['attempt']} attempts, there is no attempt {number}")
    if number == 0:
        return _piece(b"", 0, 0, State(row["state"]).is_over)

    def find() -> tuple[bytes, int, bool]:
        tried = next((a for a in here.store.attempts_of(job_id) if a.id.attempt == number), None)
        if tried is None:
            return b"", 0, True
        read = partial(here.controller.engine.read_log, tried.id, stream, gpus=tried.gpus)
        start = offset if offset >= 0 else max(_size(read) + offset, 0)
        if since_s is not None:
            start = max(start, here.controller.engine.locate_log(tried.id, stream, since_s, tried.gpus).offset)
        data = read(start, limit)
        end = start + len(data)
        return data, end, tried.is_over and not (data and read(end, 1))

    data, end, is_over = await here.read(find)
    return _piece(data, end, number, is_over)


def _piece(data: bytes, end: int, attempt: int, is_over: bool) -> Response:
    values = (str(end), str(attempt), str(int(is_over)))
    return Response(data, media_type="application/octet-stream", headers=dict(zip(_HEADERS, values, strict=True)))


def _size(read: Callable[[int, int], bytes]) -> int:
    """How long a log is, by where it ends: engines tell no sizes, and a log may grow while we look."""
    low, high = 0, 65536
    while read(high - 1, 1):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if read(middle, 1) else (low, middle)
    return low
