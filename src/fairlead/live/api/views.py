"""Jobs, nodes and the cluster as answers show them. All of it may be called from any thread."""

from __future__ import annotations

import json
import sqlite3
from importlib.metadata import version
from typing import Any

from fairlead.live.control.controller import Controller
from fairlead.live.control.node_states import gpu_states, node_state
from fairlead.live.health import Health
from fairlead.live.jobs.deadlines import WATCHED
from fairlead.live.jobs.job import DeadlineState, placement_of
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import State
from fairlead.live.storage.store import Attempt, Store
from fairlead.live.storage.tokens import Identity
from fairlead.node.identity import AttemptId

VERSION = version("fairlead")
_FROM_ROW = (
    "id", "name", "user", "state", "phase", "reason", "attempt", "failures", "sm_share", "submitted_at_s",
    "started_at_s", "ended_at_s", "exit_code",
)  # fmt: skip
_FROM_REQUEST = (
    "kind", "gpu_frac", "memory_mib", "profile", "application", "priority", "deadline_s",
    "estimate_s", "slo_s",
)  # fmt: skip
_FROM_PROGRESS = ("epochs_done", "epochs", "epoch_s", "loss")
_FROM_ATTEMPT = (
    "shared", "sm_share", "is_over", "stopping", "started_at_s", "ended_at_s", "exit_code", "reason",
    "energy_j",
)  # fmt: skip
_FROM_READING = ("utilisation_frac", "power_w", "memory_used_mib", "temperature_c", "guard_state")


_FACELESS = {
    "name": "", "user": "", "profile": "generic", "memory_mib": 0.0, "priority": 0, "deadline_s": None, "batch": 0,
}  # fmt: skip


def job_view(row: sqlite3.Row, controller: Controller) -> dict[str, Any]:
    """One job with all about it; see `shapes.JobWithAttempts`."""
    request = JobRequest.model_validate_json(row["request"])
    long = {"command": request.command, "cwd": request.cwd, "detail": row["detail"]}
    return {**_job_view(row, request, controller), **long}


def listed_job(row: sqlite3.Row, controller: Controller) -> dict[str, Any]:
    """One job of many, without what may be long; see `shapes.JobView`."""
    return _job_view(row, JobRequest.model_validate_json(row["request"]), controller)


def _job_view(row: sqlite3.Row, request: JobRequest, controller: Controller) -> dict[str, Any]:
    progress = json.loads(row["progress"]) if row["progress"] is not None else {}
    waits = row["state"] == State.WAITING
    return {
        **{name: row[name] for name in _FROM_ROW},
        **{name: getattr(request, name) for name in _FROM_REQUEST},
        **{name: progress.get(name) for name in _FROM_PROGRESS},
        "deadline_at_s": None if request.deadline_s is None else row["submitted_at_s"] + request.deadline_s,
        "deadline_state": _deadline_state(row, request.deadline_s, controller),
        "gpus": request.asked_gpus,
        "min_gpus": request.least_gpus,
        "max_gpus": request.most_gpus,
        "wait_reason": controller.driver.waits.get(row["id"]) if waits else None,
        "placement": _names(placement_of(row), controller),
        "shared": bool(row["shared"]),
        **_energy(row, controller),
        "is_fake": controller.engine.is_fake,
    }


def attempt_view(attempt: Attempt, controller: Controller) -> dict[str, Any]:
    """One run of a job."""
    shown = {name: getattr(attempt, name) for name in _FROM_ATTEMPT}
    shown |= {"attempt": attempt.id.attempt, "energy_at_s": attempt.ended_at_s}
    if not attempt.is_over:
        status = controller.poll.attempts.get(attempt.id)
        shown["energy_j"] = status.energy_j if status is not None else None
        shown["energy_at_s"] = status.energy_at_s if status is not None else None
    return {**shown, "placement": _names(attempt.gpus, controller)}


def nodes_view(controller: Controller, who: Identity) -> dict[str, Any]:
    """The cluster; who is not an operator sees others' jobs as numbers only."""
    cluster = controller.cluster
    nodes = [
        {
            "name": node.name,
            "state": node_state(controller, number),
            "gpus": [_gpu_view(g, controller, who) for g in range(*cluster.first_gpu[number : number + 2])],
        }
        for number, node in enumerate(cluster.nodes)
        if number not in controller.poll.hidden
    ]
    return {"nodes": nodes, "is_fake": controller.engine.is_fake}


def summary(controller: Controller, store: Store, health: Health, who: Identity) -> dict[str, Any]:
    """The cluster in a few numbers; what exactly the trouble is may name others' jobs, and is for operators."""
    details = [controller.trouble, controller.policy_trouble] if who.sees_all else []
    counts, poll, view = store.counts(), controller.poll, controller.driver.view
    drawn_w = [r.power_w for r in poll.readings.values() if r.power_w is not None]
    return {
        "policy": controller.driver.stack.spec,
        "cluster": controller.cluster.describe(),
        "is_fake": controller.engine.is_fake,
        "version": VERSION,
        "now_s": controller.clock.now_s(),
        "trouble": "; ".join(filter(None, (*health.reasons(), *details))),
        "jobs": {str(state): counts.get(str(state), 0) for state in State},
        "gpus": {
            "all": view.cluster.gpus,
            "busy": gpu_states(controller).count("busy"),
            "drained": len(controller.drained),
        },
        "deadlines": {str(state): controller.lifecycle.deadlines.counts.get(state, 0) for state in WATCHED},
        "power_w": sum(drawn_w) if drawn_w else None,
        "power_at_s": min((r.at_s for r in poll.readings.values() if r.at_s is not None), default=None),
    }


def blanked(snapshot: dict[str, Any], who: Identity) -> dict[str, Any]:
    """A snapshot in which others' jobs are load without a face, unless an operator asks.

    How many GPUs they have or wait for and for how long is told, since nothing could be predicted without it; what they
    are, what they are worth and what was measured of them is not.
    """
    if who.sees_all:
        return snapshot
    jobs = [job if job["user"] == who.user else {**job, **_FACELESS} for job in snapshot["jobs"]]
    own = {job["profile"] for job in jobs if job["user"] == who.user}
    profiles = [profile for profile in snapshot["profiles"] if profile["name"] in own]
    # What the policy has learnt names others too, by their users and their numbers: it begins anew.
    tables = {name: _history_of(snapshot[name], own) for name in ("history", "interference")}
    unknown: dict[str, Any] = {"knowledge": None, "asked_s": 0.0, "changes": {}, "ended": []}
    return {**snapshot, "jobs": jobs, "profiles": profiles, **tables, **unknown}


def _history_of(history: dict[str, Any] | None, profiles: set[str]) -> dict[str, Any] | None:
    """What was measured of these profiles among themselves."""
    if history is None:
        return None
    sets = [one for one in history["sets"] if profiles.issuperset(one["names"])]
    apart = [names for names in history.get("does_not_fit", ()) if profiles.issuperset(names)]
    return {**history, "sets": sets, "does_not_fit": apart} if sets or apart else None


def _gpu_view(gpu: int, controller: Controller, who: Identity) -> dict[str, Any]:
    cluster, driver = controller.cluster, controller.driver
    reading, model = controller.observations.reading(gpu), cluster.gpu_model(gpu)
    jobs = []
    for job_id in driver.view.on_gpu[gpu]:
        job = driver.jobs.get(job_id)
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
    cluster = controller.cluster
    return [cluster.gpu_name(gpu) for gpu in gpus if gpu < cluster.gpus]


def _energy(row: sqlite3.Row, controller: Controller) -> dict[str, float | None]:
    """Joules, with the part of the attempt that runs, of which the books know nothing yet; and up to when they count.

    The moment is None while nothing of the job runs: then all of it is counted.
    """
    booked: float | None = row["energy_j"]
    attempt = AttemptId(row["id"], row["attempt"], row["epoch"])
    status = controller.poll.attempts.get(attempt)
    if status is None or status.energy_j is None or attempt not in controller.lifecycle.attempts:
        return {"energy_j": booked, "energy_at_s": None if booked is None else row["ended_at_s"]}
    return {"energy_j": (booked or 0.0) + status.energy_j, "energy_at_s": status.energy_at_s}


def _deadline_state(row: sqlite3.Row, deadline_s: float | None, controller: Controller) -> str | None:
    """Of a cancelled job nothing is expected; that of a parked one, which nobody watches, passes all the same."""
    found: str | None = json.loads(row["service"]).get("deadline_state") or None
    if deadline_s is None or found == DeadlineState.MISSED:
        return found
    if row["state"] == State.PARKED and controller.clock.now_s() > row["submit_s"] + deadline_s:
        return str(DeadlineState.MISSED)
    return None if row["state"] == State.CANCELLED else found
