"""The index of groups says how full they are by what is known now, whatever has happened to them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.model.interference import Interference
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.policy.sharing.groups import Group, GroupIndex
from fairlead.policy.view import JobState, View

GPUS = 12
# One application under two names and with two activities: a history knows them as one.
PROFILES = [
    Profile("slim", activity_frac=0.1), Profile("light", activity_frac=0.3), Profile("Light", activity_frac=0.2),
    Profile("heavy", activity_frac=0.45),
]  # fmt: skip


class Crowd:
    """Jobs that join and leave, and a history that learns of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.view = View(parse_shape("3x4"))
        self.history = Interference()
        self.index = GroupIndex(self.history)
        self.jobs = 0

    def step(self) -> None:
        self.rng.choice([self.join, self.join, self.end, self.undo, self.learn])()

    def join(self) -> None:
        view, rng = self.view, self.rng
        open_to_all = [g for g in range(GPUS) if len(view.on_gpu[g]) < 3]
        if not open_to_all:
            return
        if not view.waiting or rng.random() < 0.7:
            view.arrive(JobState(Job(self.jobs, str(self.jobs), 0.0, 1, rng.choice(PROFILES), max_gpus=GPUS)))
            self.jobs += 1
        gpus = rng.sample(open_to_all, rng.randrange(1, len(open_to_all) + 1))
        view.start(rng.choice([*view.waiting.values()]), tuple(sorted(gpus)), shared=True)

    def end(self) -> None:
        if self.view.running:
            self.view.end(self.rng.choice([*self.view.running.values()]))

    def undo(self) -> None:
        if self.view.running:
            self.view.stop(self.rng.choice([*self.view.running.values()]))

    def learn(self) -> None:
        sets = [group for group in self.view.groups if len(group) > 1]
        if sets:
            names = [self.view.running[j].job.profile.name for j in self.rng.choice(sets)]
            self.history.record(names, [1.0] * len(names), self.rng.choice((0.2, 0.6, 0.8)))
            self.index.learnt(names)

    def recount(self) -> list[tuple[float, Group]]:
        running = self.view.running
        full = {g: self.history.utilisation([running[j].job.profile for j in g]) for g in self.view.groups}
        return sorted((-utilisation, group) for group, utilisation in full.items())

    def check(self) -> None:
        self.index.catch_up(self.view)
        counted = self.recount()
        for limit in (0.0, 0.2, 0.5, 0.6, 0.8, 2.0):
            assert [*self.index.at_most(limit)] == [g for full, g in counted if -full <= limit]
            assert [*self.index.above(limit)] == [g for full, g in counted if -full > limit]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_after_any_joins_ends_undos_and_lessons_the_index_equals_a_recount(rng: random.Random) -> None:
    crowd = Crowd(rng)
    for _ in range(80):
        crowd.step()
        if rng.random() < 0.6:
            crowd.check()
    crowd.check()


def test_the_index_equals_a_recount_after_the_view_has_cleared_its_list_of_changes() -> None:
    crowd = Crowd(random.Random(1))
    while crowd.view.group_epoch < 3:
        crowd.step()
        crowd.check()


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    crowd = Crowd(random.Random(2))
    for _ in range(60):
        crowd.step()
        crowd.check()
    for state in [*crowd.view.running.values()]:
        crowd.view.end(state)
    crowd.check()
    index = crowd.index
    assert not any((index._levels, index._ranked, index._kind_of, index._kinds, index._named, index._learnt))
