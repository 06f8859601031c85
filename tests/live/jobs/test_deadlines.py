"""Deadlines on a live cluster: who has missed one, who will, and that each is told once."""

from __future__ import annotations

from typing import Any

from fairlead.live.api.metrics import Metrics
from fairlead.live.api.views import job_view, summary
from fairlead.live.engines.engine import GpuReading, Progress
from fairlead.live.health import Health
from fairlead.live.storage.tokens import Identity, Role
from fairlead.live.usage import Usage
from tests.live.conftest import MakeWorld
from tests.live.scripted import AtOnce, Hands, World


def told(world: World, job_id: int | None = None) -> list[tuple[int, str]]:
    """Of deadlines alone."""
    rows = world.store.events(0, 1000, job_id=job_id)
    return [(row["job_id"], row["what"]) for row in rows if row["what"].startswith("deadline")]


def shown(world: World, job_id: int) -> dict[str, Any]:
    row = world.store.job_row(job_id)
    assert row is not None
    return job_view(row, world.controller)


def summed_up(world: World) -> dict[str, Any]:
    return summary(
        world.controller, world.store, Health(world.controller, world.store), Identity(1, "ops", Role.OPERATOR)
    )


def stepped(world: World, *passed_s: float) -> None:
    for one_s in passed_s:
        world.step(one_s)


def test_a_job_that_runs_past_its_deadline_is_told_once_and_shown_everywhere(world: World) -> None:
    usage = Usage(world.controller, world.database)
    metrics = Metrics(world.controller, world.store, Health(world.controller, world.store), usage)
    late = world.submit(deadline_s=100.0)
    world.submit()
    stepped(world, 0.0, 50.0)
    assert (shown(world, late)["deadline_state"], shown(world, late)["deadline_at_s"]) == ("on-time", 1.7e9 + 100.0)
    assert told(world) == []
    stepped(world, 55.0, 5.0, 5.0)
    assert told(world) == [(late, "deadline-missed")]
    assert shown(world, late)["deadline_state"] == "missed"
    assert summed_up(world)["deadlines"] == {"on-time": 0, "at-risk": 0, "missed": 1}
    text = metrics.text().decode()
    assert 'fairlead_deadlines{state="missed"} 1.0' in text
    assert "fairlead_missed_deadlines_total 1.0" in text


def test_a_restart_tells_nothing_again(make_world: MakeWorld, hands: Hands) -> None:
    first = make_world(hands=hands, workers=AtOnce())
    late = first.submit(deadline_s=10.0)
    risky = first.submit(deadline_s=1000.0, estimate_s=2000.0)
    stepped(first, 0.0, 20.0, 5.0)
    assert told(first) == [(risky, "deadline-at-risk"), (late, "deadline-missed")]
    first.close()
    second = make_world(hands=hands, workers=AtOnce(), engine=first.engine)
    stepped(second, 5.0, 5.0)
    assert len(told(second)) == 2
    assert [shown(second, job_id)["deadline_state"] for job_id in (late, risky)] == ["missed", "at-risk"]


def test_a_job_that_cannot_make_it_is_told_before_it_is_late(world: World) -> None:
    world.submit(gpus=4)
    waits = world.submit(gpus=4, deadline_s=100.0, estimate_s=60.0)
    stepped(world, 0.0, 30.0)
    assert told(world) == []
    stepped(world, 15.0, 5.0)
    assert told(world) == [(waits, "deadline-at-risk")]
    assert shown(world, waits)["deadline_state"] == "at-risk"
    stepped(world, 60.0)
    assert told(world) == [(waits, "deadline-at-risk"), (waits, "deadline-missed")]


def test_a_prediction_that_changes_is_shown_and_told_the_first_time_only(world: World) -> None:
    job = world.submit(deadline_s=100.0)
    world.settle()
    for epoch_s, state in ((30.0, "at-risk"), (1.0, "on-time"), (30.0, "at-risk")):
        world.engine.report((job, 1), Progress(1, 10, epoch_s, at_s=world.clock.wall_s()))
        stepped(world, 2.0, 2.0)
        assert shown(world, job)["deadline_state"] == state
    assert told(world) == [(job, "deadline-at-risk")]


def test_a_run_time_that_nobody_knows_is_no_prediction(world: World) -> None:
    job = world.submit(deadline_s=100.0)
    stepped(world, 0.0, 90.0)
    assert (told(world), shown(world, job)["deadline_state"]) == ([], "on-time")


def test_an_end_between_two_looks_is_judged_by_its_moment(world: World, hands: Hands) -> None:
    late, timely = world.submit(deadline_s=100.0), world.submit(deadline_s=100.0)
    world.settle()
    world.step(99.9)
    hands.now_s += 0.05
    world.engine.end((timely, 1))
    hands.now_s += 0.5
    world.engine.end((late, 1))
    world.settle()
    assert told(world) == [(late, "deadline-missed")]
    assert [shown(world, job)["deadline_state"] for job in (late, timely)] == ["missed", "met"]
    assert summed_up(world)["deadlines"]["missed"] == 0


def test_an_end_is_not_moved_by_whoever_sets_the_time_of_day(world: World, hands: Hands) -> None:
    late, timely = world.submit(deadline_s=100.0), world.submit(deadline_s=100.0)
    world.settle()
    hands.now_s += 150.0
    world.engine.end((late, 1), ended_ago_s=1.0)
    world.engine.end((timely, 1), ended_ago_s=51.0)
    hands.wall_s += 40 * 86400.0
    world.settle()
    assert [shown(world, job)["deadline_state"] for job in (late, timely)] == ["missed", "met"]


def test_services_and_cancelled_jobs_miss_nothing_and_held_ones_do(world: World) -> None:
    service = world.submit(kind="service", deadline_s=10.0)
    cancelled, held = world.submit(deadline_s=10.0), world.submit(deadline_s=10.0, hold=True)
    world.settle()
    world.wish(cancelled, "cancel")
    stepped(world, 1.0, 20.0)
    assert told(world) == [(held, "deadline-missed")]
    assert [shown(world, job)["deadline_state"] for job in (service, cancelled)] == [None, None]


def test_joules_say_up_to_when_they_count(world: World, hands: Hands) -> None:
    job = world.submit()
    world.settle()
    hands.now_s = 40.0
    world.engine.meter((job, 1), 500.0)
    world.settle()
    hands.now_s = 60.0
    seen = shown(world, job)
    assert (seen["energy_j"], seen["energy_at_s"]) == (500.0, 1.7e9 + 40.0)
    world.engine.end((job, 1))
    world.settle()
    assert shown(world, job)["energy_at_s"] == 1.7e9 + 60.0


def test_gpus_whose_jobs_are_leaving_count_as_busy(world: World) -> None:
    world.engine.stubborn = True
    job = world.submit(gpus=4)
    world.settle()
    world.wish(job, "cancel")
    world.settle()
    assert world.state(job) == "cancelled"
    assert summed_up(world)["gpus"]["busy"] == 4
    world.engine.end((job, 1))
    world.settle()
    assert summed_up(world)["gpus"]["busy"] == 0


def test_gpus_are_read_again_soon_after_an_end(make_world: MakeWorld, hands: Hands) -> None:
    """What an agent told with the end was read before it: the power of a job that is gone."""
    world = make_world(hands=hands, workers=AtOnce())
    job = world.submit()
    stepped(world, 0.0, 1.0)
    world.engine.read(GpuReading(0, at_s=world.clock.wall_s(), power_w=500.0))
    world.engine.end((job, 1))
    next_s = world.step(0.1)
    seen = summed_up(world)
    assert (seen["power_w"], seen["power_at_s"]) == (500.0, 1.7e9 + 1.0)
    assert next_s <= hands.now_s + 1.5
