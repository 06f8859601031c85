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
from fairlead.live.control import reconcile
from fairlead.live.control.clock import Clock
from fairlead.live.control.snapshots import snapshot
from fairlead.live.engines.engine import AttemptState, AttemptStatus, NodeEvent, Progress, StoppedBy
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.outcome import Verdict, back_off_s, judge
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.database import Database, StoreError
from fairlead.live.storage.store import Attempt, Store
from fairlead.model.catalogue import Catalogue
from fairlead.model.profile import Profile
from fairlead.model.snapshot import Snapshot
from fairlead.node.identity import AttemptId
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


def test_a_boot_with_a_wrong_time_of_day_moves_the_clock_by_a_day_at_most() -> None:
    dials = Dials()
    saved = dials.clock().save()
    dials.boot_s = 3.0
    dials.wall_s += 40 * 86400.0
    assert dials.clock(saved, "two").now_s() == 86400.0


def test_the_age_of_logs_is_counted_without_the_time_of_day() -> None:
    dials = Dials()
    clock = dials.clock()
    dials.boot_s += 10.0
    dials.wall_s += 40 * 86400.0
    assert clock.up_s() == 10.0
    saved = clock.save()
    dials.boot_s += 5.0
    assert dials.clock(saved).up_s() == 15.0
    dials.boot_s = 3.0
    assert dials.clock(saved, "two").up_s() == 13.0, "what was before this boot, and since it"


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


ENDED = AttemptStatus(AttemptId(1, 1), AttemptState.ENDED, exit_code=0, reason="exited", ended_at_s=100.0)
OURS, MACHINE, SIGNAL = StoppedBy.FAIRLEAD, StoppedBy.MACHINE, StoppedBy.SIGNAL
STOPPED = replace(ENDED, stop_requested_at_s=90.0, stopped_by=OURS)
THROUGH = Progress(9, 9, has_finished=True)
HALF = Progress(4, 9)
STAYING = Attempt(AttemptId(1, 1), (0,), shared=False, sm_share=1.0)
LEAVING = replace(STAYING, stopping="resized")


@pytest.mark.parametrize(
    ("attempt", "status", "verdict"),
    [
        (STAYING, ENDED, Verdict.FINISHED),
        (STAYING, replace(ENDED, exit_code=1), Verdict.FAILED),
        (STAYING, replace(ENDED, progress=Progress(9, 9)), Verdict.FINISHED),
        (STAYING, replace(ENDED, progress=HALF), Verdict.ENDED_EARLY),
        (STAYING, replace(ENDED, progress=replace(HALF, has_finished=True)), Verdict.FINISHED),
        (STAYING, replace(ENDED, exit_code=1, progress=replace(HALF, has_finished=True)), Verdict.FAILED),
        (LEAVING, replace(STOPPED, exit_code=143), Verdict.STOPPED),
        (LEAVING, STOPPED, Verdict.STOPPED),
        (LEAVING, replace(STOPPED, ended_at_s=80.0), Verdict.STOPPED),  # whatever the clocks say
        (LEAVING, replace(ENDED, stop_requested_at_s=90.0), Verdict.FINISHED),  # it was through before
        (LEAVING, replace(ENDED, stop_requested_at_s=90.0, progress=HALF), Verdict.STOPPED),
        (LEAVING, replace(STOPPED, progress=THROUGH), Verdict.FINISHED),
        (STAYING, replace(STOPPED, exit_code=143, evicted="overlimit"), Verdict.RETURNED),
        (STAYING, replace(STOPPED, evicted="overlimit"), Verdict.RETURNED),
        (STAYING, STOPPED, Verdict.RETURNED),
        (STAYING, replace(STOPPED, exit_code=137), Verdict.RETURNED),
        (STAYING, replace(STOPPED, progress=THROUGH), Verdict.FINISHED),
        (STAYING, replace(ENDED, stopped_by=SIGNAL), Verdict.INTERRUPTED),
        (STAYING, replace(ENDED, stopped_by=SIGNAL, exit_code=143), Verdict.INTERRUPTED),
        (STAYING, replace(ENDED, stopped_by=SIGNAL, progress=THROUGH), Verdict.FINISHED),
        (STAYING, replace(ENDED, stopped_by=MACHINE, exit_code=1), Verdict.INTERRUPTED),
        (STAYING, replace(ENDED, stopped_by=MACHINE, state=AttemptState.LOST, exit_code=None), Verdict.INTERRUPTED),
        (LEAVING, replace(ENDED, stopped_by=MACHINE, state=AttemptState.LOST, exit_code=None), Verdict.STOPPED),
    ],
)  # fmt: skip
def test_what_the_end_of_an_attempt_means(attempt: Attempt, status: AttemptStatus, verdict: Verdict) -> None:
    assert judge(attempt, status).verdict is verdict


def test_who_is_stopped_whenever_it_starts_is_waited_for_and_never_given_up(world: World, hands: Hands) -> None:
    job_id = world.submit(retries=0)
    for attempt in range(1, 8):
        world.settle()
        assert world.state(job_id) == ("running" if attempt <= 3 else "backing-off")
        hands.now_s += 600.0
        world.settle()
        world.engine.end((job_id, attempt), 143, "signalled", SIGNAL)
    world.settle()
    row = world.store.job_row(job_id)
    assert row is not None
    assert (row["state"], row["failures"], row["due_s"] - hands.now_s) == ("backing-off", 0, 160.0)
    hands.now_s += 600.0
    world.settle()
    world.engine.report((job_id, 8), Progress(1, 9))
    world.settle()
    world.engine.end((job_id, 8), 143, "signalled", SIGNAL)
    world.settle()
    assert world.state(job_id) == "running", "who gets on is not kept waiting"


def test_who_ends_early_twice_without_getting_on_has_ended(world: World) -> None:
    job_id = world.submit(retries=0)
    for attempt, epochs in enumerate((2, 4, 4), start=1):
        world.settle()
        assert world.state(job_id) == "running"
        world.engine.report((job_id, attempt), Progress(epochs, 9))
        world.engine.end((job_id, attempt), 0)
    world.settle()
    row = world.store.job_row(job_id)
    assert row is not None
    assert (row["state"], row["exit_code"], row["attempt"]) == ("finished", 0, 3)
    assert [a.reason for a in world.store.attempts_of(job_id)] == ["ended-early"] * 3


def test_one_that_resumes_and_ends_before_its_next_report_is_held_to_its_earlier_word(world: World) -> None:
    job_id = world.submit()
    world.settle()
    world.engine.report((job_id, 1), Progress(4, 9))
    world.engine.end((job_id, 1), 0, stopped_by=SIGNAL)
    world.settle()
    world.engine.end((job_id, 2), 0)
    world.settle()
    assert world.state(job_id) == "running"


def test_a_service_comes_back_unless_it_says_that_it_is_through(world: World) -> None:
    serving, ended = world.submit(kind="service"), world.submit(kind="service")
    world.settle()
    world.engine.end((serving, 1), 0, ran_s=3600.0)
    world.engine.report((ended, 1), Progress(has_finished=True))
    world.engine.end((ended, 1), 0, ran_s=3600.0)
    world.settle()
    assert (world.state(serving), world.state(ended)) == ("running", "finished")
    world.engine.end((serving, 2), 0, ran_s=3600.0)
    world.settle()
    assert world.state(serving) == "running"
    for attempt in (3, 4):
        world.engine.end((serving, attempt), 0, ran_s=1.0)
        world.settle()
    assert world.state(serving) == "finished", "it ends whenever it starts"


def test_a_job_is_cancelled_with_the_grace_that_it_was_submitted_with(world: World) -> None:
    job_id = world.submit(grace_s=300.0)
    world.settle()
    world.wish(job_id, "cancel")
    world.settle()
    assert world.engine.orders[job_id, 1].grace_s == 300.0
    assert world.engine.graces == [None], "its own"


def test_what_failed_an_hour_ago_by_a_clock_that_was_set_is_not_forgiven(world: World) -> None:
    job_id = world.submit(retries=1)
    world.settle()
    for attempt in (1, 2):
        world.engine._set((job_id, attempt), started_at_s=0.0)
        world.engine.end((job_id, attempt), 1, ran_s=1.0)
        world.settle()
        world.step(700.0)
        world.settle()
    assert world.state(job_id) == "parked"


def test_events_are_told_once_also_where_the_controller_begins_anew(make_world: Any, hands: Hands) -> None:
    world = make_world(hands=hands)
    for number in (1001, 1002):
        world.engine.happen(NodeEvent(number, 0, 1.0, f"e{number}", event_log="a"))
    world.settle()
    world.close()
    again = make_world(hands=hands, engine=world.engine)
    again.engine.happen(NodeEvent(1003, 0, 1.0, "e1003", event_log="a"))
    again.settle()
    again.engine.happen(NodeEvent(7, 0, 1.0, "e7", event_log="b"))  # the node has lost its folder
    again.settle()
    rows = again.database.read("SELECT what FROM events WHERE what LIKE 'e%' ORDER BY id")
    assert [row["what"] for row in rows] == ["e1001", "e1002", "e1003", "e7"]


def test_events_that_could_not_be_saved_are_told_again(make_world: Any, hands: Hands) -> None:
    world = make_world(hands=hands)
    world.settle()
    world.engine.happen(NodeEvent(1001, 0, 1.0, "seen", event_log="a"))
    world.controller.work.recovery.save = lambda every_s: 1 / 0
    world.controller.turn()
    assert "ZeroDivisionError" in world.controller.trouble
    world.controller.turn()
    assert len(world.database.read("SELECT * FROM events WHERE what = 'seen'")) == 1


def test_a_job_that_keeps_failing_waits_longer_each_time_up_to_a_limit() -> None:
    assert [back_off_s(n) for n in (1, 2, 3, 30)] == [10.0, 20.0, 40.0, 600.0]


def test_gpus_of_a_part_that_has_left_are_given_on_while_another_does_not_answer(make_world: Any) -> None:
    world = make_world(cluster="2x1")
    both = world.submit(gpus=2)
    world.settle()
    world.engine.stubborn = True
    world.wish(both, "cancel")
    one, other = world.submit(), world.submit()
    world.settle()
    assert world.engine.running == {(both, 1)}, "they wait for it to leave"
    world.engine._set((both, 1), ended_nodes=frozenset({0}))
    world.controller._engine_called()
    world.settle()
    assert world.engine.running == {(both, 1), (one, 1)}
    world.engine.end((both, 1), 143, "signalled")
    world.settle()
    assert world.engine.running == {(one, 1), (other, 1)}


class Machine:
    """Jobs and attempts at random, driven by `reconcile` alone; checks that nothing runs where it must not."""

    def __init__(self) -> None:
        self.jobs: dict[int, LiveJob] = {}
        self.attempts: dict[AttemptId, Attempt] = {}

    def want(self, job_id: int, gpus: tuple[int, ...], shared: bool) -> None:
        wanted = JobRequest(command=["a"])
        job = self.jobs.setdefault(job_id, LiveJob(wanted.job(job_id, "", 0.0), wanted, 0.0))
        for other in self.jobs.values():  # the laws of plans
            if other is not job and set(other.gpus) & set(gpus) and not (shared and other.shared):
                other.gpus = ()
        job.gpus, job.shared = gpus, shared

    def reconcile(self) -> None:
        found = reconcile.steps([j for j in self.jobs.values() if j.gpus], self.attempts, self.jobs)
        for attempt in found.stop:
            attempt.stopping = "told"
        for job in found.begin:
            job.attempt = AttemptId(job.job.id, job.attempt.attempt + 1)
            self.attempts[job.attempt] = Attempt(job.attempt, job.gpus, job.shared, 1.0)
        self.check()

    def check(self) -> None:
        owners = [attempt.job_id for attempt in self.attempts]
        assert len(owners) == len(set(owners)), "a job runs twice"
        for a in self.attempts.values():
            for b in self.attempts.values():
                if a.id < b.id and set(a.gpus) & set(b.gpus):
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
                del machine.attempts[attempt.id]
        machine.reconcile()
    for attempt in list(machine.attempts.values()):
        if attempt.stopping:
            del machine.attempts[attempt.id]
    machine.reconcile()
    running = {a.id.job_id: (a.gpus, a.shared) for a in machine.attempts.values()}
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
    hands.wall_s += 40 * 86400.0  # somebody sets the time of day, and sets it back
    hands.now_s += 60.0
    world.settle()
    assert world.engine.removed == []
    hands.wall_s -= 40 * 86400.0
    hands.now_s += 2 * 86400.0
    world.settle()
    wait_for(lambda: not world.store.with_old_logs(1e12, 9))
    hands.now_s += 86400.0
    world.settle()
    assert world.engine.removed == [job_id]


def test_a_snapshot_carries_the_profiles_that_the_operator_has_declared(make_world: Any) -> None:
    world = make_world(catalogue=Catalogue([Profile("my-net", memory_mib=5.0)]))
    world.submit(profile="my-net")
    world.step()
    taken = Snapshot.from_dict(snapshot(world.controller).to_dict())
    assert taken.profile("my-net").memory_mib == 5.0  # elsewhere nobody has heard of it
