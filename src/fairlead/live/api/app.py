"""The app: all routes, behind the gate."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from fairlead.live.api import admin, answers, events, jobs, logs, nodes
from fairlead.live.api.answers import Json, documented
from fairlead.live.api.auth import OPEN, Caller, Gate
from fairlead.live.api.context import Admit, Context, Here
from fairlead.live.api.shapes import Anything, Health
from fairlead.live.api.views import VERSION
from fairlead.live.api.wire import Bounded, Timed
from fairlead.live.controller import Controller
from fairlead.live.metrics import Metrics
from fairlead.live.store import Store
from fairlead.live.tokens import Tokens

_READERS = 4
router = APIRouter()


def make_app(
    controller: Controller,
    store: Store,
    tokens: Tokens,
    *,
    config_view: Mapping[str, Any] | None = None,
    admit: Admit = lambda request, user: request,
) -> FastAPI:
    """The API of one controller, whose loop runs elsewhere.

    `admit` may refuse a user's request, with an `InputError`, or fill in what it leaves open. Call
    `app.state.context.close()` when the app has served.
    """
    app = FastAPI(
        title="Fairlead",
        version=VERSION,
        description="A scheduler for shared GPU clusters.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    metrics = Metrics(controller, store)
    readers = ThreadPoolExecutor(_READERS, thread_name_prefix="api-reader")
    app.state.context = Context(controller, store, tokens, metrics, config_view or {}, admit, readers)
    for part in (jobs.router, logs.router, events.router, nodes.router, admin.router, router):
        app.include_router(part)
    answers.install(app)
    app.add_middleware(Bounded)
    app.add_middleware(Gate, tokens=tokens)
    app.add_middleware(Timed, metrics=metrics)
    return app


@router.get("/health", response_model=Health)
async def health(here: Here) -> Json:
    """Whether the control loop does its work; for those who watch it, so nothing else is told."""
    return Json({"status": "trouble" if here.controller.trouble else "ok"})


@router.get("/v1/openapi.json", response_model=Anything, responses=documented())
async def openapi(request: Request, who: Caller) -> Json:
    """This document."""
    return Json(document(request.app))


def document(app: FastAPI) -> dict[str, Any]:
    """The routes in OpenAPI's form, with the token that all but the open ones need."""
    made = app.openapi()
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in made["paths"].items():
        if path not in OPEN:
            for operation in operations.values():
                operation["security"] = [{"token": []}]
    return made
