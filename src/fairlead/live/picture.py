"""The controller's state as a snapshot that a simulation can run on from."""

from __future__ import annotations

from fairlead.live.controller import Controller
from fairlead.live.livejob import LiveJob, State
from fairlead.model.profile_json import profile_as_dict
from fairlead.model.snapshot import Snapshot, SnapshotJob


def snapshot(controller: Controller) -> Snapshot:
    """Now; to be called by the control loop (`Controller.ask`)."""
    view, stack = controller.desk.view, controller.desk.stack
    jobs = [*controller.desk.jobs.values(), *controller.careers.aside.values()]
    learnt = stack.sharing.learnt
    return Snapshot(
        now_s=view.now_s,
        policy=stack.spec,
        cluster=view.cluster,
        jobs=tuple(_job(controller, job) for job in sorted(jobs, key=lambda job: job.job.id)),
        down=tuple(sorted(view.down)),
        asleep=tuple(sorted(view.asleep)),
        waking=tuple((node, view.now_s + _wake_s(controller, node)) for node in sorted(view.waking)),
        rented=tuple(sorted(view.rented_s.items())),
        drained=tuple(sorted(view.drained)),
        history=None if learnt is None else learnt.to_dict(),
        profiles=tuple(profile_as_dict(p) for p in {job.job.profile.name: job.job.profile for job in jobs}.values()),
        is_fake=controller.engine.is_fake,
    )


def _wake_s(controller: Controller, node: int) -> float:
    """At the most: when it was woken is not kept."""
    cluster = controller.desk.view.cluster
    return cluster.rental.boot_s if cluster.rental is not None else cluster.nodes[node].wake_s


def _job(controller: Controller, state: LiveJob) -> SnapshotJob:
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
        profile=job.profile.name,
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
