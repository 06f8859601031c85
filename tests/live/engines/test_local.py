"""The local engine with real agents and real jobs; only the GPUs are made up."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.live.engines.engine import AttemptState, Engine, EngineError
from fairlead.live.engines.local import LocalEngine
from fairlead.live.engines.local_nodes import model_of
from fairlead.node.gpu.meter import GpuInfo
from fairlead.node.identity import AttemptId
from fairlead.node.process.processes import processes
from tests.live.engines.conftest import ONE, TWO, Bench, Start, start
from tests.live.rig import agents_in

SLEEP = "import time; print('up', flush=True); time.sleep(120)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(120)"
LATE = "import fairlead.job as job, time\nprint('up')\nwhile True: job.latency(0.5); time.sleep(0.02)"
QUICK_GUARD = {
    "sample_s": 0.2, "window_s": 0.5, "gap_s": 0.5, "slo_windows": 2, "init_s": 0.5, "hold_s": 60.0,
    "eviction": {"freeze_s": 0.0, "term_grace_s": 5.0},
}  # fmt: skip


def test_what_a_job_wrote_and_how_it_ended_is_told(bench: Bench) -> None:
    engine: Engine = bench.engine()
    assert engine.is_fake
    assert engine.cluster.gpus == 2
    engine.start(*start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)", gpus=(0, 1)))
    done = bench.over(ONE)
    assert (done.state, done.exit_code, done.reason) == (AttemptState.ENDED, 7, "exited")
    assert done.stop_requested_at_s is None
    assert done.started_at_s is not None
    assert done.ended_at_s is not None
    assert done.energy_j is not None
    assert engine.read_log(ONE, "stdout", 0, 100) == b"out\n"
    assert engine.read_log(ONE, "stderr", 1, 2) == b"rr"
    assert engine.read_log(ONE, "stdout", 4, 100) == b""
    assert engine.read_log(AttemptId(9, 9), "stdout", 0, 100) == b""


def test_a_command_that_cannot_be_started_has_ended_with_a_reason(bench: Bench) -> None:
    bench.engine().start(*start("", argv=("no-such-command",)))
    done = bench.over(ONE)
    assert (done.exit_code, done.reason) == (127, "command-not-found")


def test_an_attempt_is_started_once_however_often_and_by_whom_it_is_asked_for(bench: Bench) -> None:
    engine = bench.engine()
    mark = bench.folder / "mark"
    wanted = start(f"open({str(mark)!r}, 'a').write('x'); import time; time.sleep(0.3)")
    threads = [threading.Thread(target=engine.start, args=wanted) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.over(ONE)
    engine.start(*wanted)
    engine.forget(ONE)
    assert ONE not in engine.poll().attempts
    engine.start(*wanted)  # by a database that does not know the end: it is told of again, and not started
    assert bench.over(ONE).exit_code == 0
    assert mark.read_text() == "x"
    engine.start(*start(f"open({str(mark)!r}, 'a').write('y')", AttemptId(1, 2)))
    bench.over(AttemptId(1, 2))
    assert mark.read_text() == "xy"


def test_one_that_is_stopped_before_it_came_never_starts(bench: Bench) -> None:
    engine = bench.engine()
    mark = bench.folder / "mark"
    engine.stop(ONE, 1.0)
    assert engine.poll().attempts[ONE].reason == "never-started"
    engine.start(*start(f"open({str(mark)!r}, 'a').write('x')"))
    assert bench.over(ONE).reason == "never-started"
    engine.forget(ONE)
    assert not engine.poll().attempts
    engine.start(*start(f"open({str(mark)!r}, 'a').write('x')"))
    engine.start(*start("pass", AttemptId(1, 2)))
    bench.over(AttemptId(1, 2))
    assert not mark.exists()


def test_forgotten_logs_stay_until_they_are_removed(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start("print('hello')"))
    engine.start(*start(SLEEP, TWO))
    with pytest.raises(EngineError, match="not over"):
        engine.forget(TWO)
    bench.over(ONE)
    engine.forget(ONE)
    engine.forget(ONE)
    assert engine.read_log(ONE, "stdout", 0, 100) == b"hello\n"
    engine.remove(1)
    engine.remove(1)
    assert engine.read_log(ONE, "stdout", 0, 100) == b""


def test_a_polite_job_is_asked_to_leave_and_told_so(bench: Bench) -> None:
    engine = bench.engine()
    program = (
        "import os, signal, sys, time\n"
        "def go(*a): print('file', os.path.exists(os.environ['FAIRLEAD_STOP'])); sys.exit(3)\n"
        "signal.signal(15, go)\nprint('up', os.path.exists(os.environ['FAIRLEAD_STOP']))\ntime.sleep(120)"
    )
    engine.start(*start(program))
    bench.said(ONE, "up")
    engine.stop(ONE, 60.0)
    engine.stop(ONE, 60.0)
    done = bench.over(ONE)
    assert done.exit_code == 3
    assert done.stop_requested_at_s is not None
    assert done.evicted == ""
    assert engine.read_log(ONE, "stdout", 0, 100) == b"up False\nfile True\n"
    engine.stop(ONE, 60.0)
    engine.stop(AttemptId(5, 5), 60.0)


def test_a_stubborn_job_is_killed_after_its_grace_and_a_shorter_grace_counts(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start(STUBBORN))
    bench.said(ONE, "up")
    engine.stop(ONE, 600.0)
    engine.stop(ONE, 0.0)
    done = bench.over(ONE)
    assert (done.exit_code, done.reason) == (137, "signalled")


def test_a_stubborn_job_has_its_own_grace_unless_told_otherwise(bench: Bench) -> None:
    engine = bench.engine(guard={"eviction": {"term_grace_s": 3600.0}})
    engine.start(*start(STUBBORN, grace_s=0.3))
    bench.said(ONE, "up")
    engine.stop(ONE)
    assert bench.over(ONE).stopped_by == "fairlead"


def test_an_evicted_job_has_its_own_grace(bench: Bench) -> None:
    hasty = {**QUICK_GUARD, "eviction": {"freeze_s": 0.0, "term_grace_s": 0.1, "client_grace_s": 0.1}}
    engine = bench.engine(guard=hasty)
    slow = "import signal, sys, time\ndef go(*a): time.sleep(1.5); print('saved', flush=True); sys.exit(0)\n"
    slow += "signal.signal(15, go); print('up', flush=True); time.sleep(120)"
    engine.start(*start(LATE, ONE, kind="service", slo_s=0.1, shared=True, activity_frac=0.2, memory_mib=1000.0))
    engine.start(*start(slow, TWO, shared=True, activity_frac=0.3, memory_mib=2000.0, grace_s=60.0))
    done = bench.over(TWO)
    assert (done.exit_code, done.evicted, done.stopped_by) == (0, "overlimit", "fairlead")
    assert b"saved" in engine.read_log(TWO, "stdout", 0, 100)


def test_an_agent_that_comes_back_does_not_ask_twice(bench: Bench) -> None:
    engine = bench.engine()
    program = (
        "import signal, time\nasked = []\nsignal.signal(15, lambda *a: (asked.append(1), print('asked', flush=True)))\n"
        "print('up', flush=True)\nuntil = time.monotonic() + 60\n"
        f"import os\nwhile not os.path.exists({str(bench.folder / 'go')!r}): time.sleep(0.02)\nexit(len(asked))"
    )
    engine.start(*start(program, grace_s=60.0))
    bench.said(ONE, "up")
    engine.stop(ONE)
    bench.said(ONE, "asked")
    (before,) = bench.agent_pids()
    bench.kill_agents()
    bench.until(lambda poll: not poll.unreachable and bench.agent_pids() not in ([], [before]))
    bench.until(lambda poll: any(event.what == "sigterm" for event in poll.events))
    (bench.folder / "go").touch()
    done = bench.over(ONE)
    assert (done.exit_code, done.stopped_by) == (1, "fairlead")


def test_one_that_was_through_before_it_was_stopped_ended_by_itself(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start("pass"))
    bench.over(ONE)
    engine.stop(ONE, 30.0)
    done = engine.poll().attempts[ONE]
    assert (done.exit_code, done.stopped_by) == (0, "")
    assert done.ran_s is not None


def test_what_a_job_reports_is_told(bench: Bench) -> None:
    engine = bench.engine()
    program = (
        "import json, os, time\nfile = open(os.environ['FAIRLEAD_REPORT'], 'a')\n"
        "for i in (1, 2): print(json.dumps({'epoch': i, 'of': 9, 'at_s': 10.0 * i}), file=file, flush=True)\n"
        'print(\'{"epoch": 3, "at_s\', file=file, flush=True)\n'
        "print('up'); time.sleep(120)"
    )
    engine.start(*start(program))
    poll = bench.until(lambda poll: poll.attempts[ONE].progress)
    found = poll.attempts[ONE].progress
    assert found is not None
    assert (found.epochs_done, found.epochs, found.epoch_s, found.at_s) == (2, 9, 10.0, 20.0)
    (path,) = bench.folder.glob("node-0/reports/*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o711


def test_the_last_words_of_a_job_are_told_with_its_end(bench: Bench) -> None:
    engine = bench.engine()
    program = "import os; open(os.environ['FAIRLEAD_REPORT'], 'a').write('{\"finished\": true, \"at_s\": 5.0}\\n')"
    engine.start(*start(program))
    done = bench.over(ONE)
    assert done.progress is not None
    assert done.progress.has_finished


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_job_of_another_user_can_report_and_nobody_else_can(bench: Bench) -> None:
    engine = bench.engine()
    bench.folder.chmod(0o755)
    program = "echo '{\"finished\": true}' >> $FAIRLEAD_REPORT"
    engine.start(*start("", argv=("/bin/sh", "-c", program), user="nobody"))
    done = bench.over(ONE)
    assert done.exit_code == 0, engine.read_log(ONE, "stderr", 0, 1000)
    assert done.progress is not None


def test_the_environment_is_ours_where_it_must_be_and_the_users_elsewhere(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start("import json, os; print(json.dumps(dict(os.environ)))", AttemptId(17, 2), (0, 1),
                       env={"MINE": "1", "FAIRLEAD_JOB_ID": "x", "NODE_RANK": "9"}))  # fmt: skip
    bench.over(AttemptId(17, 2))
    env = json.loads(engine.read_log(AttemptId(17, 2), "stdout", 0, 100_000))
    assert env["MINE"] == "1"
    assert (env["FAIRLEAD_JOB_ID"], env["FAIRLEAD_ATTEMPT"], env["FAIRLEAD_FAKE"]) == ("17", "2", "1")
    assert env["FAIRLEAD_GPUS"] == "FAKE-GPU-0000,FAKE-GPU-0001"
    assert (env["NODE_RANK"], env["PET_NPROC_PER_NODE"], env["FAIRLEAD_NUM_GPUS"]) == ("0", "2", "2")
    assert env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_killed_agent_comes_back_to_its_jobs_and_nothing_is_lost_or_doubled(bench: Bench) -> None:
    engine = bench.engine()
    mark = bench.folder / "mark"
    program = f"open({str(mark)!r}, 'a').write('x'); import time; print('up', flush=True); time.sleep(2); exit(5)"
    engine.start(*start(program))
    engine.start(*start(STUBBORN, TWO, (1,)))
    bench.said(ONE, "up")
    bench.said(TWO, "up")
    engine.stop(TWO, 1.0)
    (before,) = bench.agent_pids()
    bench.kill_agents()
    bench.until(lambda poll: poll.unreachable == {0} or bench.agent_pids() not in ([], [before]))
    poll = bench.until(lambda poll: not poll.unreachable and bench.agent_pids() != [before])
    assert {ONE, TWO} <= poll.attempts.keys()
    engine.start(*start(program))
    done = bench.over(ONE)
    assert (done.state, done.exit_code) == (AttemptState.ENDED, 5)
    stopped = bench.over(TWO)
    assert stopped.exit_code == 137, "an agent that comes back goes on stopping"
    assert stopped.stop_requested_at_s is not None
    assert mark.read_text() == "x"


def test_agents_that_are_killed_again_and_again_lose_no_job_and_start_none_twice(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    marks = bench.folder / "marks"
    marks.mkdir()
    codes = {number: number % 3 for number in range(1, 11)}
    for number, code in codes.items():
        line = f"echo x >> {marks}/{number}.$NODE_RANK; sleep 0.{number % 7}; exit {code}"
        gpus = (0, 2) if number % 4 == 0 else (number % 4,)
        wanted = start("", AttemptId(number, 1), gpus, argv=("/bin/sh", "-c", line))
        _start_at_last(bench, engine, wanted)
        if number % 3 == 0:
            bench.kill_agents()
    for number, code in codes.items():
        done = bench.over(AttemptId(number, 1))
        assert (done.state, done.exit_code) == (AttemptState.ENDED, code)
    assert {path.read_text() for path in marks.iterdir()} == {"x\n"}
    assert len(list(marks.iterdir())) == 12


def test_jobs_and_agents_outlive_the_engine_and_are_found_again(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start(SLEEP))
    bench.said(ONE, "up")
    pids = bench.agent_pids()
    engine.close()
    again = bench.engine()
    assert bench.agent_pids() == pids
    assert again.poll().attempts[ONE].state is AttemptState.RUNNING
    with pytest.raises(InputError, match="1 jobs still run"):
        again.shutdown()
    again.shutdown(kill_jobs=True)
    assert bench.agent_pids() == []
    assert not [one for one in processes() if _is_ours(one.pid, bench.folder)]


def _is_ours(pid: int, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_event_numbers_rise_over_restarts_of_the_agent(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start("pass"))
    events = list(bench.until(lambda poll: any(event.what == "ended" for event in poll.events)).events)
    assert [event.job_id for event in events if event.what == "ended"] == [1]
    bench.kill_agents()
    bench.until(lambda poll: not poll.unreachable)
    _start_at_last(bench, engine, start("pass", TWO))
    later = bench.until(lambda poll: any(event.what == "ended" for event in poll.events)).events
    assert min(event.number for event in later) > max(event.number for event in events)


def _start_at_last(bench: Bench, engine: LocalEngine, wanted: Start) -> None:
    bench.until(lambda poll: _try_start(engine, wanted))


def _try_start(engine: LocalEngine, wanted: Start) -> bool:
    try:
        engine.start(*wanted)
    except EngineError:
        return False
    return True


def test_an_agent_of_other_settings_is_replaced_and_its_jobs_go_on(bench: Bench) -> None:
    engine = bench.engine(wake_s=1.0)
    engine.start(*start(SLEEP))
    bench.said(ONE, "up")
    (before,) = bench.agent_pids()
    engine.close()
    again = bench.engine(wake_s=2.0)
    assert bench.agent_pids() != [before]
    assert again.poll().attempts[ONE].state is AttemptState.RUNNING
    again.close()
    with pytest.raises(InputError, match="1 running jobs on 2 GPUs"):
        bench.engine(fake_gpus=4)


def test_parts_on_two_nodes_are_one_attempt(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    assert engine.cluster.gpus == 4
    engine.start(*start("import os; print(os.environ['NODE_RANK'], os.environ['NNODES'])", gpus=(1, 2, 3)))
    done = bench.over(ONE)
    assert (done.exit_code, done.reason) == (0, "exited")
    assert engine.read_log(ONE, "stdout", 0, 100) == b"0 2\n"
    assert {event.node for event in engine.poll().events} <= {0, 1}


def test_when_one_part_fails_the_others_are_stopped_and_its_code_counts(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    program = "import os, time\nif os.environ['NODE_RANK'] == '1': raise SystemExit(5)\ntime.sleep(120)"
    engine.start(*start(program, gpus=(0, 2)))
    done = bench.over(ONE)
    assert (done.state, done.exit_code) == (AttemptState.ENDED, 5)
    assert done.stop_requested_at_s is None, "nobody asked the one that failed"


def test_a_start_that_reached_some_nodes_is_completed_when_repeated(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    wanted = start("import time; print('up', flush=True); time.sleep(120)", gpus=(0, 2))
    engine._post(0, "start", engine._part(*wanted, [0, 1], 0).to_dict())
    assert engine.poll().attempts[ONE].state is AttemptState.STARTING
    engine.start(*wanted)
    assert engine.poll().attempts[ONE].state is AttemptState.RUNNING
    engine.stop(ONE, 30.0)
    assert bench.over(ONE).stop_requested_at_s is not None


def test_a_part_that_never_started_is_not_waited_for_once_the_rest_was_stopped(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    wanted = start(SLEEP, gpus=(0, 2))
    engine._post(0, "start", engine._part(*wanted, [0, 1], 0).to_dict())
    engine.stop(ONE, 30.0)
    bench.over(ONE)
    engine.start(*wanted)
    assert engine.poll().attempts[ONE].is_over
    engine.forget(ONE)
    assert not engine.poll().attempts


def test_a_part_that_will_never_come_is_not_waited_for_even_where_the_rest_ended_by_itself(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    wanted = start("pass", gpus=(0, 2))
    engine._post(0, "start", engine._part(*wanted, [0, 1], 0).to_dict())  # node 1 has never heard of it
    bench.until(lambda poll: any(event.what == "ended" for event in poll.events))
    assert engine.poll().attempts[ONE].state is AttemptState.STARTING
    engine.stop(ONE, gpus=(0, 2))
    assert bench.over(ONE).stopped_by == "fairlead", "half of it did nothing"
    bench.kill_agents()
    assert bench.over(ONE).is_over, "agents that come back know it still"
    bench.until(lambda poll: not poll.unreachable)
    engine.forget(ONE)
    assert not engine.poll().attempts
    engine.start(*wanted)
    again = engine.poll().attempts[ONE]
    assert (again.is_over, again.stopped_by) == (True, "fairlead"), "it never starts, however late its order"


def test_a_part_that_somebody_signals_takes_the_others_with_it(bench: Bench) -> None:
    """It leaves with status 0, as trainings do that were asked to; the others would wait for it for ever."""
    engine = bench.engine(fake_nodes=2)
    listens = "import fairlead.job as job, os, time\njob.should_stop()\nprint(os.getpid(), flush=True)"
    listens += f"\nopen({str(bench.folder)!r} + '/up' + os.environ['NODE_RANK'], 'w').close()"
    engine.start(*start(f"{listens}\nwhile not job.should_stop(): time.sleep(0.01)", gpus=(0, 2)))
    bench.until(lambda poll: len(list(bench.folder.glob("up?"))) == 2)
    os.kill(int(engine.read_log(ONE, "stdout", 0, 100)), signal.SIGTERM)
    done = bench.over(ONE)
    assert (done.exit_code, done.stopped_by) == (0, "signal")


def test_a_part_that_has_not_come_must_not_once_the_rest_has_gone(bench: Bench) -> None:
    engine, mark = bench.engine(fake_nodes=2), bench.folder / "mark"
    wanted = start(
        f"import os; open({str(mark)!r}, 'a').write(os.environ['NODE_RANK']); raise SystemExit(3)", gpus=(0, 2)
    )
    engine._post(0, "start", engine._part(*wanted, [0, 1], 0).to_dict())
    bench.until(lambda poll: any(event.what == "ended" for event in poll.events))
    assert not engine.poll().attempts[ONE].is_over, "node 1 may have its order yet to come"
    engine.start(*wanted)
    done = bench.over(ONE)
    assert (done.exit_code, done.stopped_by, mark.read_text()) == (3, "", "0")
    engine._post(1, "start", engine._part(*wanted, [0, 1], 1).to_dict())  # so late
    assert engine.poll().attempts[ONE].is_over
    assert mark.read_text() == "0"


def test_an_attempt_that_nobody_knows_is_stopped_on_its_own_nodes_whoever_else_is_away(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=3)
    engine._source._watchers[2].close()
    engine._source._watchers[2].latest = None
    engine.stop(ONE, gpus=(0, 2))
    assert engine.poll().attempts[ONE].reason == "never-started"
    engine.forget(ONE)
    assert not engine.poll().attempts


def test_one_half_of_which_was_forgotten_is_forgotten_whole(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    engine.start(*start("pass", gpus=(0, 2)))
    bench.over(ONE)
    engine._post(0, "forget", {"id": "1.1"})  # and then the controller was killed
    assert not engine.poll().attempts[ONE].is_over
    engine.stop(ONE)
    bench.over(ONE)
    engine.forget(ONE)
    assert not engine.poll().attempts


def test_a_part_on_a_node_that_does_not_answer_keeps_the_attempt_open(bench: Bench) -> None:
    engine = bench.engine(fake_nodes=2)
    engine.start(*start("import os, time\ntime.sleep(0 if os.environ['NODE_RANK'] == '0' else 120)", gpus=(0, 2)))
    pid = next(pid for pid in bench.agent_pids() if f"{bench.folder}/node-1" in _words(pid))
    os.kill(pid, signal.SIGSTOP)
    try:
        engine._source._watchers[1].lost()
        poll = bench.until(lambda poll: poll.unreachable == {1})
        assert not poll.attempts[ONE].is_over
        with pytest.raises(EngineError):
            engine.stop(ONE, 1.0)
        with pytest.raises(EngineError):
            engine.start(*start("pass", TWO, (2,)))
    finally:
        os.kill(pid, signal.SIGCONT)
    bench.until(lambda poll: not poll.unreachable)
    engine.stop(ONE, 1.0)
    bench.over(ONE)


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_readings_follow_the_jobs_and_joules_are_counted(bench: Bench) -> None:
    engine = bench.engine()
    idle = bench.until(lambda poll: poll.readings[0].power_w is not None).readings[0]
    engine.start(*start(SLEEP, gpus=(0,), activity_frac=0.5, memory_mib=4000.0))
    poll = bench.until(lambda poll: (poll.readings[0].utilisation_frac or 0.0) > 0.0)
    busy = poll.readings[0]
    assert (busy.utilisation_frac, busy.memory_used_mib) == (0.5, 4000.0)
    assert busy.power_w is not None
    assert idle.power_w is not None
    assert busy.power_w > idle.power_w
    assert poll.readings[1].utilisation_frac == 0.0
    began = bench.until(lambda poll: (poll.attempts[ONE].energy_j or 0.0) > 100.0).attempts[ONE]
    more = bench.until(lambda poll: (poll.attempts[ONE].energy_j or 0.0) > (began.energy_j or 0.0)).attempts[ONE]
    assert began.started_at_s is not None
    assert began.energy_at_s is not None
    assert more.energy_at_s is not None
    assert began.started_at_s < began.energy_at_s < more.energy_at_s <= time.time()
    engine.stop(ONE, 5.0)
    done = bench.over(ONE)
    assert done.energy_j is not None
    assert done.energy_j > 100.0


def test_a_service_over_its_slo_has_its_neighbour_evicted(bench: Bench) -> None:
    engine = bench.engine(guard=QUICK_GUARD)
    engine.start(*start(LATE, ONE, kind="service", slo_s=0.1, shared=True, activity_frac=0.2, memory_mib=1000.0))
    engine.start(*start(SLEEP, TWO, shared=True, activity_frac=0.3, memory_mib=2000.0))
    done = bench.over(TWO)
    assert done.evicted == "overlimit"
    assert done.stop_requested_at_s is not None
    poll = engine.poll()
    assert poll.attempts[ONE].state is AttemptState.RUNNING
    assert (poll.readings[0].guard_state, poll.readings[0].accepts_offline) == ("overlimit", False)
    assert poll.readings[0].service_memory_mib is not None


def test_a_training_alone_is_not_evicted_however_busy_it_is(bench: Bench) -> None:
    strict = {**QUICK_GUARD, "util_healthy_frac": 0.1, "util_over_frac": 0.2, "util_over_windows": 1,
              "temperature_healthy_c": 31.0, "temperature_over_c": 32.0, "worse_windows": 1}  # fmt: skip
    engine = bench.engine(guard=strict)
    engine.start(*start(SLEEP, ONE, activity_frac=1.0))
    poll = bench.until(lambda poll: poll.readings[0].guard_state == "overlimit")
    time.sleep(0.5)
    assert engine.poll().attempts[ONE].stop_requested_at_s is None
    assert poll.attempts[ONE].state is AttemptState.RUNNING


def test_a_service_that_fails_is_restarted_within_its_attempt_and_its_log_goes_on(bench: Bench) -> None:
    engine = bench.engine()
    mark = bench.folder / "mark"
    program = (
        f"import os, time\nfile = open({str(mark)!r}, 'a+')\nfile.write('x'); file.flush(); file.seek(0)\n"
        "n = len(file.read()); print('life', n, flush=True)\nif n < 3: raise SystemExit(4)\ntime.sleep(120)"
    )
    engine.start(*start(program, kind="service"))
    bench.said(ONE, "life 3")
    assert engine.poll().attempts[ONE].state is AttemptState.RUNNING
    assert engine.read_log(ONE, "stdout", 0, 100) == b"life 1\nlife 2\nlife 3\n"
    assert engine.read_log(ONE, "stdout", 5, 9) == b"1\nlife 2\n"
    engine.stop(ONE, 30.0)
    bench.over(ONE)
    assert mark.read_text() == "xxx"


def test_a_service_that_keeps_failing_is_given_up_with_its_last_code(bench: Bench) -> None:
    engine = bench.engine()
    engine.start(*start("print('life'); exit(4)", kind="service"))
    done = bench.over(ONE)
    assert (done.state, done.exit_code) == (AttemptState.ENDED, 4)
    assert engine.read_log(ONE, "stdout", 0, 100) == b"life\n" * 5


def test_a_node_sleeps_refuses_jobs_and_wakes_in_its_time(bench: Bench) -> None:
    engine = bench.engine(wake_s=1.0)
    engine.start(*start(SLEEP))
    with pytest.raises(EngineError, match="has jobs"):
        engine.sleep(0)
    engine.stop(ONE, 5.0)
    bench.over(ONE)
    engine.sleep(0)
    engine.sleep(0)
    assert engine.poll().awake == frozenset()
    bench.until(lambda poll: poll.readings[0].power_w == 0.0)
    with pytest.raises(EngineError, match="sleeps"):
        engine.start(*start("pass", TWO))
    bench.kill_agents()
    bench.until(lambda poll: poll.unreachable)
    poll = bench.until(lambda poll: not poll.unreachable)
    assert poll.awake == frozenset(), "it sleeps on"
    engine.wake(0)
    bench.until(lambda poll: poll.awake == {0})
    bench.until(lambda poll: poll.readings[0].power_w)
    engine.start(*start("pass", TWO))
    bench.over(TWO)


def test_a_machine_without_gpus_says_what_to_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match="--fake-gpus"):
        LocalEngine(bench.folder)


def show_gpus(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process and agents see one H200, with a UUID of its own: claims on it are the whole machine's."""
    made = f"FakeNvml(nvmlDeviceGetName='NVIDIA H200', nvmlDeviceGetUUID='GPU-{uuid.uuid4()}')"
    stub = f"import sys\nfrom tests.node.gpu.fake_nvml import FakeNvml\nsys.modules[__name__] = {made}\n"
    (bench.folder / "pynvml.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", f"{bench.folder}:{Path(__file__).parents[3]}")
    monkeypatch.syspath_prepend(bench.folder)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


def test_a_second_home_is_refused_the_gpus_that_the_first_one_drives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_gpus(bench, monkeypatch)
    engine = bench.engine(fake_gpus=0)
    with pytest.raises(EngineError, match="is driven by another agent already") as refused:
        LocalEngine(bench.folder / "other")
    assert f"in {bench.folder / 'node-0'}" in refused.value.message
    assert engine.cluster.gpu_uuid(0) in refused.value.message
    bench.kill_agents()  # one that is killed lets go of them, and comes back
    bench.until(lambda poll: not poll.unreachable)
    engine.shutdown()
    other = bench.folder / "other"
    LocalEngine(other).shutdown()
    monkeypatch.delitem(sys.modules, "pynvml")


def test_the_machines_own_gpus_are_used_as_its_driver_shows_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(bench, monkeypatch)
    engine = bench.engine(fake_gpus=0)
    monkeypatch.delitem(sys.modules, "pynvml")
    assert not engine.is_fake
    assert [node.gpu_model.name for node in engine.cluster.nodes] == ["H200"]
    engine.start(*start("import os; print(os.environ['CUDA_VISIBLE_DEVICES'], 'FAIRLEAD_FAKE' in os.environ)"))
    assert bench.over(ONE).exit_code == 0
    assert engine.read_log(ONE, "stdout", 0, 100).decode() == f"{engine.cluster.gpu_uuid(0)} False\n"
    engine.sleep(0)
    assert engine.poll().awake == frozenset()
    engine.wake(0)
    assert engine.poll().awake == {0}


def test_a_folder_with_too_long_a_path_is_refused(bench: Bench) -> None:
    with pytest.raises(InputError, match="choose a shorter folder"):
        LocalEngine(bench.folder / ("x" * 100), fake_gpus=1)


@pytest.mark.parametrize(
    ("name", "memory_mib", "expected"),
    [
        ("NVIDIA H200", 143_771.0, ("H200", 143_771.0, 700.0)),
        ("NVIDIA A100-SXM4-40GB", 40_960.0, ("A100", 40_960.0, 400.0)),
        ("NVIDIA RTX 9999", 10_000.0, ("RTX 9999", 10_000.0, 250.0)),
    ],
)
def test_a_gpu_is_described_by_its_model_and_its_own_memory(
    name: str, memory_mib: float, expected: tuple[str, float, float]
) -> None:
    model = model_of(GpuInfo(0, "GPU-x", name, memory_total_mib=memory_mib, power_limit_w=250.0))
    assert (model.name, model.memory_mib, model.peak_w) == expected
    assert 0.0 < model.idle_w < model.peak_w


def test_an_agent_that_somebody_else_is_just_starting_is_waited_for(bench: Bench) -> None:
    bench.engine()
    engines: list[LocalEngine] = []
    threads = [
        threading.Thread(target=lambda: engines.append(LocalEngine(bench.folder, fake_gpus=2))) for _ in range(3)
    ]
    agents = agents_in(bench.folder)
    assert agents
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engines) == 3
    for engine in engines:
        assert not engine.poll().unreachable
        engine.close()
