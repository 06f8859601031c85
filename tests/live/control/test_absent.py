"""Nodes that go while the controller runs: what ran there is lost with them, or leaves in time."""

from __future__ import annotations

from pathlib import Path

from tests.live.scripted import AtOnce, World


def _world(folder: Path) -> World:
    return World(folder, cluster="2x2", workers=AtOnce())


def test_a_job_on_a_node_that_is_gone_goes_on_elsewhere(tmp_path: Path) -> None:
    world = _world(tmp_path)
    job = world.submit(gpus=2)
    world.step()
    world.step()
    world.engine.absent, world.engine.awake = {0}, {1}
    world.engine.attempts.clear()
    world.engine._on_change()
    for _ in range(4):
        world.step()
    assert world.engine.started == [(job, 1), (job, 2)]
    assert world.engine.gpus[job, 2] == (2, 3)
    assert world.engine.vacant == {0}


def test_a_place_is_not_free_while_a_part_of_a_job_that_was_there_runs_elsewhere(tmp_path: Path) -> None:
    world = _world(tmp_path)
    job = world.submit(gpus=4)
    world.step()
    world.step()
    world.engine.stubborn = True
    world.engine.absent, world.engine.awake = {0}, {1}
    world.engine._on_change()
    world.step()
    world.step()
    assert (job, 1) in world.engine.stopped
    assert not world.engine.vacant
    world.engine.lose((job, 1))
    world.step()
    world.step()
    assert world.engine.vacant == {0}


def test_jobs_leave_a_node_that_is_about_to_go(tmp_path: Path) -> None:
    world = _world(tmp_path)
    job = world.submit(gpus=2)
    world.step()
    world.step()
    world.engine.leaving = {0}
    world.engine._on_change()
    for _ in range(4):
        world.step()
    assert world.engine.stopped == [(job, 1)]
    assert world.engine.gpus[job, 2] == (2, 3)
