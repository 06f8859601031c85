"""Who used what, and what the cluster did and cost over time."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from fairlead.live.api.answers import Json, documented
from fairlead.live.api.auth import Caller
from fairlead.live.api.context import Context, Here
from fairlead.live.api.schemas.accounts import UsageView
from fairlead.live.api.schemas.cluster import HistoryView
from fairlead.live.prices import usd_per_h
from fairlead.live.storage import history
from fairlead.live.storage.tokens import Identity

router = APIRouter()
MOST_STEPS = 1000
_LONGEST_S = 3 * 366 * 86400.0


@router.get("/v1/usage", response_model=UsageView, responses=documented())
async def usage(who: Caller, here: Here) -> Json:
    """Jobs, GPU-seconds, energy and cost by user. Who is not an operator sees their own."""
    return Json(await here.read(_usage, here, who))


@router.get("/v1/history", response_model=HistoryView, responses=documented())
async def cluster_history(
    who: Caller,
    here: Here,
    last_s: Annotated[float, Query(gt=0.0, le=_LONGEST_S, allow_inf_nan=False, description="So far back.")] = 86400.0,
    steps: Annotated[int, Query(ge=1, le=MOST_STEPS, description="At most so many rows.")] = 300,
) -> Json:
    """GPUs, jobs, energy and cost of the whole cluster, over time."""
    return Json(await here.read(partial(_history, here, last_s, steps)))


def _usage(here: Context, who: Identity) -> dict[str, Any]:
    found = here.usage.by_user()
    users = [one for one in found.values() if who.sees_all or one.user == who.user]
    users.sort(key=lambda one: (-one.gpu_s, one.user))
    return {"users": [asdict(one) for one in users], "is_fake": here.controller.engine.is_fake}


def _history(here: Context, last_s: float, steps: int) -> dict[str, Any]:
    until_s = here.controller.clock.wall_s()
    step_s, rows = history.rows(here.store.database, until_s - last_s, until_s, steps)
    budget = here.config_view.get("budget.gpus")
    return {
        "step_s": step_s,
        "rows": rows,
        "budget_gpus": budget["value"] if isinstance(budget, dict) else None,
        "has_prices": usd_per_h(here.controller) is not None,
        "is_fake": here.controller.engine.is_fake,
    }
