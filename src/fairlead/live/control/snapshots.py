"""The controller's state as a snapshot that a simulation can run on from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

from fairlead.live.control.controller import Controller
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.states import State
from fairlead.model.contention import Solo
from fairlead.model.interference import Interference
from fairlead.model.profile import Profile
from fairlead.model.service import DailyLoad, Service
from fairlead.model.snapshot import Snapshot, SnapshotJob
from fairlead.policy import snapshots

_LEAST_LOAD, _MOST_LOAD = 0.05, 0.8
"""Of what a GPU can serve; above that every queue grows."""
_SLO_S = 0.1
"""Where none is stated,"""
_OF_SLO = 0.05
"""and a request alone takes this part of it."""


def snapshot(controller: Controller) -> Snapshot:
    """Now; to be called by the control loop (`Controller.ask`)."""
    driver, observations = controller.driver, controller.observations
    jobs = sorted((*driver.jobs.values(), *controller.lifecycle.aside.values()), key=lambda job: job.job.id)
    profiles = {job.job.id: _profile(controller, job) for job in jobs}
    ended = [cast(LiveJob, state) for state in driver.view.changes.ended]
    return snapshots.take(
        driver,
        (_job(controller, job, profiles[job.job.id].name) for job in jobs),
        (_job(controller, job, job.job.profile.name, state="waiting") for job in ended),
        interference=_interference(controller).to_dict(),
        profiles=snapshots.profiles_of((*profiles.values(), *(job.job.profile for job in ended))),
        is_fake=controller.engine.is_fake,
        paid_gpu_s=observations.paid_gpu_s(),
        accepting=tuple(observations.accepting()),
    )


def _interference(controller: Controller) -> Interference:
    """What neighbours cost each other: as the policy has measured it, else as the table says.

    On fake GPUs nothing is measured, so that the table is all that is true.
    """
    table, learnt = controller.observations.interference, controller.driver.stack.sharing.learnt
    if learnt is None or controller.engine.is_fake:
        return table
    return table.updated(learnt)


def _profile(controller: Controller, state: LiveJob) -> Profile:
    """A service that has no model of itself gets one by what is metered of it, as if its load stayed as it is now.

    Without one a simulation would not know what it leaves for others.
    """
    job = state.job
    if job.kind != "service" or job.profile.service is not None or len(state.gpus) != 1:
        return job.profile
    gpu = state.gpus[0]
    busy, active, memory = controller.observations.of_service(gpu, job.profile)
    active = busy if math.isnan(active) else active
    load = min(max(busy, _LEAST_LOAD), _MOST_LOAD)
    slo_s = state.request.slo_s or _SLO_S
    solo = Solo(min(busy / load, 1.0), min(active / load, 1.0), 0.5, 0.0, min(memory, 1.0), slo_s * _OF_SLO)
    return replace(
        job.profile, name=f"{job.profile.name}-of-{job.id}", service=Service(DailyLoad(load, 0.0), solo, slo_s)
    )


def _job(controller: Controller, job: LiveJob, profile: str, **about: Any) -> SnapshotJob:
    observations, now_s = controller.observations, controller.driver.view.now_s
    is_known = job.job.kind != "service" and not observations.is_guess(job)
    left_s = observations.left_s(job) if is_known else None
    started_s = None if job.started_at_s is None else controller.clock.at_s(job.started_at_s)
    submit_s = min(job.job.submit_s, now_s)  # it may have come while this turn had begun
    values: dict[str, Any] = {
        "profile": profile,
        "submit_s": submit_s,
        "since_s": min(job.since_s, now_s),
        "left_s": left_s,
        "started_s": None if started_s is None else min(max(started_s, submit_s), now_s),
    }
    # Who backs off will wait again soon; for a prediction it is as good as waiting.
    if not job.gpus:
        values["state"] = "held" if job.state is State.HELD else "waiting"
    return snapshots.saved_job(job, now_s, **{**values, **about})
