"""Jobs: submit, list, look at one, and say what should become of it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request

from fairlead.errors import FairleadError, InputError, did_you_mean
from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import Caller, act, caller
from fairlead.live.api.context import LARGEST, Context, Here, JobId, context, settled
from fairlead.live.api.schemas.jobs import JobPage, JobWithAttempts, Submitted, Wished
from fairlead.live.api.views import attempt_view, job_view, listed_job
from fairlead.live.jobs.admission import check_fit
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import Cause, State, may
from fairlead.live.storage.store import Attempt

router = APIRouter()
MOST_JOBS = 1000
_DONE = {"cancel": "cancelled", "hold": "held", "release": "released"}
"""As the audit log calls it."""
_STATE = "|".join(State)
States = Annotated[
    str | None,
    Query(
        max_length=200,
        description="Some states, with commas between.",
        json_schema_extra={"pattern": f"^({_STATE})(,({_STATE}))*$"},
    ),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="The same key from the same user is the same job, however often it is sent.",
    ),
]


@router.post("/v1/jobs", status_code=201, response_model=Submitted, responses=documented(413))
async def submit(wanted: JobRequest, asked: Request, key: Key = None) -> Json:
    """Accept a job; it is on the disk when this answers."""
    # Not as dependencies, of which each costs as much as validating the job.
    who, here = caller(asked), context(asked)
    controller = here.controller
    request = here.admit(wanted, who.user).recognised()
    check_fit(request, controller.cluster, controller.driver.stack, controller.catalogue)
    submit_s, at_s = controller.clock.now_s(), time.time()

    def tell(stored: Future[tuple[int, bool]]) -> None:
        # By whoever stored it, so that the loop hears of it even where nobody waits for the answer any more.
        if stored.exception() is None and stored.result()[1]:
            job = request.job(stored.result()[0], who.user, submit_s, controller.catalogue)
            here.metrics.submissions.inc()
            controller.submitted(LiveJob(job, request, at_s))

    noted = act(asked, "submitted", f"{request.kind}, {request.asked_gpus} GPUs")
    stored = here.store.submit(request, who.user, submit_s, at_s, key, noted)
    stored.add_done_callback(tell)
    job_id, is_new = await settled(stored)
    return Json({"id": job_id, "is_new": is_new}, 201)


@router.get("/v1/jobs", response_model=JobPage, responses=documented())
async def jobs(
    who: Caller,
    here: Here,
    state: States = None,
    user: Annotated[str | None, Query(max_length=64)] = None,
    after: Annotated[int | None, Query(ge=0, le=LARGEST, description="The `next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 100,
    order: Literal["newest", "oldest"] = "newest",
) -> Json:
    """Some jobs. Who is not an operator sees their own."""
    states = states_named(state)
    if not who.sees_all and user not in (None, who.user):
        return Json({"jobs": [], "next": None})

    def find() -> dict[str, Any]:
        rows = here.store.page(
            states=states,
            user=user if who.sees_all else who.user,
            after=after,
            limit=limit + 1,
            newest_first=order == "newest",
        )
        shown = [listed_job(row, here.controller) for row in rows[:limit]]
        return {"jobs": shown, "next": shown[-1]["id"] if len(rows) > limit else None}

    return Json(await here.read(find))


@router.get("/v1/jobs/{job_id}", response_model=JobWithAttempts, responses=documented(404))
async def job(job_id: JobId, who: Caller, here: Here) -> Json:
    """One job with its attempts."""
    row = await here.job_row(job_id, who)

    def find() -> dict[str, Any]:
        attempts = here.store.attempts_of(job_id)
        return {
            **job_view(row, here.controller),
            "attempts": [attempt_view(attempt, here.controller) for attempt in attempts],
            "output_path": _output_path(here, attempts) if row["has_logs"] else None,
        }

    return Json(await here.read(find))


@router.post("/v1/jobs/{job_id}/cancel", status_code=202, response_model=Wished, responses=documented(404, 409))
async def cancel(job_id: JobId, asked: Request, here: Here) -> Json:
    """End it, wherever it is."""
    return await _wish(here, asked, job_id, "cancel")


@router.post("/v1/jobs/{job_id}/hold", status_code=202, response_model=Wished, responses=documented(404, 409))
async def hold(job_id: JobId, asked: Request, here: Here) -> Json:
    """Take it off its GPUs, or out of the queue, until it is released."""
    return await _wish(here, asked, job_id, "hold")


@router.post("/v1/jobs/{job_id}/release", status_code=202, response_model=Wished, responses=documented(404, 409))
async def release(job_id: JobId, asked: Request, here: Here) -> Json:
    """Let one that is held, backs off or is parked wait for GPUs again."""
    return await _wish(here, asked, job_id, "release")


def _output_path(here: Context, attempts: list[Attempt]) -> str | None:
    """The folder with what the last attempt wrote; None where its node does not say."""
    try:
        return here.controller.engine.locate_log(attempts[-1].id, "all", 0.0, attempts[-1].gpus).path
    except (FairleadError, IndexError):
        return None


async def _wish(here: Context, asked: Request, job_id: int, wish: str) -> Json:
    row = await here.job_row(job_id, caller(asked))
    # What was wished before counts as done: the loop will see to it first.
    state = {"hold": State.HELD, "cancel": State.CANCELLED}.get(row["wish"], State(row["state"]))
    if wish == "release" and not may(state, Cause.RELEASED):
        raise Refusal(409, f"job {job_id} is {state}", "held, backing-off and parked jobs can be released")
    if wish != "release" and state.is_over and row["wish"] != wish:
        raise Refusal(409, f"job {job_id} is {state}, there is nothing to {wish}")
    noted = act(asked, _DONE[wish], f"of {row['user']}", job_id)
    wished = here.store.wish(job_id, wish, noted)
    wished.add_done_callback(lambda w: here.controller.wished(job_id, wish) if w.exception() is None else None)
    await settled(wished)
    return Json({"id": job_id, "wish": wish}, 202)


def states_named(text: str | None) -> list[str]:
    """The states of a list with commas; an `InputError` where one is unknown."""
    found = [] if text is None else text.split(",")
    for word in found:
        if word not in list(State):
            raise InputError(f"state: unknown state {word[:40]!r}", hint=did_you_mean(word, list(State)))
    return list(dict.fromkeys(found))
