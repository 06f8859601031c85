"""Jobs as the page shows them: a table of any length, of which a part is asked for, and one job with its neighbours."""

from __future__ import annotations

import json
import logging
import sqlite3
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from fairlead.errors import FairleadError
from fairlead.live.api.answers import Json, documented
from fairlead.live.api.auth import Caller
from fairlead.live.api.context import LARGEST, Context, Here, JobId, settled
from fairlead.live.api.jobs import States, states_named
from fairlead.live.api.schemas.jobs import JobBeside, JobTable
from fairlead.live.api.views import listed_job
from fairlead.live.control.explain import WORDS
from fairlead.live.control.snapshots import snapshot
from fairlead.live.jobs.states import State
from fairlead.live.prices import gpu_hour_usd, gpu_hours_usd
from fairlead.live.storage import job_search
from fairlead.live.storage.job_search import JobFilter
from fairlead.live.storage.store import Attempt
from fairlead.live.storage.tokens import Identity

log = logging.getLogger("fairlead")
router = APIRouter()
MOST_ROWS = 200
Sort = Literal["id", "name", "user", "state", "gpus", "energy", "ended", "start"]


@router.get("/v1/job-table", response_model=JobTable, responses=documented())
async def job_table(
    who: Caller,
    here: Here,
    state: States = None,
    user: Annotated[str | None, Query(max_length=64)] = None,
    text: Annotated[str, Query(max_length=100, description="A part of the name, or the number.")] = "",
    sort: Sort = "id",
    descending: bool = True,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
) -> Json:
    """A part of the table of jobs that the caller sees, with when each is expected to start and end."""
    if not who.sees_all and user not in (None, who.user):
        return Json({"total": 0, "offset": offset, "rows": [], "predicted_at_s": None})
    wanted = JobFilter(tuple(states_named(state)), user if who.sees_all else who.user, text.strip())
    _foresee(here)
    # With pages open the version tells whether the rows are the same; else nobody counts it.
    key = (here.updates.state.version, wanted, sort, descending, offset, limit)
    found = here.tables.get(key) if here.updates.pages else None
    if found is None:
        found = await here.read(partial(_part, here, wanted, sort, descending, offset, limit))
        here.tables.put(key, found)
    return Json(found)


@router.get("/v1/jobs/{job_id}/beside", response_model=JobBeside, responses=documented(404))
async def job_beside(job_id: JobId, who: Caller, here: Here) -> Json:
    """What it costs, when it is expected to start and end, and who is on its GPUs with it."""
    row = await here.job_row(job_id, who)
    _foresee(here)
    return Json(await here.read(_beside, here, row, who))


def _part(here: Context, wanted: JobFilter, sort: Sort, descending: bool, offset: int, limit: int) -> dict[str, Any]:
    database = here.store.database
    if sort == "start":
        numbers = _by_start(here, job_search.numbers(database, wanted), descending)
        total, rows = len(numbers), job_search.rows_of(database, numbers[offset : offset + limit])
    else:
        total = job_search.count(database, wanted)
        rows = job_search.rows(database, wanted, sort, descending=descending, offset=offset, limit=limit)
    shown = [_row(row, here) for row in rows]
    return {"total": total, "offset": offset, "rows": shown, "predicted_at_s": here.forecasts.predicted_at_s}


def _by_start(here: Context, numbers: list[int], descending: bool) -> list[int]:
    """As they are expected to start; of whom nothing is known, last."""
    expected = here.forecasts.expected
    known = [n for n in numbers if n in expected and expected[n].start_at_s is not None]
    known.sort(key=lambda n: (expected[n].start_at_s or 0.0, n), reverse=descending)
    others = set(numbers) - set(known)
    return known + [n for n in numbers if n in others]


def _row(row: sqlite3.Row, here: Context) -> dict[str, Any]:
    shown = listed_job(row, here.controller)
    over, expected = State(row["state"]).is_over, here.forecasts.expected.get(row["id"])
    gpu_s = _gpu_s(row, here)
    price = gpu_hour_usd(here.controller.cluster)
    return {
        **shown,
        "why": None if shown["wait_reason"] is None else WORDS.get(shown["wait_reason"], shown["wait_reason"]),
        "expected_start_at_s": None if over or expected is None else expected.start_at_s,
        "expected_end_at_s": None if over or expected is None else expected.end_at_s,
        "is_guess": expected is not None and expected.is_guess,
        "gpu_s": gpu_s,
        "cost_usd": None if price is None else gpu_s / 3600.0 * price,
    }


def _gpu_s(row: sqlite3.Row, here: Context) -> float:
    """GPU-seconds that a job has held so far, over all of its attempts."""
    job = here.controller.driver.jobs.get(row["id"])
    if job is not None:
        return job.attained_gpu_s(max(here.controller.clock.now_s(), job.since_s))
    return float(json.loads(row["service"]).get("banked_gpu_s", 0.0))


def _beside(here: Context, row: sqlite3.Row, who: Identity) -> dict[str, Any]:
    controller = here.controller
    driver, cluster = controller.driver, controller.cluster
    job = driver.jobs.get(row["id"])
    gpus = () if job is None else job.gpus
    beside = sorted({other for gpu in gpus for other in driver.view.on_gpu[gpu]} - {row["id"]})
    neighbours = []
    for number in beside:
        other = driver.jobs.get(number)
        seen = other is not None and (who.sees_all or other.user == who.user)
        shared = [cluster.gpu_name(gpu) for gpu in gpus if number in driver.view.on_gpu[gpu]]
        neighbours.append({
            "id": number,
            "name": other.job.name if other is not None and seen else None,
            "user": other.user if other is not None and seen else None,
            "gpus": shared,
        })  # fmt: skip
    shown = _row(row, here)
    if shown["cost_usd"] is None:  # GPUs of several prices: by where it ran, and when
        shown["cost_usd"] = _cost_usd(here, here.store.attempts_of(row["id"]))
    kept = None if job is None or not beside else controller.observations.kept_speed(job)
    return {"job": shown, "neighbours": neighbours, "kept_speed_frac": kept}


def _cost_usd(here: Context, attempts: list[Attempt]) -> float | None:
    total, now_at_s = 0.0, here.controller.clock.wall_s()
    for attempt in attempts:
        if attempt.started_at_s is None:
            continue
        until_s = attempt.ended_at_s if attempt.ended_at_s is not None else now_at_s
        for gpu in attempt.gpus:
            part = gpu_hours_usd(here.controller.cluster, gpu, max(until_s - attempt.started_at_s, 0.0) / 3600.0)
            if part is None:
                return None
            total += part
    return total


def _foresee(here: Context) -> None:
    """Have a new prediction made, beside everything else, if the last is old and something has happened since."""
    if here.controller.driver.jobs and here.forecasts.try_begin():
        here.in_background(_predict(here))


async def _predict(here: Context) -> None:
    forecasts = here.forecasts
    try:
        made_of = await here.read(_newest, here)
        if made_of == forecasts.made_of:
            return
        taken = await here.ask(lambda: snapshot(here.controller))
        at_s = here.controller.clock.wall_s()
        question = await here.read(lambda: {"ask": "predict", "snapshot": taken.to_dict()})
        forecasts.keep(await settled(forecasts.predictions.ask(question)), at_s, made_of)
        here.updates.touch()
    except (FairleadError, HTTPException) as error:
        log.warning("no prediction: %s", error)
    finally:
        forecasts.finish()


def _newest(here: Context) -> tuple[int, int]:
    """Another one when anything has happened that a prediction would heed."""
    jobs = here.store.database.read("SELECT coalesce(max(id), 0) AS last FROM jobs")[0]["last"]
    return here.store.last_event(), int(jobs)
