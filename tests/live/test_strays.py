"""Attempts that only a node knows, since the database was restored: they leave before anything takes their place."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fairlead.live.engines.engine import AttemptState, AttemptStatus, Stray
from fairlead.live.storage.database import Database
from fairlead.live.storage.schema import STEPS
from fairlead.live.storage.store import Store
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from tests.live.conftest import MakeWorld
from tests.live.scripted import Hands, ScriptedEngine, World


def stray(job_id: int = 1, gpus: tuple[int, ...] = (0,), node: int = 0, *, is_over: bool = False) -> Stray:
    return Stray(AttemptId(job_id, 1, "other"), node, gpus, is_over)


def told(world: World) -> list[str]:
    rows = world.store.database.read("SELECT what, job_id FROM events WHERE what = 'stray-attempt' AND job_id IS NULL")
    return [row["what"] for row in rows]


def test_a_job_does_not_start_while_an_attempt_of_it_runs_that_its_database_does_not_know(world: World) -> None:
    world.engine.stubborn = True
    world.engine.strays = [stray(gpus=(3,))]
    job_id = world.submit()
    world.settle()
    assert world.engine.started == []
    world.engine.strays = [stray(gpus=(3,), is_over=True)]
    world.step(10.0)
    world.settle()
    assert world.engine.started == [(job_id, 1)]
    assert world.engine.strays == [], "it is forgotten once it is over"
    assert told(world) == ["stray-attempt"]


def test_its_gpus_are_given_on_when_it_has_left(world: World) -> None:
    world.engine.stubborn = True
    world.engine.strays = [stray(99, gpus=(0, 1, 2, 3))]
    job_id = world.submit(user="bob")
    world.settle()
    assert world.engine.started == []
    world.engine.stubborn = False
    world.step(31.0)
    world.settle()
    assert world.engine.started == [(job_id, 1)]


def test_on_a_node_that_is_away_it_still_counts(make_world: MakeWorld, hands: Hands) -> None:
    engine = ScriptedEngine("2x2")
    engine.strays, engine.away = [stray(1, gpus=(0,))], {0}
    world = make_world(cluster="2x2", engine=engine, hands=hands)
    world.submit()
    world.step(20.0)
    world.settle()
    assert engine.started == []
    engine.away = set()
    for _ in range(3):
        world.step(20.0)
        world.settle()
    assert engine.started == [(1, 1)]


def test_each_controller_makes_attempts_of_an_epoch_of_its_own(make_world: MakeWorld, hands: Hands) -> None:
    first = make_world(hands=hands)
    first.submit()
    first.settle()
    first.close()
    second = make_world(hands=hands, engine=first.engine)
    second.submit()
    second.settle()
    epochs = [first.engine.orders[job_id, 1].id.epoch for job_id in (1, 2)]
    assert epochs == [first.controller.epoch, second.controller.epoch]
    assert len(set(epochs)) == 2
    assert [second.store.knows(first.engine.orders[job_id, 1].id) for job_id in (1, 2)] == [True, True]
    others = (AttemptId(1, 1, epochs[1]), AttemptId(1, 2, epochs[0]), AttemptId(3, 1, epochs[0]))
    assert not any(second.store.knows(other) for other in others)


def test_a_database_from_before_epochs_is_brought_forward_and_its_jobs_run_on(
    tmp_path: Path, make_world: MakeWorld
) -> None:
    with sqlite3.connect(tmp_path / "fairlead.db") as old:
        old.executescript(f"{STEPS[0]} PRAGMA user_version = 1;")
        job = {"user": "ann", "name": "x", "request": '{"command": ["train"]}', "submit_s": 0.0, "submitted_at_s": 0.0}
        job |= {"state": "running", "attempt": 1, "gpus": "[0]"}
        old.execute(f"INSERT INTO jobs ({', '.join(job)}) VALUES ({', '.join('?' * len(job))})", tuple(job.values()))
        old.execute("INSERT INTO attempts (job_id, attempt, gpus, shared, sm_share) VALUES (1, 1, '[0]', 0, 1.0)")
    old.close()
    engine = ScriptedEngine("1x4")
    engine.orders[1, 1], engine.gpus[1, 1] = Order(AttemptId(1, 1), ("train",)), (0,)
    engine.attempts[1, 1] = AttemptStatus(AttemptId(1, 1), AttemptState.RUNNING, started_at_s=1.0)
    world = make_world(engine=engine)
    world.settle()
    assert (engine.started, engine.stopped, world.store.attempt_id(1, 1)) == ([], [], AttemptId(1, 1))
    second = world.submit()
    world.settle()
    assert engine.orders[second, 1].id.epoch
    engine.end((1, 1))
    world.settle()
    assert world.state(1) == "finished"


def test_numbers_that_nodes_know_are_not_given_out_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "fairlead.db")
    store = Store(database)
    for highest in (0, 41, 7):
        store.number_jobs_above(highest)
    insert = "INSERT INTO jobs (user, name, request, submit_s, submitted_at_s, state) VALUES ('a', '', '{}', 0, 0, '')"
    assert database.write(lambda connection: connection.execute(insert).lastrowid).result() == 42
    database.close()


@pytest.mark.parametrize("attempt", [1, 2])
def test_what_is_over_is_only_forgotten(world: World, attempt: int) -> None:
    world.engine.strays = [Stray(AttemptId(5, attempt, "other"), 0, (0,), is_over=True)]
    world.submit()
    world.settle()
    assert world.engine.started == [(1, 1)]
    assert told(world) == []
