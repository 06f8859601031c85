"""The view's counters, whatever a driver tells it."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy.view import JobState, View

NODES, GPUS = 3, 12


class Driver:
    """Draws what could happen next, and does it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.view = View(parse_shape("3x4"))
        self.withdrawn: list[JobState] = []
        self.jobs = 0

    def on(self, node: int) -> bool:
        view = self.view
        return node not in view.down and node not in view.asleep and node not in view.waking

    def idle(self, node: int) -> bool:
        return not any(self.view.on_gpu[g] for g in range(4 * node, 4 * node + 4))

    def step(self) -> None:
        getattr(self, self.rng.choice(STEPS))()

    def arrive(self) -> None:
        if self.withdrawn and self.rng.random() < 0.5:
            self.view.arrive(self.withdrawn.pop())
            return
        self.view.arrive(JobState(Job(self.jobs, str(self.jobs), self.view.now_s, 1, max_gpus=GPUS)))
        self.jobs += 1

    def withdraw(self) -> None:
        if self.view.waiting:
            state = self.rng.choice([*self.view.waiting.values()])
            self.view.withdraw(state)
            self.withdrawn.append(state)

    def start(self) -> None:
        view, rng = self.view, self.rng
        if not view.waiting:
            return
        shared = rng.random() < 0.5
        joinable = [
            g for residents, gpus in view.groups.items() for g in gpus if len(residents) < 3 and g not in view.drained
        ]
        offered = [*view.free, *(joinable if shared else ())]
        if offered:
            gpus = tuple(sorted(rng.sample(offered, rng.randrange(1, min(4, len(offered)) + 1))))
            view.start(rng.choice([*view.waiting.values()]), gpus, shared=shared)

    def stop(self) -> None:
        if self.view.running:
            self.view.stop(self.rng.choice([*self.view.running.values()]), returned=self.rng.random() < 0.5)

    def end(self) -> None:
        states = [*self.view.running.values(), *self.view.waiting.values(), *self.withdrawn]
        if states:
            state = self.rng.choice(states)
            self.withdrawn = [s for s in self.withdrawn if s is not state]
            self.view.end(state)

    def fail(self) -> None:
        node = self.rng.randrange(NODES)
        if node not in self.view.down:
            for job_id in sorted({j for g in range(4 * node, 4 * node + 4) for j in self.view.on_gpu[g]}):
                self.view.stop(self.view.running[job_id], returned=True)
            self.view.node_down(node)

    def repair(self) -> None:
        if self.view.down:
            self.view.node_up(self.rng.choice(sorted(self.view.down)))

    def sleep(self) -> None:
        nodes = [n for n in range(NODES) if self.on(n) and self.idle(n)]
        if nodes:
            self.view.sleep(self.rng.choice(nodes))

    def wake(self) -> None:
        if self.view.asleep:
            self.view.wake(self.rng.choice(sorted(self.view.asleep)))

    def awake(self) -> None:
        if self.view.waking:
            self.view.awake(self.rng.choice(sorted(self.view.waking)))

    def drain(self) -> None:
        self.view.drain(self.rng.randrange(GPUS))

    def undrain(self) -> None:
        self.view.undrain(self.rng.randrange(GPUS))

    def check(self) -> None:
        view = self.view
        usable = [g for g in range(GPUS) if self.on(g // 4) and g not in view.drained]
        assert view.up_gpus == len(usable)
        assert list(view.free) == [g for g in usable if not view.on_gpu[g]]
        assert view.free.count == sum(view.free.counts) == len(list(view.free))
        assert not view.down & view.asleep | view.asleep & view.waking | view.waking & view.down
        residents: dict[int, list[int]] = {g: [] for g in range(GPUS)}
        for job_id, state in view.running.items():
            for g in state.gpus:
                residents[g].append(job_id)
        assert [sorted(residents[g]) for g in range(GPUS)] == [sorted(on) for on in view.on_gpu]
        assert not view.running.keys() & view.waiting.keys()
        assert not any(view.here(s.job.id) for s in self.withdrawn)


STEPS = [
    "arrive", "arrive", "start", "start", "withdraw", "stop", "end", "fail", "repair", "sleep", "wake", "awake",
    "drain", "undrain",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_free_and_usable_gpus_are_counted_right_whatever_happens(rng: random.Random) -> None:
    driver = Driver(rng)
    for _ in range(80):
        driver.view.now_s += 1.0
        driver.step()
        driver.check()


def test_a_gpu_drained_while_its_node_is_off_is_not_on_offer_when_it_is_back() -> None:
    view = View(parse_shape("2x4"))
    view.sleep(1)
    view.drain(5)
    view.wake(1)
    view.drain(6)
    view.awake(1)
    assert list(view.free) == [0, 1, 2, 3, 4, 7]
    assert view.up_gpus == 6
    view.node_down(1)
    view.undrain(5)
    view.node_up(1)
    view.undrain(6)
    assert list(view.free) == list(range(8))
    assert view.up_gpus == 8


def test_a_gpu_that_is_undrained_while_its_job_still_runs_is_free_when_that_ends() -> None:
    view = View(parse_shape("1x2"))
    state = JobState(Job(0, "0", 0.0, 1))
    view.arrive(state)
    view.start(state, (0,))
    view.drain(0)
    assert (view.up_gpus, list(view.free)) == (1, [1])
    view.undrain(0)
    assert (view.up_gpus, list(view.free)) == (2, [1])
    view.end(state)
    assert list(view.free) == [0, 1]


def test_a_job_that_is_withdrawn_is_told_and_may_be_cancelled_meanwhile() -> None:
    view = View(parse_shape("1x2"))
    state = JobState(Job(0, "0", 0.0, 1))
    view.arrive(state)
    view.decided()
    view.withdraw(state)
    assert view.changes
    assert view.changes.withdrawn == [state]
    assert not view.waiting
    view.end(state)
    assert view.changes.ended == [state]
