"""Nodes and GPUs, and the cluster as a whole."""

from __future__ import annotations

from fastapi import APIRouter

from fairlead.errors import InputError
from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import Caller, Operator
from fairlead.live.api.context import Context, Here, JobId
from fairlead.live.api.shapes import Anything, Drained, NodesView, Summary
from fairlead.live.api.views import blanked, nodes_view, summary
from fairlead.live.explain import explain
from fairlead.live.livejob import State
from fairlead.live.picture import snapshot
from fairlead.model.cluster import Cluster

router = APIRouter()


@router.get("/v1/nodes", response_model=NodesView, responses=documented())
async def nodes(who: Caller, here: Here) -> Json:
    """The nodes, their GPUs and who is on them."""
    return Json(await here.read(nodes_view, here.controller, who))


@router.post("/v1/nodes/{name}/drain", status_code=202, response_model=Drained, responses=documented(403, 404))
async def drain(name: str, who: Operator, here: Here) -> Json:
    """A node, or a GPU like `n0:3`, takes no new jobs from now on; those that are there may finish."""
    return await _set_drained(here, name, True)


@router.post("/v1/nodes/{name}/resume", status_code=202, response_model=Drained, responses=documented(403, 404))
async def resume(name: str, who: Operator, here: Here) -> Json:
    """It takes jobs again."""
    return await _set_drained(here, name, False)


@router.get("/v1/summary", response_model=Summary, responses=documented())
async def cluster_summary(who: Caller, here: Here) -> Json:
    """The cluster in a few numbers."""
    return Json(await here.read(summary, here.controller, here.store))


@router.get("/v1/snapshot", response_model=Anything, responses=documented())
async def cluster_snapshot(who: Caller, here: Here) -> Json:
    """All that a simulation needs to run on from here."""
    taken = await here.ask(lambda: snapshot(here.controller))
    return Json(await here.read(lambda: blanked(taken.to_dict(), who)))


@router.get("/v1/jobs/{job_id}/explain", response_model=Anything, responses=documented(404, 409))
async def explain_job(job_id: JobId, who: Caller, here: Here) -> Json:
    """Why it is where it is."""
    row = await here.job_row(job_id, who)
    if State(row["state"]).is_over:
        raise Refusal(409, f"job {job_id} is {row['state']}", "its status says how it ended")
    return Json(await here.ask(lambda: explain(here.controller, job_id)))


@router.get("/v1/config", response_model=Anything, responses=documented(403))
async def config(who: Operator, here: Here) -> Json:
    """The configuration as it is in force, with where each value came from."""
    return Json(here.config_view)


async def _set_drained(here: Context, name: str, is_drained: bool) -> Json:
    cluster = here.controller.engine.cluster
    gpus = _gpus_named(cluster, name)
    await here.ask(lambda: here.controller.set_drained(set(gpus), is_drained))
    return Json({"name": name, "gpus": [cluster.gpu_name(g) for g in gpus], "is_drained": is_drained}, 202)


def _gpus_named(cluster: Cluster, name: str) -> list[int]:
    for number, node in enumerate(cluster.nodes):
        if node.name == name:
            return list(range(*cluster.first_gpu[number : number + 2]))
    try:
        return [cluster.gpu_numbered(name)]
    except (InputError, ValueError):  # a number of five thousand digits is none
        hint = f"nodes are called like {cluster.nodes[0].name}, GPUs like {cluster.gpu_name(0)}"
        raise Refusal(404, f"there is no node or GPU {name[:80]!r}", hint) from None
