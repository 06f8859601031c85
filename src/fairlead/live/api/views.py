"""Jobs, nodes and the cluster as answers show them. All of it may be called from any thread."""

from __future__ import annotations

import json
import sqlite3
from importlib.metadata import version
from typing import Any

from fairlead.live.controller import Controller
from fairlead.live.livejob import State, placement_of
from fairlead.live.request import JobRequest
from fairlead.live.standing import node_state
from fairlead.live.store import Attempt, Store
from fairlead.live.tokens import Identity

VERSION = version("fairlead")
_FROM_ROW = (
    "id", "name", "user", "state", "phase", "reason", "detail", "attempt", "failures", "sm_share", "submitted_at_s",
    "started_at_s", "ended_at_s", "exit_code",
)  # fmt: skip
_FROM_REQUEST = (
    "kind", "command", "cwd", "memory_mib", "profile", "priority", "deadline_s", "estimate_s", "slo_s",
)  # fmt: skip
_FROM_PROGRESS = ("epochs_done", "epochs", "epoch_s", "loss")
_FROM_ATTEMPT = (
    "attempt", "shared", "sm_share", "is_over", "stopping", "started_at_s", "ended_at_s", "exit_code", "reason",
    "energy_j",
)  # fmt: skip
_FROM_READING = ("utilisation_frac", "power_w", "memory_used_mib", "temperature_c", "guard_state")


def job_view(row: sqlite3.Row, controller: Controller) -> dict[str, Any]:
    """One job; see `shapes.JobView`."""
    request = JobRequest.model_validate_json(row["request"])
    progress = json.loads(row["progress"]) if row["progress"] is not None else {}
    waits = row["state"] == State.WAITING
    return {
        **{name: row[name] for name in _FROM_ROW},
        **{name: getattr(request, name) for name in _FROM_REQUEST},
        **{name: progress.get(name) for name in _FROM_PROGRESS},
        "gpus": request.asked_gpus,
        "min_gpus": request.least_gpus,
        "max_gpus": request.most_gpus,
        "wait_reason": controller.desk.waits.get(row["id"]) if waits else None,
        "placement": _names(placement_of(row), controller),
        "shared": bool(row["shared"]),
        "energy_j": _energy_j(row, controller),
        "is_fake": controller.engine.is_fake,
    }


def attempt_view(attempt: Attempt, controller: Controller) -> dict[str, Any]:
    """One run of a job."""
    shown = {name: getattr(attempt, name) for name in _FROM_ATTEMPT}
    if not attempt.is_over:
        status = controller.poll.attempts.get(attempt.key)
        shown["energy_j"] = status.energy_j if status is not None else None
    return {**shown, "placement": _names(attempt.gpus, controller)}


def nodes_view(controller: Controller, who: Identity) -> dict[str, Any]:
    """The cluster; who is not an operator sees others' jobs as numbers only."""
    cluster = controller.engine.cluster
    nodes = [
        {
            "name": node.name,
            "state": node_state(controller, number),
            "gpus": [_gpu_view(g, controller, who) for g in range(*cluster.first_gpu[number : number + 2])],
        }
        for number, node in enumerate(cluster.nodes)
    ]
    return {"nodes": nodes, "is_fake": controller.engine.is_fake}


def summary(controller: Controller, store: Store) -> dict[str, Any]:
    """The cluster in a few numbers."""
    counts, poll, view = store.counts(), controller.poll, controller.desk.view
    drawn_w = [r.power_w for r in poll.readings.values() if r.power_w is not None]
    return {
        "policy": controller.desk.stack.spec,
        "cluster": controller.engine.cluster.describe(),
        "is_fake": controller.engine.is_fake,
        "version": VERSION,
        "now_s": controller.clock.now_s(),
        "trouble": controller.trouble,
        "jobs": {str(state): counts.get(str(state), 0) for state in State},
        "gpus": {
            "all": view.cluster.gpus,
            "busy": sum(bool(residents) for residents in view.on_gpu),
            "drained": len(controller.drained),
        },
        "power_w": sum(drawn_w) if drawn_w else None,
    }


def blanked(snapshot: dict[str, Any], who: Identity) -> dict[str, Any]:
    """A snapshot without the names of others and of their jobs, unless an operator asks."""
    if who.sees_all:
        return snapshot
    jobs = [job if job["user"] == who.user else {**job, "name": "", "user": ""} for job in snapshot["jobs"]]
    return {**snapshot, "jobs": jobs}


def _gpu_view(gpu: int, controller: Controller, who: Identity) -> dict[str, Any]:
    cluster, desk = controller.engine.cluster, controller.desk
    reading, model = controller.observed.reading(gpu), cluster.gpu_model(gpu)
    jobs = []
    for job_id in desk.view.on_gpu[gpu]:
        job = desk.jobs.get(job_id)
        shown = job is not None and (who.sees_all or job.user == who.user)
        jobs.append({
            "id": job_id,
            "name": job.job.name if job is not None and shown else None,
            "user": job.user if job is not None and shown else None,
        })  # fmt: skip
    return {
        "name": cluster.gpu_name(gpu),
        "number": gpu,
        "uuid": cluster.gpu_uuid(gpu),
        "model": model.name,
        "memory_mib": model.memory_mib,
        "is_drained": gpu in controller.drained,
        "jobs": jobs,
        **{name: getattr(reading, name) for name in _FROM_READING},
    }


def _names(gpus: tuple[int, ...], controller: Controller) -> list[str]:
    """Those that are still there: the cluster may have been another when they were written down."""
    cluster = controller.engine.cluster
    return [cluster.gpu_name(gpu) for gpu in gpus if gpu < cluster.gpus]


def _energy_j(row: sqlite3.Row, controller: Controller) -> float | None:
    """With the part of the attempt that runs, of which the books know nothing yet."""
    booked: float | None = row["energy_j"]
    key = row["id"], row["attempt"]
    status = controller.poll.attempts.get(key)
    if status is None or status.energy_j is None or key not in controller.careers.attempts:
        return booked
    return (booked or 0.0) + status.energy_j
