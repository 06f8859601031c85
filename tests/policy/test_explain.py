"""Why jobs wait: the short words, and what else was considered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.contention import Solo
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.policy import laws, registry
from fairlead.policy.plan import Plan
from fairlead.policy.sharing.groups import described
from fairlead.policy.sources import Fleet
from fairlead.policy.view import JobState, View
from tests.policy.test_restart import Steady
from tests.sim.toys import rented

BUSY = Profile("busy", activity_frac=0.45, epoch_s=100.0)


class Hours:
    """Jobs take an hour, and one more for each step of priority."""

    def remaining_s(self, state: JobState) -> float:
        return 3600.0 * (1 + state.job.priority)


class World:
    """A view that is driven by hand, and a stack that explains."""

    def __init__(self, spec: str, cluster: str | Cluster = "1x2") -> None:
        self.stack = registry.build(spec)
        self.stack.explains = True
        self.view = View(parse_shape(cluster) if isinstance(cluster, str) else cluster, Hours(), Steady())
        self.jobs = 0
        if self.stack.powering.rents:
            for node in range(len(self.view.cluster.nodes)):
                self.view.sleep(node)

    def submit(self, gpus: int = 1, **about: object) -> JobState:
        job = Job(self.jobs, str(self.jobs), self.view.now_s, gpus, min_gpus=gpus, max_gpus=gpus)
        state = JobState(replace(job, **about))  # type: ignore[arg-type]
        self.jobs += 1
        self.view.arrive(state)
        return state

    def decide(self, calls: int = 1) -> Plan:
        """So many decisions, each carried out; gives the last."""
        view = self.view
        for _ in range(calls):
            plan = self.stack.decide(view)
            laws.check(view, plan)
            view.decided()
            for job_id in plan.evict:
                view.stop(view.running[job_id])
            for place in plan.place:
                view.start(view.waiting[place.job_id], place.gpus, shared=place.shared)
            for node in plan.wake:
                view.wake(node)
        return plan


def test_a_stack_explains_only_if_it_is_told_to() -> None:
    world = World("fifo-greedy")
    world.stack.explains = False
    world.submit(2)
    world.submit(2)
    assert world.decide().waits == {}


def test_in_a_strict_order_only_the_head_is_explained() -> None:
    world = World("fifo")
    for gpus in (1, 2, 1, 1):
        world.submit(gpus)
    assert world.decide().waits == {1: "no-free-gpu"}


def test_skipped_jobs_are_explained_too() -> None:
    world = World("fifo-greedy")
    for gpus in (1, 2, 1, 1):
        world.submit(gpus)
    assert world.decide().waits == {1: "no-free-gpu", 3: "no-free-gpu"}


def test_a_job_that_would_delay_the_head_waits_behind_it() -> None:
    world = World("fifo-easy", "1x4")
    world.submit(3)
    world.submit(4)
    world.submit(1, priority=1)
    assert world.decide().waits == {1: "no-free-gpu", 2: "behind-another"}


def test_gpus_that_are_free_and_too_small() -> None:
    world = World("fifo")
    room_mib = world.view.cluster.gpu_model(0).memory_mib
    world.submit(memory_mib=2.0 * room_mib)
    assert world.decide().waits == {0: "over-memory"}


@pytest.mark.parametrize("spec", ["fifo,powering=rent", "sizing=boa:budget=2,powering=rent"])
def test_a_job_waits_for_the_node_that_is_rented_for_it(spec: str) -> None:
    world = World(spec, rented("2x2", boot_s=60.0))
    world.submit(2)
    plan = world.decide()
    assert plan.wake
    assert plan.waits == {0: "node-booting"}


def test_a_job_that_came_between_two_decisions_on_widths_is_not_sized_yet() -> None:
    world = World("sizing=equal:interval_s=60")
    world.submit(2)
    world.decide()
    world.submit()
    assert world.decide().waits == {1: "not-sized-yet"}
    world.view.now_s = 60.0
    assert world.decide().waits == {1: "outbid"}


def eaco(first: dict[str, object], second: dict[str, object]) -> Plan:
    """A GPU with a busy job, and one more that could only be beside it."""
    world = World("eaco,powering=always-on", "1x1")
    world.submit(1, **{"profile": BUSY, **first})
    world.decide()
    world.submit(1, **{"profile": replace(BUSY, activity_frac=0.2), **second})
    return world.decide()


def test_company_that_is_refused_is_named_with_the_reason() -> None:
    tight = eaco({"deadline_s": 3700.0}, {})
    assert tight.waits == {1: "deadline-at-risk"}
    assert tight.rejected == {1: [("beside job 0 on GPU 0", "deadline-at-risk")]}
    full = eaco({"profile": replace(BUSY, activity_frac=0.7)}, {})
    assert full.rejected == {1: [("beside job 0 on GPU 0", "over-utilisation")]}
    assert full.waits == {1: "over-utilisation"}
    large = eaco({"memory_mib": 20_000.0}, {"memory_mib": 20_000.0})
    assert large.waits == {1: "over-memory"}
    urgent = eaco({}, {"priority": 1})
    assert (urgent.waits, urgent.rejected) == ({1: "no-free-gpu"}, {})


def test_five_alternatives_are_enough() -> None:
    world = World("eaco,powering=always-on", "1x8")
    for _ in range(8):
        world.submit(gpus=1, profile=replace(BUSY, activity_frac=0.7))
    world.decide(2)
    world.submit(profile=BUSY)
    plan = world.decide()
    assert len(plan.rejected[8]) == 5
    assert {why for _, why in plan.rejected[8]} == {"over-utilisation"}


class Metered:
    """Services on the first GPUs, with or without room for others."""

    def __init__(self, accepts: Sequence[bool], memory: float = 0.2) -> None:
        n = len(accepts)
        self.columns = (np.arange(n), np.arange(n), np.full(n, 0.2), np.full(n, 0.2), np.full(n, memory))
        self.accepts = np.array(accepts)

    def fleet(self) -> Fleet:
        return Fleet(*self.columns, self.accepts, np.full(len(self.accepts), -1))


def muxflow(accepts: Sequence[bool], memory: float = 0.2) -> tuple[World, JobState]:
    world = World("muxflow", f"1x{len(accepts)}")
    solo = Solo(0.95, 0.4, 0.4, 0.4, 0.1, 0.2)
    for _ in accepts:
        world.submit(kind="service", profile=Profile("service", solo=solo))
    world.decide(2)
    world.view.meter = Metered(accepts, memory)
    return world, world.submit(profile=Profile("offline", solo=solo, memory_mib=0.0))


def test_an_offline_job_is_told_what_keeps_it_from_services() -> None:
    world, _ = muxflow([False, False])
    plan = world.decide()
    assert plan.waits == {2: "no-service-accepts"}
    assert plan.rejected[2] == [
        ("beside job 0 on GPU 0", "no-service-accepts"),
        ("beside job 1 on GPU 1", "no-service-accepts"),
    ]
    world, _ = muxflow([False, True], memory=0.8)
    assert world.decide().waits == {2: "over-memory"}


def test_an_evicted_job_is_told_that_it_stays_away() -> None:
    world, state = muxflow([True])
    assert [place.job_id for place in world.decide().place] == [1]
    world.view.now_s = 100.0
    world.view.stop(state, returned=True)
    assert world.decide().waits == {1: "evicted-back-off"}


def test_gpus_are_described_in_spans() -> None:
    assert described((3, 7), {9, 4, 5}) == "beside jobs 3, 7 on GPUs 4-5, 9"
    assert described((3,), {4}) == "beside job 3 on GPU 4"
