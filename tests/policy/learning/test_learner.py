"""What the learner makes of observations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.policy.learning import learner as room
from fairlead.policy.learning.learner import Caution, Learner
from fairlead.policy.learning.observation import Observation


def seen(
    at_s: float, job_id: int = 1, application: str = "small", gpus: tuple[int, ...] = (0,), **more: Any
) -> Observation:
    values = {"seconds": 60.0, "utilisation_frac": 0.26, "memory_peak_mib": 4000.0, "work": 1.0, **more}
    return Observation(job_id, application, at_s, gpus=gpus, **values)


def job(job_id: int = 1, name: str = "small", gpus: int = 1) -> Job:
    return Job(job_id, name, 0.0, gpus, Profile(name))


def taught(**more: Any) -> Learner:
    found = Learner()
    for n in range(1, 4):
        found.observe(seen(60.0 * n, **more))
    return found


def test_an_unknown_job_is_taken_to_fill_its_gpus() -> None:
    assert Learner().profile_of(job(), 0.0).activity_frac == 1.0
    assert "observed for another 90 s" in Learner().knowledge_of("small", 0.0).observing


def test_two_epochs_make_an_application_known() -> None:
    found = Learner()
    assert not found.observe(seen(60.0)).became_known
    assert found.observe(seen(120.0)).became_known
    profile = found.profile_of(job(), 120.0)
    assert (profile.activity_frac, profile.memory_mib, profile.epoch_s) == (0.26, 4000, 60.0)
    assert found.knowledge_of("small", 120.0).observing == ""


def test_the_next_job_of_an_application_is_known_from_the_start() -> None:
    assert taught().profile_of(job(2), 500.0).activity_frac == 0.26


def test_a_job_that_reports_nothing_is_known_by_its_metering() -> None:
    found = taught(work=None)
    assert found.is_known("small", 200.0)
    assert found.profile_of(job(), 200.0).epoch_s == Profile().epoch_s


def test_the_profile_is_the_same_object_while_nothing_has_changed() -> None:
    found = taught()
    before = found.profile_of(job(), 200.0)
    found.observe(seen(240.0))
    assert found.profile_of(job(), 240.0) is before


def test_start_up_is_no_part_of_an_epoch() -> None:
    found = taught(start_s=300.0)
    assert found.profile_of(job(), 200.0).epoch_s == 60.0


def test_speedup_follows_the_widths_that_were_seen() -> None:
    found = taught()
    unsure = found.knowledge_of("small", 200.0).scaling_exponent_sd
    for n in range(3):
        found.observe(seen(300.0 + 60 * n, gpus=(0, 1, 2, 3), work=2.0))
    curve = found.profile_of(job(2), 500.0).speedup
    assert curve(4) / curve(1) == pytest.approx(2.0, rel=0.1)
    assert found.knowledge_of("small", 500.0).scaling_exponent_sd < unsure / 2


def test_one_odd_stretch_is_set_aside_and_three_are_a_change() -> None:
    found = taught()
    found.observe(seen(240.0, utilisation_frac=0.9))
    assert found.profile_of(job(), 240.0).activity_frac == 0.26
    found.observe(seen(300.0))
    learnt = [found.observe(seen(360.0 + 60 * n, utilisation_frac=0.12)) for n in range(3)]
    assert learnt[-1].relearnt == ("utilisation_frac",)
    assert not learnt[-1].turned_bad
    assert found.profile_of(job(), 600.0).activity_frac == 0.12


def test_who_turns_bad_after_observation_is_distrusted_for_a_time() -> None:
    found = taught()
    learnt = [found.observe(seen(240.0 + 60 * n, utilisation_frac=0.9)) for n in range(3)]
    assert learnt[-1].turned_bad
    assert not found.is_known("small", 400.0)
    assert found.profile_of(job(2), 400.0).activity_frac == 1.0
    assert "not trusted" in found.knowledge_of("small", 400.0).observing
    later_s = 400.0 + found.caution.distrust_s
    assert found.profile_of(job(2), later_s).activity_frac == 0.9


def test_sets_keep_what_was_seen_of_their_speed() -> None:
    found = taught()
    for n in range(3):
        found.observe(seen(300.0 + 60 * n, application="other", job_id=2, work=2.0))
    found.observe(seen(600.0, neighbours=("other",), work=0.9))
    assert len(found.history()) == 0
    found.observe(seen(600.0, application="other", job_id=2, neighbours=("small",), work=1.6))
    ((names, measured),) = list(found.history())
    assert names == ("other", "small")
    assert measured.speeds == pytest.approx((0.8, 0.9))


def test_a_slow_gpu_shows_in_the_speed_of_an_ordinary_job() -> None:
    found = taught()
    assert found.slowness(seen(300.0, gpus=(3,), work=0.5)) == pytest.approx(2.0)
    assert found.slowness(seen(300.0, gpus=(3,), neighbours=("x",), work=0.5)) is None


def test_trying_beside_others_is_the_operators_choice() -> None:
    assert Learner(Caution(try_beside=True)).profile_of(job(), 0.0).activity_frac == Profile().activity_frac


def test_what_was_learnt_survives_json() -> None:
    found = taught()
    found.observe(seen(300.0, neighbours=("other",), work=0.9))
    again = Learner.restored(json.loads(json.dumps(found.state())))
    assert again.state() == found.state()
    assert again.profile_of(job(2), 400.0) == found.profile_of(job(2), 400.0)


def test_the_store_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_APPLICATIONS", 3)
    monkeypatch.setattr(room, "MOST_JOBS", 3)
    found = Learner()
    for n in range(10):
        found.observe(seen(60.0, job_id=n, application=f"a{n}"))
    assert found.applications() == ["a7", "a8", "a9"]
    assert len(found.state()["jobs"]) == 3
