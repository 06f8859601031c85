"""What-ifs for the page: the simulator runs on from the present state, in a process of its own."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from fairlead.errors import InputError, RunError
from fairlead.live.api.answers import RETRY_S, Json, Refusal, documented
from fairlead.live.api.auth import Caller
from fairlead.live.api.context import Here, settled
from fairlead.live.api.schemas.base import Anything
from fairlead.live.api.schemas.what_if import Choices, WhatIf
from fairlead.live.api.views import blanked
from fairlead.live.control.snapshots import snapshot
from fairlead.live.forecasts import BusyError
from fairlead.policy import registry

router = APIRouter()


@router.get("/v1/choices", response_model=Choices, responses=documented())
async def choices(who: Caller, here: Here) -> Json:
    """Policies and profiles by name."""
    controller = here.controller
    return Json({
        "policy": controller.driver.stack.spec,
        "policies": sorted({*registry.presets(), *(entry.name for entry in registry.stages()["ordering"])}),
        "profiles": controller.catalogue.names(),
        "nodes": len(controller.cluster.nodes),
    })  # fmt: skip


@router.post("/v1/whatif", response_model=Anything, responses=documented(413, 429))
async def what_if(wanted: WhatIf, who: Caller, here: Here) -> Json:
    """As it is, against another policy, other nodes or more jobs; of others' jobs a user is told no names."""
    taken = await here.ask(lambda: snapshot(here.controller))
    state = await here.read(lambda: blanked(taken.to_dict(), who))
    jobs = [{**job.model_dump(exclude_none=True), "user": who.user} for job in wanted.jobs]
    question: dict[str, Any] = {"ask": "whatif", "snapshot": state, "nodes": wanted.nodes, "jobs": jobs}
    if wanted.policy:
        if wanted.policy != here.controller.driver.stack.spec:
            registry.build(wanted.policy)  # a mistake is told at once; no user's word opens a file on this machine
        question["policy"] = wanted.policy
    here.asking[who.user] += 1
    try:
        if here.asking[who.user] > 1:
            raise BusyError(f"a question of {who.user} is being simulated already", hint="wait for its answer")
        return Json(await settled(here.forecasts.what_ifs.ask(question)))
    except BusyError as error:
        raise Refusal(429, error.message, error.hint, {"Retry-After": str(RETRY_S)}) from None
    except RunError as error:
        raise InputError(error.message, hint="ask for less: fewer jobs, a simpler policy") from None
    finally:
        here.asking[who.user] -= 1
