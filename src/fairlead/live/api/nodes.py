"""Nodes and GPUs, and the cluster as a whole."""

from __future__ import annotations

from fastapi import APIRouter, Request

from fairlead.errors import InputError
from fairlead.live.api.answers import Json, Refusal, documented
from fairlead.live.api.auth import Admin, Caller, Operator, act
from fairlead.live.api.context import Context, Here, JobId, settled
from fairlead.live.api.schemas.base import Anything
from fairlead.live.api.schemas.cluster import (
    Drained,
    Enabled,
    Invitation,
    InvitationWanted,
    NodesView,
    Removed,
    Summary,
)
from fairlead.live.api.views import blanked, nodes_view, summary
from fairlead.live.control.explain import explain
from fairlead.live.control.snapshots import snapshot
from fairlead.live.engines.remote.joined import JoinedNodes
from fairlead.live.jobs.states import State
from fairlead.model.cluster import Cluster

router = APIRouter()


@router.get("/v1/nodes", response_model=NodesView, responses=documented())
async def nodes(who: Caller, here: Here) -> Json:
    """The nodes, their GPUs and who is on them."""
    return Json(await here.read(nodes_view, here.controller, who))


@router.post("/v1/nodes/{name}/drain", status_code=202, response_model=Drained, responses=documented(403, 404))
async def drain(name: str, who: Operator, asked: Request, here: Here) -> Json:
    """A node, or a GPU like `n0:3`, takes no new jobs from now on; those that are there may finish."""
    return await _set_drained(here, asked, name, True)


@router.post("/v1/nodes/{name}/resume", status_code=202, response_model=Drained, responses=documented(403, 404))
async def resume(name: str, who: Operator, asked: Request, here: Here) -> Json:
    """A node, or a GPU like `n0:3`, takes jobs again."""
    return await _set_drained(here, asked, name, False)


@router.post("/v1/nodes/{name}/enable", response_model=Enabled, responses=documented(403, 404))
async def enable(name: str, who: Operator, asked: Request, here: Here) -> Json:
    """Put GPUs that their guards have disabled back into the pool; all others stay as they are."""
    engine = here.controller.engine
    gpus = _gpus_named(here.controller.cluster, name)
    await settled(here.audit.note(act(asked, "enabled", name)))
    enabled = await here.read(lambda: [gpu for gpu in gpus if engine.enable(gpu)])
    return Json({"name": name, "gpus": [here.controller.cluster.gpu_name(gpu) for gpu in enabled]})


@router.post("/v1/nodes/tokens", status_code=201, response_model=Invitation, responses=documented(403, 409))
async def make_node_token(wanted: InvitationWanted, who: Admin, asked: Request, here: Here) -> Json:
    """A token that lets one machine join; it is shown this once."""
    source = _joining(here)
    await settled(here.audit.note(act(asked, "node-token-created", f"for {wanted.life_s:g} s")))
    return Json(await here.read(source.invite, wanted.life_s), 201)


@router.delete("/v1/nodes/{name}", response_model=Removed, responses=documented(403, 404, 409))
async def remove_node(name: str, who: Operator, asked: Request, here: Here, force: bool = False) -> Json:
    """Take a node that has joined out for good."""
    source = _joining(here)
    await settled(here.audit.note(act(asked, "node-removed", name)))
    try:
        await here.read(lambda: source.remove(name, force=force))
    except InputError as error:
        raise Refusal(409, error.message, error.hint or "") from None
    return Json({"name": name})


def _joining(here: Context) -> JoinedNodes:
    source = getattr(here.controller.engine, "source", None)
    if not isinstance(source, JoinedNodes):
        raise Refusal(409, "no machine can join this controller", "start it with: fairlead up --engine join")
    return source


@router.get("/v1/summary", response_model=Summary, responses=documented())
async def cluster_summary(who: Caller, here: Here) -> Json:
    """The cluster in a few numbers."""
    return Json(await here.read(summary, here.controller, here.store, here.health, who))


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


async def _set_drained(here: Context, asked: Request, name: str, is_drained: bool) -> Json:
    cluster = here.controller.cluster
    gpus = _gpus_named(cluster, name)
    await settled(here.audit.note(act(asked, "drained" if is_drained else "resumed", name)))
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
