"""The controller's small parts: clock, database, requests, outcomes, reconciliation."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlead.errors import InputError
from fairlead.live import reconcile
from fairlead.live.clock import Clock
from fairlead.live.database import Database, StoreError
from fairlead.live.engine import AttemptState, AttemptStatus, Key, Progress
from fairlead.live.livejob import LiveJob
from fairlead.live.outcome import Verdict, back_off_s, judge
from fairlead.live.request import JobRequest
from fairlead.live.store import Attempt, Store
from tests.live.scripted import Hands, World, wait_for


class Dials:
    """Of a clock: since boot, and of the day."""

    def __init__(self) -> None:
        self.boot_s, self.wall_s = 1000.0, 1.7e9

    def clock(self, saved: Any = None, boot: str = "one") -> Clock:
        return Clock(saved, boot_s=lambda: self.boot_s, wall_s=lambda: self.wall_s, boot=boot)


def test_the_clock_does_not_follow_the_time_of_day() -> None:
    dials = Dials()
    clock = dials.clock()
    dials.boot_s += 10.0
    dials.wall_s -= 86400.0
    assert clock.now_s() == 10.0
    dials.wall_s += 10 * 86400.0
    assert clock.now_s() == 10.0


def test_the_clock_goes_on_after_a_restart_even_if_the_time_of_day_jumped() -> None:
    dials = Dials()
    clock = dials.clock()
    dials.boot_s += 10.0
    saved = clock.save()
    dials.boot_s += 5.0
    dials.wall_s -= 3600.0
    assert dials.clock(saved).now_s() == 15.0


def test_the_clock_goes_by_the_time_of_day_after_a_boot_and_never_backwards() -> None:
    dials = Dials()
    saved = dials.clock().save()
    dials.boot_s = 3.0
    dials.wall_s += 60.0
    assert dials.clock(saved, "two").now_s() == 60.0
    dials.wall_s -= 3600.0
    assert dials.clock(saved, "two").now_s() == 0.0


def test_a_moment_of_the_day_in_the_future_is_now() -> None:
    dials = Dials()
    clock = dials.clock()
    assert clock.at_s(dials.wall_s + 99.0) == clock.now_s()
    assert clock.at_s(dials.wall_s - 99.0) == clock.now_s() - 99.0


@pytest.fixture
def database(tmp_path: Path) -> Any:
    made = Database(tmp_path / "a.db", busy_s=0.2)
    yield made
    made.close()


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM facts").fetchone()[0])


def put(name: str) -> Any:
    return lambda connection: connection.execute("INSERT INTO facts VALUES (?, '1')", (name,)).rowcount


def test_writes_of_many_threads_are_all_there(database: Database) -> None:
    done: list[Future[Any]] = []
    threads = [
        threading.Thread(target=lambda t=t: done.extend(database.write(put(f"{t}.{i}")) for i in range(50)))
        for t in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.result() for one in done] == [1] * 200
    assert database.read("SELECT count(*) FROM facts")[0][0] == 200


def test_a_write_that_fails_fails_alone(database: Database) -> None:
    good, bad, later = database.write(put("a")), database.write(put("a")), database.write(put("b"))
    assert good.result() == later.result() == 1
    with pytest.raises(sqlite3.IntegrityError):
        bad.result()


def test_a_locked_database_is_an_error_and_then_works_again(database: Database, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        database.write(put("a")).result()
    assert database.read("SELECT count(*) FROM facts")[0][0] == 0
    other.execute("ROLLBACK")
    other.close()
    assert database.write(put("a")).result() == 1


def test_a_full_disk_is_an_error_and_loses_nothing(database: Database) -> None:
    database.write(put("a")).result()
    pages = database.write(lambda c: c.execute("PRAGMA page_count").fetchone()[0]).result()
    database.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone()).result()
    big = "x" * 10_000_000
    with pytest.raises(StoreError, match="full"):
        database.write(lambda c: c.execute("INSERT INTO facts VALUES ('big', ?)", (big,))).result()
    database.write(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone()).result()
    assert database.write(put("b")).result() == 1
    assert database.read("SELECT count(*) FROM facts")[0][0] == 2


def test_a_database_of_a_later_version_is_refused(tmp_path: Path) -> None:
    made = sqlite3.connect(tmp_path / "a.db")
    made.execute("PRAGMA user_version = 99")
    made.close()
    with pytest.raises(InputError, match="version 99"):
        Database(tmp_path / "a.db")


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("this is a letter to my aunt, and it is long enough to be read as a page" * 20)
    with pytest.raises(StoreError, match="not a database"):
        Database(tmp_path / "a.db")


def test_the_same_key_is_the_same_job(database: Database) -> None:
    store, wanted = Store(database), JobRequest(command=["true"])
    first = store.submit(wanted, "ann", 0.0, 0.0, "k").result()
    assert store.submit(wanted, "ann", 1.0, 1.0, "k").result() == (first[0], False)
    assert store.submit(wanted, "bob", 1.0, 1.0, "k").result()[0] != first[0]


def test_a_wish_is_not_lost_to_a_save_and_a_cancellation_stands(database: Database) -> None:
    store, wanted = Store(database), JobRequest(command=["true"])
    job_id, _ = store.submit(wanted, "ann", 0.0, 0.0).result()
    job = LiveJob(wanted.job(job_id, "ann", 0.0), wanted, 0.0)
    store.wish(job_id, "cancel").result()
    store.wish(job_id, "hold").result()
    store.save([job], wishes_done=[(job_id, "hold")]).result()
    assert store.wishes() == [(job_id, "cancel")]
    store.save([job], wishes_done=[(job_id, "cancel")]).result()
    assert store.wishes() == []


def test_a_job_is_read_as_it_was_saved(database: Database) -> None:
    store = Store(database)
    wanted = JobRequest(command=["python", "train.py"], gpus=2, min_gpus=1, max_gpus=4, deadline_s=60.0)
    job_id, _ = store.submit(wanted, "ann", 7.0, 8.0).result()
    job = LiveJob(wanted.job(job_id, "ann", 7.0), wanted, 8.0)
    job.progress = Progress(3, 9, epoch_s=0.1 + 0.2, has_finished=False)
    job.banked_gpu_s, job.starts, job.since_s, job.alone_epoch_s = 0.1 + 0.7, 2, 11.5, 3.3
    store.save([job]).result()
    (row,) = store.active()
    read = LiveJob.from_row(row)
    assert read.row() == job.row()
    assert (read.job, read.request, read.user) == (job.job, job.request, "ann")


def test_halves_of_characters_do_not_stop_a_save(database: Database) -> None:
    store, wanted = Store(database), JobRequest(command=["true"])
    job_id, _ = store.submit(wanted, "ann", 0.0, 0.0).result()
    job = LiveJob(wanted.job(job_id, "ann", 0.0), wanted, 0.0)
    job.detail = "b\udce4d"
    store.save([job]).result()
    assert store.active()[0]["detail"] == "b?d"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"command": []}, "command"),
        ({"command": [""]}, "program"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["a"], "gpus": 0}, "gpus"),
        ({"command": ["a"], "min_gpus": 4, "max_gpus": 2}, "4 to 2 GPUs"),
        ({"command": ["a"], "gpus": 9, "max_gpus": 2}, "9 asked for"),
        ({"command": ["a"], "deadline_s": float("nan")}, "deadline_s"),
        ({"command": ["a"], "priority": "urgent"}, "urgent"),
        ({"command": ["a"], "slo_s": 0.1}, "services"),
        ({"command": ["a"], "kind": "service", "gpus": 2}, "one GPU"),
        ({"command": ["a"], "cwd": "here"}, "absolute"),
        ({"command": ["a"], "name": "a\nb"}, "printed"),
        ({"command": ["a"], "env": {"A B": "1"}}, "no name of a variable"),
        ({"command": ["a"], "env": {"FAIRLEAD_X": "1"}}, "set by the scheduler"),
        ({"command": ["a"], "gpu": 3}, "gpu"),
        ({"command": ["a" * 200_000]}, "command"),
    ],
)
def test_a_request_that_cannot_be_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        JobRequest(**values)


def test_bounds_alone_make_a_job_elastic() -> None:
    job = JobRequest(command=["a"], min_gpus=2, max_gpus=8, priority="high").job(1, "ann", 0.0)  # type: ignore[arg-type]
    assert (job.min_gpus, job.gpus, job.max_gpus, job.priority) == (2, 2, 8, 1)


ENDED = AttemptStatus(1, 1, AttemptState.ENDED, exit_code=0, reason="exited", ended_at_s=100.0)
THROUGH = Progress(9, 9, has_finished=True)
STAYING = Attempt(1, 1, (0,), shared=False, sm_share=1.0)
LEAVING = replace(STAYING, stopping="resized")


@pytest.mark.parametrize(
    ("attempt", "status", "verdict"),
    [
        (STAYING, ENDED, Verdict.FINISHED),
        (STAYING, replace(ENDED, exit_code=1), Verdict.FAILED),
        (LEAVING, replace(ENDED, exit_code=143, stop_requested_at_s=90.0), Verdict.LEFT),
        (LEAVING, replace(ENDED, stop_requested_at_s=90.0), Verdict.LEFT),
        (LEAVING, replace(ENDED, stop_requested_at_s=101.0), Verdict.FINISHED),
        (LEAVING, replace(ENDED, stop_requested_at_s=90.0, progress=THROUGH), Verdict.FINISHED),
        (STAYING, replace(ENDED, exit_code=143, evicted="overlimit", stop_requested_at_s=90.0), Verdict.RETURNED),
        (STAYING, replace(ENDED, evicted="overlimit", stop_requested_at_s=90.0), Verdict.RETURNED),
        (STAYING, replace(ENDED, state=AttemptState.LOST, exit_code=None), Verdict.FAILED),
        (LEAVING, replace(ENDED, state=AttemptState.LOST, exit_code=None), Verdict.LEFT),
    ],
)  # fmt: skip
def test_what_the_end_of_an_attempt_means(attempt: Attempt, status: AttemptStatus, verdict: Verdict) -> None:
    assert judge(attempt, status).verdict is verdict


def test_a_job_that_keeps_failing_waits_longer_each_time_up_to_a_limit() -> None:
    assert [back_off_s(n) for n in (1, 2, 3, 30)] == [10.0, 20.0, 40.0, 600.0]


class Machine:
    """Jobs and attempts at random, driven by `reconcile` alone; checks that nothing runs where it must not."""

    def __init__(self) -> None:
        self.jobs: dict[int, LiveJob] = {}
        self.attempts: dict[Key, Attempt] = {}

    def want(self, job_id: int, gpus: tuple[int, ...], shared: bool) -> None:
        wanted = JobRequest(command=["a"])
        job = self.jobs.setdefault(job_id, LiveJob(wanted.job(job_id, "", 0.0), wanted, 0.0))
        for other in self.jobs.values():  # the laws of plans
            if other is not job and set(other.gpus) & set(gpus) and not (shared and other.shared):
                other.gpus = ()
        job.gpus, job.shared = gpus, shared

    def reconcile(self) -> None:
        found = reconcile.steps([j for j in self.jobs.values() if j.gpus], self.attempts, self.jobs)
        for attempt in found.leave:
            attempt.stopping = "told"
        for job in found.begin:
            job.attempt += 1
            made = Attempt(job.job.id, job.attempt, job.gpus, job.shared, 1.0)
            self.attempts[made.key] = made
        self.check()

    def check(self) -> None:
        owners = [key[0] for key in self.attempts]
        assert len(owners) == len(set(owners)), "a job runs twice"
        for a in self.attempts.values():
            for b in self.attempts.values():
                if a.key < b.key and set(a.gpus) & set(b.gpus):
                    assert (a.shared, b.shared) == (True, True), "two on a GPU that is not shared"


PLACES = st.tuples(
    st.integers(0, 4), st.sets(st.integers(0, 3), max_size=2).map(lambda s: tuple(sorted(s))), st.booleans()
)


@given(st.lists(st.one_of(PLACES, st.integers(0, 9)), max_size=60))
def test_whatever_is_wanted_and_whoever_leaves_late_nothing_runs_twice(story: list[Any]) -> None:
    machine = Machine()
    for what in story:
        if isinstance(what, tuple):
            machine.want(*what)
        elif machine.attempts:
            attempt = list(machine.attempts.values())[what % len(machine.attempts)]
            if attempt.stopping:  # at last it has left
                del machine.attempts[attempt.key]
        machine.reconcile()
    for attempt in list(machine.attempts.values()):
        if attempt.stopping:
            del machine.attempts[attempt.key]
    machine.reconcile()
    running = {a.job_id: (a.gpus, a.shared) for a in machine.attempts.values()}
    assert running == {n: (j.gpus, j.shared) for n, j in machine.jobs.items() if j.gpus}, "in the end all is as wanted"


def test_logs_of_jobs_that_ended_long_ago_are_deleted_once(world: World, hands: Hands) -> None:
    job_id = world.submit()
    world.settle()
    world.engine.end((job_id, 1))
    world.settle()
    assert world.state(job_id) == "finished"
    hands.now_s += 29 * 86400.0
    world.settle()
    assert world.engine.removed == []
    hands.now_s += 2 * 86400.0
    world.settle()
    wait_for(lambda: not world.store.with_old_logs(1e12, 9))
    hands.now_s += 86400.0
    world.settle()
    assert world.engine.removed == [job_id]
