"""Why a job waits, or runs where it does: the policy's own reasons, in words and as data."""

from __future__ import annotations

from typing import Any

from fairlead.errors import InputError
from fairlead.live.control.controller import Controller
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.states import State
from fairlead.policy.fit import least_gpus

WORDS = {
    "no-free-gpu": "no free GPUs suit it now",
    "behind-another": "the job at the head of the queue goes first, and that one waits",
    "deadline-at-risk": "beside others, somebody would miss a deadline",
    "over-utilisation": "the GPUs that others use are too busy to take it as well",
    "over-memory": "its memory does not fit beside those who are there",
    "evicted-back-off": "it was evicted, and keeps away for a while",
    "no-service-accepts": "no GPU with a service takes offline work now",
    "over-budget": "the budget is better spent on others now",
    "outbid": "others gain more by the GPUs that it could have",
    "not-sized-yet": "the policy has not decided yet how many GPUs it gets",
    "node-booting": "the nodes for it are on their way",
}


def explain(controller: Controller, job_id: int) -> dict[str, Any]:
    """To be called by the control loop (`Controller.ask`). Of a job that is over, its row tells everything."""
    job = controller.lifecycle.get(job_id)
    if job is None:
        raise InputError(f"job {job_id} is over, or unknown", hint="its status says how it ended")
    view = controller.driver.view
    found: dict[str, Any] = {
        "id": job_id,
        "state": str(job.state),
        "phase": job.phase,
        "reason": job.reason,
        "policy": controller.driver.stack.spec,
        "free_gpus": view.free.count,
        "why": [],
        "rejected": [],
    }
    if job.gpus:
        found |= _of_running(controller, job)
    elif job.state is State.WAITING:
        found |= _of_waiting(controller, job)
    elif job.state is State.HELD:
        found["why"] = ["it is held; `fairlead release` lets it wait for GPUs"]
    else:
        left_s = max((job.due_s or view.now_s) - view.now_s, 0.0)
        found["why"] = [f"it has failed {job.failures} times ({job.reason}), and tries again in {left_s:.0f} s"]
    if controller.trouble:
        found["why"].append("nothing is started at present: the control loop has trouble, and its log says which")
    if controller.policy_trouble:
        found["why"].append(f"nothing is placed at present: {controller.policy_trouble}")
    return found


def _of_running(controller: Controller, job: LiveJob) -> dict[str, Any]:
    view, cluster = controller.driver.view, controller.driver.view.cluster
    names = [cluster.gpu_name(g) for g in job.gpus]
    others = sorted({j for g in job.gpus for j in view.on_gpu[g]} - {job.job.id})
    spanned = cluster.spanned(job.gpus)
    why = [f"it was {job.reason} on {', '.join(names)} {view.now_s - job.since_s:.0f} s ago"]
    if others:
        kept = controller.observations.kept_speed(job)
        why.append(f"it shares with {_listed(others)} and keeps about {kept:.0%} of its speed alone")
    if spanned > 1:
        why.append(f"its GPUs are on {spanned} nodes")
    if job.phase == "starting":
        attempts = controller.lifecycle.attempts.values()
        stopping = [a.id.job_id for a in attempts if a.stopping and set(a.gpus) & set(job.gpus)]
        why.append(f"it starts when {_listed(stopping)} has stopped" if stopping else "its processes are being started")
    return {"placement": names, "neighbours": others, "why": why, "is_shared": job.shared, "sm_share": job.sm_share}


def _of_waiting(controller: Controller, job: LiveJob) -> dict[str, Any]:
    driver, job_id = controller.driver, job.job.id
    view, ordering = driver.view, driver.stack.ordering
    own = ordering.waiting_key(job, view)
    ahead = [s for s in view.waiting.values() if ordering.waiting_key(s, view) < own]
    reason = driver.waits.get(job_id) or ("behind-another" if ahead else "no-free-gpu")
    why = [WORDS.get(reason, reason)]
    least = least_gpus(job.job.gpus, job.job.min_gpus, driver.stack)
    if job.job.gpu_frac < 1.0:
        why.append(f"it needs {job.job.gpu_frac:g} of a GPU, and no GPU has as much left, and memory for it")
    elif least > view.free.count:
        why.append(f"it needs {least} {'GPU' if least == 1 else 'GPUs'}, {view.free.count} free")
    if least > view.up_gpus:
        why.append(f"only {view.up_gpus} GPUs take jobs at all at present (others are drained, asleep or unreachable)")
    if job.reason.startswith("evicted"):
        why.append(f"it ran before: {job.reason}")
    if ahead:
        are = "job is" if len(ahead) == 1 else "jobs are"
        why.append(f"{len(ahead)} {are} ahead of it by {type(ordering).__name__.lower()}")
    rejected = [{"where": where, "why": word} for where, word in driver.rejected.get(job_id, ())]
    first = min(ahead, key=lambda s: ordering.waiting_key(s, view)).job.id if ahead else None
    return {"wait_reason": reason, "ahead": len(ahead), "head": first, "why": why, "rejected": rejected}


def _listed(jobs: list[int]) -> str:
    shown = ", ".join(map(str, jobs[:5]))
    return f"job{'s' * (len(jobs) > 1)} {shown}{' ...' * (len(jobs) > 5)}"
