"""Trouble around a running controller: it says what is wrong, does nothing that is not on the disk, and goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Iterator

import pytest

from fairlead.live.jobs.states import State
from fairlead.live.storage.database import StoreError
from fairlead.policy.plan import Plan
from fairlead.policy.view import View
from tests.live.rig import Rig, agents_in


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig("fifo", fake_gpus=2)
    yield made
    made.close()


@contextlib.contextmanager
def locked(rig: Rig) -> Iterator[None]:
    """Somebody else writes to the database, and takes long."""
    other = sqlite3.connect(rig.home / "fairlead.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextlib.contextmanager
def full(rig: Rig) -> Iterator[None]:
    """The database cannot grow, as on a full disk."""
    write = rig.store.database.write
    write(lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()).exception()
    write(lambda c: c.execute("PRAGMA max_page_count = 1").fetchone()).result()
    try:
        yield
    finally:
        write(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone()).result()


def fill(rig: Rig) -> None:
    """Until nothing more goes in."""

    def submit_on() -> None:
        while True:
            rig.submit("sleep", "0", env={"FILLER": "x" * 20_000}, hold=True)

    with pytest.raises(StoreError, match="full"):
        submit_on()


def test_a_locked_database_stops_decisions_not_jobs(rig: Rig) -> None:
    running = rig.submit("sh", "-c", "sleep 1; echo through")
    rig.until(lambda: rig.job(running)["started_at_s"] is not None, "its start")
    with locked(rig):
        with pytest.raises(StoreError, match="locked"):
            rig.submit("true")
        rig.until(lambda: rig.log(running) == "through\n", "its end")
        rig.until(lambda: "locked" in rig.controller.trouble, "the controller to say so")
        assert rig.job(running)["state"] == "running"
    rig.until_state(running, State.FINISHED)
    rig.until(lambda: not rig.controller.trouble, "the trouble to be over")
    later = rig.submit("true")
    rig.until_state(later, State.FINISHED)


def test_a_full_disk_is_told_and_what_was_acknowledged_is_not_lost(rig: Rig) -> None:
    running = rig.submit("sh", "-c", "sleep 2; exit 5", retries=0)
    rig.until(lambda: rig.job(running)["started_at_s"] is not None, "its start")
    with full(rig):
        fill(rig)
        before = rig.store.database.read("SELECT count(*) FROM jobs")[0][0]
        time.sleep(2.0)
    rig.until_state(running, State.PARKED)
    assert rig.job(running)["exit_code"] == 5
    assert rig.store.database.read("SELECT count(*) FROM jobs")[0][0] == before


def test_a_killed_agent_comes_back_and_its_jobs_have_not_noticed(rig: Rig) -> None:
    job_id = rig.submit("sh", "-c", "sleep 2; echo through; exit 3", retries=0)
    rig.until(lambda: rig.job(job_id)["started_at_s"] is not None, "its start")
    (agent,) = agents_in(rig.home)
    os.kill(agent, signal.SIGKILL)
    rig.until(lambda: "node-unreachable" in rig.events(), "the controller to notice")
    rig.until_state(job_id, State.PARKED)
    assert (rig.job(job_id)["exit_code"], rig.job(job_id)["attempt"], rig.log(job_id)) == (3, 1, "through\n")
    assert "node-reachable" in rig.events()
    assert agents_in(rig.home) != [agent]


def test_a_policy_that_breaks_a_law_is_refused_and_one_that_has_forgotten_it_is_asked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = rig.controller.driver.stack
    monkeypatch.setattr(stack, "decide", lambda view: Plan(evict=[99]))
    job_id = rig.submit("true")
    rig.until(lambda: "plan-refused" in rig.events(), "the refusal")
    rig.until_state(job_id, State.FINISHED)


def test_a_policy_that_fails_makes_the_controller_begin_anew_from_the_disk(rig: Rig) -> None:
    running = rig.submit("sh", "-c", "sleep 1; echo through")
    rig.until(lambda: rig.job(running)["started_at_s"] is not None, "its start")

    def fail(view: View) -> Plan:
        raise ZeroDivisionError("a bug")

    rig.controller.driver.stack.decide = fail  # type: ignore[method-assign]
    job_id = rig.submit("true")
    rig.until(lambda: "a bug" in rig.controller.trouble, "the trouble")
    for one in (running, job_id):
        rig.until_state(one, State.FINISHED)
        assert rig.job(one)["attempt"] == 1
    assert not rig.controller.trouble


def test_a_job_that_keeps_failing_is_parked_with_its_last_words_and_can_be_released(rig: Rig) -> None:
    job_id = rig.submit("sh", "-c", "echo these are my last words >&2; exit 9", retries=0)
    rig.until_state(job_id, State.PARKED)
    assert rig.job(job_id)["detail"] == "these are my last words"
    rig.wish(job_id, "release")
    rig.until(lambda: rig.job(job_id)["attempt"] == 2, "another try")
    rig.until_state(job_id, State.PARKED)


def test_a_command_that_is_not_there_is_not_tried_again(rig: Rig) -> None:
    job_id = rig.submit("no-such-program-anywhere")
    rig.until_state(job_id, State.PARKED)
    assert (rig.job(job_id)["attempt"], rig.job(job_id)["reason"]) == (1, "command-not-found")


def test_hold_stops_a_running_job_and_release_lets_it_go_on(rig: Rig) -> None:
    job_id = rig.train(30, 0.2)
    rig.until(lambda: "epoch 2 of" in rig.log(job_id), "two epochs")
    rig.wish(job_id, "hold")
    rig.until_state(job_id, State.HELD)
    rig.until(lambda: rig.attempts(job_id)[0]["is_over"], "it to leave")
    assert rig.controller.driver.view.free.count == 2
    rig.wish(job_id, "release")
    rig.until_state(job_id, State.FINISHED)
    assert rig.log(job_id).count(" of 30, loss") == 30


def test_cancel_ends_a_job_wherever_it_is(rig: Rig) -> None:
    running, waiting = rig.submit("sleep", "100", gpus=2), rig.submit("sleep", "100", gpus=2)
    rig.until_state(running, State.RUNNING)
    for job_id in (waiting, running):
        rig.wish(job_id, "cancel")
        rig.until_state(job_id, State.CANCELLED)
    rig.until(lambda: not rig.job(running)["phase"], "its processes to be gone")
    assert rig.attempts(waiting) == []
