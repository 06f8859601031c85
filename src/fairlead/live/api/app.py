"""The app: all routes, behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from fairlead.live.api import (
    accounts,
    admin,
    answers,
    events,
    job_table,
    jobs,
    logs,
    nodes,
    page,
    sign_in,
    stream,
    what_if,
)
from fairlead.live.api.answers import Json, documented
from fairlead.live.api.auth import OPEN, OPEN_TO_POST, Caller, Gate
from fairlead.live.api.context import Admit, Context, Here
from fairlead.live.api.metrics import Metrics
from fairlead.live.api.middleware import Bounded, Timed
from fairlead.live.api.schemas.base import Anything
from fairlead.live.api.schemas.cluster import HealthView
from fairlead.live.api.updates import Updates
from fairlead.live.api.views import VERSION
from fairlead.live.control.controller import Controller
from fairlead.live.forecasts import Forecasts
from fairlead.live.health import Health
from fairlead.live.storage.audit import Audit
from fairlead.live.storage.sessions import LIFE_S, Sessions
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Tokens
from fairlead.live.usage import Usage

_READERS = 4
router = APIRouter()


def make_app(
    controller: Controller,
    store: Store,
    tokens: Tokens,
    *,
    config_view: Mapping[str, Any] | None = None,
    admit: Admit = lambda request, user: request,
    token_life_s: float | None = None,
    session_life_s: float = LIFE_S,
) -> FastAPI:
    """The API of one controller, whose loop runs elsewhere.

    `admit` may refuse a user's request, with an `InputError`, or fill in what it leaves open. New tokens stand for
    `token_life_s` unless told otherwise, sessions of the page for `session_life_s`. Call
    `app.state.context.close()` when the app has served.
    """
    app = bare_app()
    health, audit = Health(controller, store), Audit(store.database)
    usage, sessions = Usage(controller, store.database), Sessions(store.database, tokens, life_s=session_life_s)
    metrics = Metrics(controller, store, health, usage)
    updates, forecasts = Updates(controller, store, health), Forecasts()
    metrics.pages = lambda: updates.pages
    readers = ThreadPoolExecutor(_READERS, thread_name_prefix="api-reader")
    app.state.context = Context(
        controller,
        store,
        tokens,
        sessions,
        metrics,
        health,
        audit,
        updates,
        usage,
        forecasts,
        config_view or {},
        admit,
        readers,
        token_life_s,
    )
    app.routes.extend(page.routes())
    answers.install(app)
    app.add_middleware(Bounded)
    app.add_middleware(Gate, tokens=tokens, sessions=sessions, audit=audit)
    app.add_middleware(Timed, metrics=metrics)
    return app


def bare_app() -> FastAPI:
    """The routes without a controller behind them: enough for their documentation."""
    app = FastAPI(
        title="Fairlead",
        version=VERSION,
        description="A scheduler for shared GPU clusters.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for part in (jobs, job_table, logs, events, nodes, accounts, what_if, admin, sign_in, stream):
        app.include_router(part.router)
    app.include_router(router)
    return app


@router.get("/health", response_model=HealthView, responses={503: {"model": HealthView}})
async def health(here: Here) -> Json:
    """Whether the controller does its work: its loop, its store, its nodes and their guards. 503 where it does not."""
    probe = asyncio.wrap_future(here.health.probe())
    probe.add_done_callback(lambda done: done.cancelled() or done.exception())  # `reasons` tells of it
    while not probe.done() and (rest_s := here.health.patience_s()) > 0:
        await asyncio.wait({probe}, timeout=rest_s)  # which may be over early: a loop's clock is a little behind
    reasons = here.health.reasons()
    told = {"status": "trouble" if reasons else "ok", "reasons": reasons, "loop_age_s": here.health.loop_age_s}
    return Json(told, 503 if reasons else 200)


@router.get("/v1/openapi.json", response_model=Anything, responses=documented())
async def openapi(request: Request, who: Caller) -> Json:
    """The OpenAPI document of this API."""
    return Json(document(request.app))


def document(app: FastAPI) -> dict[str, Any]:
    """The routes in OpenAPI's form, with the token that all but the open ones need."""
    made = app.openapi()
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            if path not in OPEN and not (method == "post" and path in OPEN_TO_POST):
                operation["security"] = [{"token": []}]
    return made
