"""The controller's state as a snapshot that a simulation can run on from."""

from __future__ import annotations

import math
from dataclasses import replace

from fairlead.live.controller import Controller
from fairlead.live.livejob import LiveJob, State
from fairlead.model.contention import Solo
from fairlead.model.profile import Profile
from fairlead.model.profile_json import profile_as_dict
from fairlead.model.service import DailyLoad, Service
from fairlead.model.snapshot import Snapshot, SnapshotJob

_LEAST_LOAD, _MOST_LOAD = 0.05, 0.8
"""Of what a GPU can serve; above that every queue grows."""
_SLO_S = 0.1
"""Where none is stated,"""
_OF_SLO = 0.05
"""and a request alone takes this part of it."""


def snapshot(controller: Controller) -> Snapshot:
    """Now; to be called by the control loop (`Controller.ask`)."""
    view, stack = controller.desk.view, controller.desk.stack
    jobs = [*controller.desk.jobs.values(), *controller.careers.aside.values()]
    learnt = stack.sharing.learnt
    profiles = {job.job.id: _profile(controller, job) for job in jobs}
    return Snapshot(
        now_s=view.now_s,
        policy=stack.spec,
        cluster=view.cluster,
        jobs=tuple(
            _job(controller, job, profiles[job.job.id].name) for job in sorted(jobs, key=lambda job: job.job.id)
        ),
        down=tuple(sorted(view.down)),
        asleep=tuple(sorted(view.asleep)),
        waking=tuple((node, view.now_s + _wake_s(controller, node)) for node in sorted(view.waking)),
        rented=tuple(sorted(view.rented_s.items())),
        drained=tuple(sorted(view.drained)),
        history=None if learnt is None else learnt.to_dict(),
        profiles=tuple(profile_as_dict(p) for p in {p.name: p for p in profiles.values()}.values()),
        is_fake=controller.engine.is_fake,
    )


def _wake_s(controller: Controller, node: int) -> float:
    """At the most: when it was woken is not kept."""
    cluster = controller.desk.view.cluster
    return cluster.rental.boot_s if cluster.rental is not None else cluster.nodes[node].wake_s


def _profile(controller: Controller, state: LiveJob) -> Profile:
    """A service that has no model of itself gets one by what is metered of it, as if its load stayed as it is now.

    Without one a simulation would not know what it leaves for others.
    """
    job = state.job
    if job.kind != "service" or job.profile.service is not None or len(state.gpus) != 1:
        return job.profile
    gpu = state.gpus[0]
    busy, active, memory = controller.observed.of_service(gpu, job.profile)
    active = busy if math.isnan(active) else active
    load = min(max(busy, _LEAST_LOAD), _MOST_LOAD)
    slo_s = state.request.slo_s or _SLO_S
    solo = Solo(min(busy / load, 1.0), min(active / load, 1.0), 0.5, 0.0, min(memory, 1.0), slo_s * _OF_SLO)
    return replace(
        job.profile, name=f"{job.profile.name}-of-{job.id}", service=Service(DailyLoad(load, 0.0), solo, slo_s)
    )


def _job(controller: Controller, state: LiveJob, profile: str) -> SnapshotJob:
    job, observed = state.job, controller.observed
    is_known = job.kind != "service" and not observed.is_guess(state)
    started_s = None if state.started_at_s is None else controller.clock.at_s(state.started_at_s)
    return SnapshotJob(
        id=job.id,
        name=job.name,
        user=job.user,
        submit_s=min(job.submit_s, controller.desk.view.now_s),  # it may have come while this turn had begun
        gpus=job.gpus,
        min_gpus=job.min_gpus,
        max_gpus=job.max_gpus,
        memory_mib=job.memory_mib,
        profile=profile,
        kind=job.kind,
        priority=job.priority,
        deadline_s=job.deadline_s,
        batch=job.batch,
        # Who backs off will wait again soon; for a prediction it is as good as waiting.
        state="running" if state.gpus else "held" if state.state is State.HELD else "waiting",
        placement=state.gpus,
        shared=state.shared,
        sm_share=state.sm_share,
        since_s=min(state.since_s, controller.desk.view.now_s),
        banked_gpu_s=state.banked_gpu_s,
        starts=state.starts,
        left_s=observed.left_s(state) if is_known else None,
        started_s=None if started_s is None else min(max(started_s, job.submit_s), controller.desk.view.now_s),
    )
