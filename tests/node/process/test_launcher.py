"""Jobs outlive whoever started them, run once, and their end is always known or known to be unknown."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError, RunError
from fairlead.job.place import LAUNCH
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process import environment
from fairlead.node.process.launch import LaunchRules, LaunchState, LaunchStatus, Limits
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import boot_s, command_line, is_running, process, processes, send
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parents[3] / "src"
PYTHON = sys.executable
J = LaunchId(AttemptId(17, 2))


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path / "jobs")
    yield made
    for launch in made.launches():  # a test that fails leaves nothing behind
        made.kill(launch)


def python(program: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", program)


def job(number: int) -> LaunchId:
    return LaunchId(AttemptId(number, 1))


def order(*argv: str, **more: Any) -> Order:
    return Order(J.attempt, argv, **more)


def run(launcher: Launcher, *argv: str, **more: Any) -> LaunchStatus:
    launcher.start(J, order(*argv, **more))
    return launcher.wait(J, PATIENCE_S)


def wait_until(true: Callable[[], object], for_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + for_s
    while not true():
        assert time.monotonic() < until, f"not so within {for_s} s"
        time.sleep(0.01)


def supervisor(status: LaunchStatus) -> tuple[int, int]:
    found = json.loads((status.folder / "running.json").read_text())
    return found["supervisor_pid"], found["supervisor_start_ticks"]


def test_exit_code_and_both_logs_are_kept(launcher: Launcher) -> None:
    done = run(launcher, *python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"))
    assert (done.state, done.exit_code, done.signal, done.reason) == (LaunchState.ENDED, 7, None, "exited")
    assert done.stdout.read_text() == "out\n"
    assert done.stderr.read_text() == "err\n"
    assert not done.has_succeeded
    assert done.ended_at_s is not None
    assert done.started_at_s is not None
    assert done.ended_at_s >= done.started_at_s


def test_success_is_success(launcher: Launcher) -> None:
    assert run(launcher, "true").has_succeeded


def test_a_signal_is_told_as_shells_do(launcher: Launcher) -> None:
    done = run(launcher, *python("import os; os.kill(os.getpid(), 11)"))
    assert (done.exit_code, done.signal, done.reason) == (139, 11, "signalled")


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "reason"),
    [
        (("no-such-command",), "/", 127, "command-not-found"),
        (("/no/such/command",), "/", 127, "command-not-found"),
        (("true",), "/no/such/folder", 126, "no-such-folder"),
        (("true",), "/etc/passwd", 126, "no-such-folder"),
        (("/etc/passwd",), "/", 126, "not-permitted"),
        (("/etc",), "/", 126, "not-permitted"),
    ],
)
def test_what_cannot_be_started_has_ended_with_a_reason(
    launcher: Launcher, argv: tuple[str, ...], cwd: str, code: int, reason: str
) -> None:
    done = launcher.start(J, order(*argv, cwd=cwd))
    assert (done.state, done.exit_code, done.reason) == (LaunchState.ENDED, code, reason)
    assert done.detail


def test_a_file_that_is_no_program_cannot_be_executed(launcher: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\0\1\2")
    program.chmod(0o755)
    done = launcher.start(J, order(str(program)))
    assert (done.exit_code, done.reason) == (126, "cannot-execute")


def test_an_unknown_user_is_a_reason(launcher: Launcher) -> None:
    done = launcher.start(J, order("true", user="no-such-user"))
    assert (done.exit_code, done.reason) == (126, "no-such-user")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_root_runs_a_job_as_another_user(launcher: Launcher) -> None:
    done = run(launcher, "/bin/sh", "-c", "id -un; echo $USER", user="nobody")
    assert done.has_succeeded, done
    assert done.stdout.read_text() == "nobody\nnobody\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_others_may_not_run_a_job_as_root(launcher: Launcher) -> None:
    done = launcher.start(J, order("true", user="root"))
    assert (done.exit_code, done.reason) == (126, "not-permitted")


def test_the_environment_is_the_users_with_ours_on_top(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs", inherited={"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": "/old"})
    env = {"A": "b", "CUDA_VISIBLE_DEVICES": "7", "LD_PRELOAD": "", "FAIRLEAD_JOB_ID": "other"}
    program = python("import json, os; print(json.dumps(dict(os.environ)))")
    ours = {"FAIRLEAD_PAGE": "/dev/shm/page", "CUDA_MPS_CLIENT_PRIORITY": "1"}
    launcher.start(J, order(*program, gpus=("GPU-1",), env=env), ours)
    seen = json.loads(launcher.wait(J, PATIENCE_S).stdout.read_text())
    assert len(seen.pop(LAUNCH)) == 32
    seen.pop("LC_CTYPE", None)  # Python sets it by itself
    assert {name: value for name, value in seen.items() if name not in torchrun()} == {
        "PATH": os.environ["PATH"],
        "A": "b",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "FAIRLEAD_PAGE": "/dev/shm/page",
        "FAIRLEAD_JOB_ID": "17",
        "FAIRLEAD_ATTEMPT": "2",
        "FAIRLEAD_GPUS": "GPU-1",
        "FAIRLEAD_NUM_GPUS": "1",
        "LD_PRELOAD": "",
        "PYTHONUNBUFFERED": "1",
    }


def torchrun() -> set[str]:
    shape = ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")
    return {*shape, *(f"PET_{name}" for name in shape)}


def test_our_preload_goes_before_the_users_and_fake_gpus_are_hidden_from_cuda() -> None:
    ours = order("x", gpus=("FAKE-GPU-0001",)).environment() | {"LD_PRELOAD": "/b.so"}
    env = environment.composed({}, {"LD_PRELOAD": "/a.so", "CUDA_VISIBLE_DEVICES": "0"}, ours)
    assert (env["LD_PRELOAD"], env["CUDA_VISIBLE_DEVICES"], env["FAIRLEAD_GPUS"]) == (
        "/b.so:/a.so",
        "",
        "FAKE-GPU-0001",
    )


def test_secrets_of_the_agent_do_not_reach_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "secret")
    launcher = Launcher(tmp_path / "jobs")
    assert "secret" not in run(launcher, "env").stdout.read_text()


def test_starting_twice_runs_once(launcher: Launcher) -> None:
    wanted = order("sh", "-c", "echo ran; sleep 0.2")
    first, second = launcher.start(J, wanted), launcher.start(J, wanted)
    assert (first.state, second.state, first.pid) == (LaunchState.RUNNING, LaunchState.RUNNING, second.pid)
    assert launcher.wait(J, PATIENCE_S).has_succeeded
    assert launcher.start(J, wanted).has_succeeded
    assert launcher.start(J, order("false")).has_succeeded, "what was asked for first counts"
    assert first.stdout.read_text() == "ran\n"


def test_many_who_start_the_same_at_once_run_it_once(launcher: Launcher) -> None:
    wanted = order("sh", "-c", "echo ran; sleep 0.3")
    threads = [threading.Thread(target=launcher.start, args=(J, wanted)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = launcher.wait(J, PATIENCE_S)
    assert done.has_succeeded
    assert done.stdout.read_text() == "ran\n"


def test_a_second_attempt_is_another_run(launcher: Launcher) -> None:
    for launch in (J, J.next):
        launcher.start(launch, order("echo", str(launch.number)))
    assert [launcher.wait(launch, PATIENCE_S).stdout.read_text() for launch in (J, J.next)] == ["0\n", "1\n"]


def test_fifty_jobs_at_once(launcher: Launcher) -> None:
    program = "import sys, time; time.sleep(0.5); print('x' * 100_000); sys.exit(int(sys.argv[1]))"
    for i in range(50):
        launcher.start(job(i), order(*python(program), str(i)))
    for i in range(50):
        done = launcher.wait(job(i), PATIENCE_S)
        assert (done.state, done.exit_code) == (LaunchState.ENDED, i)
        assert done.stdout.stat().st_size == 100_001


def test_a_polite_job_stops_at_sigterm_with_its_own_code(launcher: Launcher) -> None:
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(3)))
print("up", flush=True)
time.sleep(60)
"""
    status = launcher.start(J, order(*python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    done = launcher.stop(J, grace_s=20.0)
    assert (done.state, done.exit_code, done.was_stopped) == (LaunchState.ENDED, 3, True)
    assert done.stdout.read_text() == "up\nsaved\n"


def test_sigterm_is_sent_once_however_often_it_is_asked_for(launcher: Launcher, tmp_path: Path) -> None:
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: print('asked', flush=True))\n"
    program += "print('up', flush=True)\ntime.sleep(60)"
    status = launcher.start(J, order(*python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    assert launcher.request_stop(J, tmp_path / "stop")
    wait_until(lambda: "asked" in status.stdout.read_text())
    assert (tmp_path / "stop").exists()
    for again in (launcher, Launcher(launcher.folder)):
        assert again.request_stop(J, tmp_path / "stop")
    launcher.signal(J, signal.SIGKILL)
    done = launcher.wait(J, PATIENCE_S)
    assert (done.signal, done.was_stopped) == (signal.SIGKILL, True)
    assert done.stdout.read_text() == "up\nasked\n"


def test_when_it_ended_is_told_by_a_clock_that_nobody_sets_unless_the_machine_was_booted_since(
    launcher: Launcher,
) -> None:
    before_s = boot_s()
    done = run(launcher, "true")
    assert done.ended_boot_s is not None
    assert before_s <= done.ended_boot_s <= boot_s()
    running = done.folder / "running.json"
    running.write_text(json.dumps({**json.loads(running.read_text()), "boot_id": "another"}))
    assert launcher.status(J).ended_boot_s is None


def test_one_that_has_ended_was_not_stopped_whoever_asks_later(launcher: Launcher, tmp_path: Path) -> None:
    run(launcher, "true")
    assert not launcher.request_stop(J, tmp_path / "stop")
    launcher.kill(J)
    done = launcher.status(J)
    assert (done.exit_code, done.was_stopped, (tmp_path / "stop").exists()) == (0, False, False)
    assert done.ran_s is not None


def test_one_that_we_kill_was_stopped_by_us(launcher: Launcher) -> None:
    launcher.start(J, order("sleep", "60"))
    launcher.kill(J)
    done = launcher.wait(J, PATIENCE_S)
    assert (done.signal, done.was_stopped) == (signal.SIGKILL, True)


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(launcher: Launcher) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    status = launcher.start(J, order(*python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    began_s = time.monotonic()
    done = launcher.stop(J, grace_s=0.5)
    assert time.monotonic() - began_s >= 0.5
    assert (done.exit_code, done.signal) == (137, 9)


def test_children_that_left_the_group_end_with_the_job(launcher: Launcher) -> None:
    program = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.2)
"""
    done = run(launcher, *python(program))
    assert done.has_succeeded
    assert process(int(done.stdout.read_text())) is None


def test_stopping_what_has_ended_changes_nothing(launcher: Launcher) -> None:
    done = run(launcher, "true")
    assert not launcher.signal(J, signal.SIGTERM)
    again = launcher.stop(J)
    assert again.has_succeeded
    assert again.ended_at_s == done.ended_at_s


def test_a_recycled_pid_is_never_signalled(launcher: Launcher) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        done = run(launcher, "true")
        record = json.loads((done.folder / "running.json").read_text())
        mine = process(bystander.pid)
        assert mine is not None
        # The job's number now belongs to somebody else, who started at another moment.
        record |= {"pid": bystander.pid, "start_ticks": mine.start_ticks - 1}
        record |= {"supervisor_pid": bystander.pid, "supervisor_start_ticks": mine.start_ticks - 1}
        (done.folder / "running.json").write_text(json.dumps(record))
        (done.folder / "exit.json").unlink()
        until_s = time.monotonic() + PATIENCE_S  # its supervisor may hold the lock a moment longer
        while launcher.status(J).state is LaunchState.RUNNING and time.monotonic() < until_s:
            time.sleep(0.01)
        assert launcher.status(J).state is LaunchState.LOST
        assert not launcher.signal(J, signal.SIGKILL)
        assert launcher.processes(J) == ()
        launcher.stop(J, grace_s=0.1)
        assert not send(bystander.pid, mine.start_ticks - 1, signal.SIGKILL)
        assert bystander.poll() is None
        bystander.kill()


def test_after_a_reboot_pids_mean_nothing(launcher: Launcher) -> None:
    status = launcher.start(J, order("sleep", "60"))
    path = status.folder / "running.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "boot_id": "another"}))
    assert not launcher.signal(J, signal.SIGKILL)
    assert launcher.processes(J) == ()
    path.write_text(kept)
    assert launcher.stop(J).signal == signal.SIGTERM


@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_a_job_whose_supervisor_was_killed_is_lost_found_and_stopped(launcher: Launcher, ends_by_itself: bool) -> None:
    program = "import os, time; os.fork(); print('up', flush=True); time.sleep(60)"
    if ends_by_itself:
        program = "print('up', flush=True); import time; time.sleep(0.3)"
    status = launcher.start(J, order(*python(program)))
    wait_until(lambda: status.stdout.read_text().count("up") == 2 - ends_by_itself)
    assert send(*supervisor(status), signal.SIGKILL)
    wait_until(lambda: launcher.status(J).state is LaunchState.LOST)
    if ends_by_itself:
        wait_until(lambda: not launcher.processes(J))
    else:
        assert len(launcher.processes(J)) == 2
    done = launcher.stop(J, grace_s=5.0)
    assert (done.state, done.exit_code, done.reason) == (LaunchState.LOST, None, "supervisor-lost")
    assert not done.has_succeeded
    assert launcher.processes(J) == ()
    assert launcher.start(J, order("true")).state is LaunchState.LOST, "it ran once, it does not run again"


def test_orphans_of_a_lost_job_are_found_though_they_left_its_session(launcher: Launcher) -> None:
    program = "import os, time; os.fork() or (os.setsid(), time.sleep(60)); print('up', flush=True); time.sleep(60)"
    status = launcher.start(J, order(*python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    wait_until(lambda: len({one.session for one in launcher.processes(J)}) == 2)
    send(*supervisor(status), signal.SIGKILL)
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    wait_until(lambda: len(launcher.processes(J)) == 1)
    launcher.stop(J, grace_s=1.0)
    assert launcher.processes(J) == ()


def test_a_job_whose_supervisor_died_while_it_swept_is_not_over_before_its_processes_are(launcher: Launcher) -> None:
    status = launcher.start(J, order("sleep", "60"))
    send(*supervisor(status), signal.SIGKILL)
    wait_until(lambda: launcher.status(J).state is LaunchState.LOST)
    # As a supervisor leaves it that is killed between the exit code and the sweep.
    (status.folder / "exit.json").write_text('{"exit_code": 0, "reason": "exited", "is_swept": false}')
    after = Launcher(launcher.folder)
    assert after.status(J).state is LaunchState.ENDED
    assert not after.is_over(after.status(J)), "somebody may be on the GPU"
    wait_until(lambda: after.is_over(after.status(J)))
    assert launcher.processes(J) == ()


def test_what_was_accepted_and_never_started_can_be_started(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = order("echo", "ran")
    with monkeypatch.context() as killed:  # an agent that dies between the two steps
        killed.setattr(Launcher, "_supervise", lambda *_: None)
        with pytest.raises(RunError):
            launcher.start(J, wanted)
    assert launcher.launches() == [J]
    assert Launcher(launcher.folder).status(J).state is LaunchState.PREPARED
    launcher.start(J, wanted)
    assert launcher.wait(J, PATIENCE_S).stdout.read_text() == "ran\n"


_AGENT = """
import sys
from pathlib import Path
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launcher import Launcher
launcher = Launcher(Path(sys.argv[1]))
job = "import sys, time; [(print(i, flush=True), time.sleep(0.01)) for i in range(40)]; sys.exit(int(sys.argv[1]))"
for i in range(int(sys.argv[2])):
    one = AttemptId(i, 1)
    launcher.start(LaunchId(one), Order(one, (sys.executable, "-I", "-S", "-c", job, str(i))))
print("all started", flush=True)
import time
time.sleep(60)
"""


def test_nothing_is_lost_or_run_twice_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    jobs, folder = 12, tmp_path / "jobs"
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    chance = random.Random(7)
    for kill in range(8):  # each agent starts all jobs, from wherever the one before it was killed
        agent = subprocess.Popen([PYTHON, "-c", _AGENT, str(folder), str(jobs)], env=env, stdout=subprocess.PIPE)
        if kill < 7:
            time.sleep(0.1 + 0.3 * chance.random())
        else:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"all started\n"
        agent.kill()
        agent.communicate()
    launcher = Launcher(folder)
    assert len(launcher.launches()) == jobs
    for i in range(jobs):
        done = launcher.wait(job(i), PATIENCE_S)
        assert (done.state, done.exit_code) == (LaunchState.ENDED, i), done
        assert done.stdout.read_text().split() == [str(n) for n in range(40)]


def test_a_machine_that_can_start_nothing_says_so(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = order("echo", "ran")
    with monkeypatch.context() as broken:
        broken.setattr("fairlead.node.process.launcher._SUPERVISOR", "raise SystemExit('broken')")
        with pytest.raises(RunError, match=r"does not come up"):
            launcher.start(J, wanted)
        assert "broken" in (launcher.folder / str(J) / "supervisor.log").read_text()
    launcher.start(J, wanted)
    assert launcher.wait(J, PATIENCE_S).stdout.read_text() == "ran\n"


def test_a_supervisor_killed_at_any_moment_of_the_start_never_runs_a_job_twice(launcher: Launcher) -> None:
    chance = random.Random(11)
    outcomes = []
    for i in range(25):
        folder, wanted = launcher.folder / str(job(i)), order("sh", "-c", "echo ran; sleep 0.05")
        starting = threading.Thread(target=launcher.start, args=(job(i), wanted))
        starting.start()
        time.sleep(0.08 * chance.random())
        for one in processes():
            if str(folder) in command_line(one.pid):
                send(one.pid, one.start_ticks, signal.SIGKILL)
        starting.join()
        launcher.start(job(i), order("sh", "-c", "echo ran"))
        done = launcher.wait(job(i), PATIENCE_S)
        log = done.stdout.read_text() if done.stdout.exists() else ""
        assert done.state in (LaunchState.ENDED, LaunchState.LOST)
        assert log in ("", "ran\n")
        assert not done.has_succeeded or log == "ran\n"
        outcomes.append(done.has_succeeded)
    assert any(outcomes)


def test_the_supervisor_is_no_child_of_the_agent_and_ignores_polite_signals(launcher: Launcher) -> None:
    status = launcher.start(J, order("sleep", "60"))
    pid, ticks = supervisor(status)
    found = process(pid)
    assert found is not None
    assert found.parent != os.getpid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    time.sleep(0.1)
    assert is_running(pid, ticks)
    assert launcher.status(J).state is LaunchState.RUNNING
    rss_kib = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    assert rss_kib < 20_000
    launcher.stop(J)


def test_a_supervisor_whose_folder_was_removed_goes_with_its_job(launcher: Launcher) -> None:
    status = launcher.start(J, order(*python("print('up', flush=True); import time; time.sleep(60)")))
    wait_until(lambda: "up" in status.stdout.read_text())
    (pid, ticks), child = supervisor(status), status.pid
    assert child is not None
    shutil.rmtree(status.folder)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not is_running(pid, ticks))


def test_a_job_starts_with_signals_as_usual(launcher: Launcher) -> None:
    done = run(launcher, "grep", "SigIgn", "/proc/self/status")
    # 32 and 33 are the C library's own: nobody can set them, and whoever started us may have them ignored.
    assert int(done.stdout.read_text().split()[1], 16) & ~(0b11 << 31) == 0


def test_limits_are_written_where_there_is_a_cgroup_and_noted_where_not(tmp_path: Path) -> None:
    rules = LaunchRules(limits=Limits(memory_mib=64, cpus=1.5, processes=500))
    assert "no limits" in run(Launcher(tmp_path / "first", rules=rules), "true").notes[0]
    parent = tmp_path / "cgroup"
    parent.mkdir()
    inside = Launcher(tmp_path / "others", cgroup_parent=parent, rules=rules)
    done = run(inside, "sleep", "0.1")
    (made,) = parent.iterdir()
    written = {file.name: file.read_text() for file in made.iterdir()}
    assert written == {
        "memory.max": str(64 * 1024 * 1024),
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "pids.max": "500",
        "cgroup.procs": str(done.pid),
    }
    gone = Launcher(tmp_path / "third", cgroup_parent=tmp_path / "nowhere", rules=rules)
    done = run(gone, "true")
    assert done.has_succeeded
    assert "No such file" in done.notes[0]


def test_only_what_is_over_can_be_removed(launcher: Launcher) -> None:
    launcher.start(J, order("sleep", "60"))
    with pytest.raises(RunError, match="running"):
        launcher.remove(J)
    launcher.stop(J)
    launcher.remove(J)
    assert launcher.launches() == []
    with pytest.raises(InputError, match="never started"):
        launcher.status(J)
