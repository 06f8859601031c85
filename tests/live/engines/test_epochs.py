"""Attempts of other epochs, and of other controllers: what a restored database finds on its nodes."""

from __future__ import annotations

import subprocess
import sys

from fairlead.live.engines.engine import NodeEvent, Poll
from fairlead.node.http import server
from fairlead.node.identity import AttemptId
from tests.live.engines.conftest import ONE, Bench, start
from tests.patience import PATIENCE_S

OLD, NEW = AttemptId(1, 1, "old"), AttemptId(1, 1, "new")
SLEEP = "import time; print('up', flush=True); time.sleep(120)"


def test_what_has_the_same_numbers_in_another_epoch_is_another_attempt(bench: Bench) -> None:
    """As after a restore: the node knows attempt 1 of job 1 of a database that went on after the backup."""
    bench.engine().start(*start(SLEEP, OLD))
    bench.said(OLD, "up")
    known: set[AttemptId] = set()
    engine = bench.engine(knows=lambda one: one in known)
    bench.until(lambda poll: poll.strays)
    poll = engine.poll()
    assert poll.attempts == {}
    assert [(one.id, one.gpus, one.is_over) for one in poll.strays] == [(OLD, (0,), False)]
    known.add(NEW)
    engine.start(*start("print('own')", NEW))
    assert bench.over(NEW).exit_code == 0
    assert engine.read_log(NEW, "stdout", 0, 100) == b"own\n"
    engine.stop(OLD, 30.0)
    bench.until(lambda poll: poll.strays[0].is_over)
    engine.forget(OLD)
    bench.until(lambda poll: not poll.strays)
    assert bench.over(NEW).exit_code == 0
    assert engine.read_log(NEW, "stdout", 0, 100) == b"own\n"


def test_what_happened_to_a_stray_is_told_of_no_job(bench: Bench) -> None:
    bench.engine().start(*start("pass", OLD))
    engine = bench.engine(knows=lambda one: one == NEW)
    events: list[NodeEvent] = []

    def has_ended(poll: Poll) -> bool:
        events.extend(poll.events)
        return any(event.what == "ended" for event in events)

    bench.until(has_ended)
    assert {event.job_id for event in events} == {None}
    assert engine.read_log(NEW, "stdout", 0, 100) == b""


def test_a_stray_on_a_node_that_went_away_is_still_told_of(bench: Bench) -> None:
    bench.engine().start(*start(SLEEP, OLD))
    engine = bench.engine(knows=lambda one: False)
    for watcher in engine._source._watchers:
        watcher.lost()
    poll = engine.poll()
    assert poll.unreachable == {0}
    assert [one.gpus for one in poll.strays if not one.is_over] == [(0,)]


def test_one_that_was_forgotten_is_told_of_again_to_a_database_that_knows_no_end(bench: Bench) -> None:
    engine = bench.engine()
    polite = "import json, os, signal, sys, time\nfile = open(os.environ['FAIRLEAD_REPORT'], 'a')\n"
    polite += "print(json.dumps({'epoch': 3, 'of': 9, 'at_s': 1.0}), file=file, flush=True)\n"
    polite += "signal.signal(15, lambda *a: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(120)"
    wanted = start(polite)
    engine.start(*wanted)
    bench.said(ONE, "up")
    engine.stop(ONE, 30.0)
    before = bench.over(ONE)
    engine.forget(ONE)
    assert not engine.poll().attempts
    bench.kill_agents()
    bench.until(lambda poll: poll.unreachable)
    bench.until(lambda poll: not poll.unreachable)
    engine.start(*wanted)
    again = bench.over(ONE)
    assert (again.exit_code, again.ended_at_s, again.progress) == (0, before.ended_at_s, before.progress)
    assert again.progress is not None
    assert again.stop_requested_at_s is not None, "it stopped since it was told to"
    assert again.stop_requested_at_s < (again.ended_at_s or 0.0)
    engine.forget(ONE)
    engine.remove(1)
    assert not list(bench.folder.glob("node-0/reports/*"))


def test_one_that_was_barred_by_another_is_told_as_never_started(bench: Bench) -> None:
    bench.engine().stop(ONE, 1.0)
    engine = bench.engine()
    assert bench.over(ONE).reason == "never-started"
    engine.forget(ONE)
    assert not engine.poll().attempts
    engine.start(*start("print('no')"))
    assert bench.over(ONE).reason == "never-started"


def test_the_highest_number_is_that_of_any_job_of_which_something_is_left(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    assert engine.highest_job_id() == 0
    engine.start(*start("pass", AttemptId(7, 1)))
    engine.start(*start("pass", AttemptId(5, 12), gpus=(2,)))
    bench.over(AttemptId(7, 1))
    engine.forget(AttemptId(7, 1))
    assert engine.highest_job_id() == 7
    engine.stop(AttemptId(9, 1), 1.0)
    assert engine.highest_job_id() == 9


def test_all_parts_of_a_job_meet_at_one_port_and_other_jobs_elsewhere(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    told = "import os, pathlib\n"
    told += f"path = pathlib.Path({str(bench.folder)!r}) / ('port' + os.environ['FAIRLEAD_JOB_ID'])\n"
    told += "path.with_suffix('.' + os.environ['NODE_RANK']).write_text(os.environ['MASTER_PORT'])"
    for job_id in (1, 2):
        engine.start(*start(told, AttemptId(job_id, 1), gpus=(0, 2)))
        engine.start(*start(told, AttemptId(job_id, 1), gpus=(0, 2)))
        bench.over(AttemptId(job_id, 1))
    ports = {path.name: path.read_text() for path in bench.folder.glob("port*")}
    assert ports["port1.0"] == ports["port1.1"] != ports["port2.0"] == ports["port2.1"]


def test_a_deleted_lock_lets_no_second_agent_in(bench: Bench) -> None:
    bench.engine()
    folder = bench.folder / "node-0"
    (folder / server.LOCK).unlink()
    line = [sys.executable, "-m", "fairlead.node.http.server", "--folder", str(folder), "--fake-gpus", "2", "--detach"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    assert server.TAKEN in done.stderr
