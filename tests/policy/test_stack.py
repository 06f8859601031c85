"""The incremental regimes against a walk over the whole order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.job import Job
from fairlead.policy import registry
from fairlead.policy.placing.packed import Packed
from fairlead.policy.queue import Entry, Key, Queue
from fairlead.policy.sharing.exclusive import Exclusive
from fairlead.policy.sizing.fixed import Fixed
from fairlead.policy.stack import Stack
from fairlead.policy.stages import Ordering
from fairlead.policy.view import JobState, View


@dataclass
class Whim(Ordering):
    """Keys that change at the test's whim."""

    keys: dict[int, float] = field(default_factory=dict)
    fallen: list[JobState] = field(default_factory=list)

    @property
    def preemptive(self) -> bool:
        return True

    def waiting_key(self, state: JobState, view: View) -> Key:
        return (self.keys[state.job.id], state.job.id)

    def expired(self, view: View) -> list[JobState]:
        fallen, self.fallen = self.fallen, []
        return fallen


@pytest.mark.parametrize("seed", range(30))
def test_preemption_equals_a_greedy_walk_over_all_jobs(seed: int) -> None:
    rng = random.Random(seed)
    view, whim = View(parse_shape("4x4")), Whim()
    stack = Stack(Fixed(), whim, Exclusive(), Packed())
    states: dict[int, JobState] = {}
    for number in range(120):
        view.now_s = float(number)
        for state in [s for s in view.running.values() if rng.random() < 0.1]:
            view.end(state)
            del states[state.job.id]
        for state in view.running.values():
            if rng.random() < 0.1:
                whim.keys[state.job.id] += rng.random() * 10
                whim.fallen.append(state)
        gpus = rng.choice((1, 1, 2, 3, 5, 8, 16))
        whim.keys[number] = rng.random() * 100
        states[number] = JobState(Job(number, str(number), view.now_s, gpus, min_gpus=gpus, max_gpus=gpus))
        view.arrive(states[number])
        plan = stack.decide(view)
        view.decided()
        for job_id in plan.evict:
            view.stop(states[job_id])
        for place in plan.place:
            view.start(states[place.job_id], place.gpus)
        free, wanted = 16, set()
        for state in sorted(states.values(), key=lambda s: (whim.keys[s.job.id], s.job.id)):
            if state.job.gpus <= free:
                free -= state.job.gpus
                wanted.add(state.job.id)
        assert set(view.running) == wanted


def test_a_decision_leaves_the_view_as_it_was() -> None:
    view = View(parse_shape("2x2"))
    view.arrive(JobState(Job(0, "a", 0.0, 3, max_gpus=3)))
    stack = Stack(Fixed(), Whim(keys={0: 1.0}), Exclusive(), Packed())
    assert stack.decide(view).place[0].gpus == (0, 1, 2)
    assert set(view.free) == {0, 1, 2, 3}
    assert list(view.waiting) == [0]


def test_a_blocked_head_is_told_why() -> None:
    view = View(parse_shape("1x2"))
    view.arrive(JobState(Job(0, "a", 0.0, 1)))
    view.arrive(JobState(Job(1, "b", 0.0, 2, min_gpus=2, max_gpus=2)))
    plan = registry.build("fifo").decide(view)
    assert [p.job_id for p in plan.place] == [0]
    assert plan.waits == {1: "no-free-gpu"}


def test_a_queue_forgets_jobs_that_left_and_came_back_elsewhere() -> None:
    queue = Queue()
    states = [JobState(Job(i, str(i), 0.0, 1)) for i in range(3)]
    for state in states:
        queue.push(Entry((state.job.id,), state, 1, 1))
    queue.remove(0)
    queue.push(Entry((9,), states[0], 2, 2))
    assert [e.state.job.id for e in sorted(queue.heads())] == [1, 0]
    assert queue.first_within(1).state is states[1]  # type: ignore[union-attr]
    queue.remove(1)
    queue.remove(2)
    assert queue.head().key == (9,)  # type: ignore[union-attr]
    assert len(queue) == 1
